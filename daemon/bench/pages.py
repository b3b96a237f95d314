"""The page and the text, out of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from daemon.bench.capacity import held
from daemon.bench.result import METRICS, Case, Report, write
from daemon.bench.streams import Streams
from daemon.bench.sweep import batch_of, knee
from daemon.errors import LookoutError
from daemon.page import Page, Table, check_pages, filled, number, write_pages

if TYPE_CHECKING:
    from types import ModuleType

_TITLES = {"replay": "Replay", "sweep": "Sweep", "capacity": "Capacity", "peers": "Beside others"}


def save(report: Report, folder: Path) -> list[Path]:
    """KIND.json, KIND.md and KIND.html.

    Raises:
        LookoutError: they cannot be written, or what draws them is not installed.
    """
    stem = folder / report.kind
    figures = stem.with_suffix(".json")
    write(figures, report)
    return [figures, *write_pages(stem, _page(report), report.environment)]


def check_installed() -> None:
    """Before something is measured that is to be drawn.

    Raises:
        LookoutError: says what is missing.
    """
    _plots()
    check_pages()


def _page(report: Report) -> Page:
    return {"replay": _replay, "sweep": _sweep, "capacity": _capacity, "peers": _peers}[report.kind](report)


def _replay(report: Report) -> Page:
    case = report.cases[0]
    runs = _runs(case)
    plots = _plots()
    drawn = [
        ("latency", plots.latency(runs)),
        ("stages", plots.stages(runs)),
        ("timeline", plots.timeline(runs[0])),
    ]
    tables = [_metrics(case), _latencies(runs), _gpu(runs, case.copies), _cpu(runs), _start(runs), _sources(runs[0])]
    if report.accuracy:
        row = (f"{report.accuracy.ap:.4f}", f"{report.accuracy.ap50:.4f}", str(report.accuracy.images))
        tables.append(Table("Accuracy", ("AP", "AP50", "photos"), [row]))
    copies = f", {case.copies} daemons at once" if case.copies > 1 else ""
    headline = f"{_load(case)}{copies}; {len(case.repeats)} repeats of {runs[0].seconds:.0f} s. {_loop(runs[0])}"
    return Page(_TITLES["replay"], headline, _tiles(case), report.remarks, filled(tables), _drawn(drawn))


def _sweep(report: Report) -> Page:
    cases, plots = report.cases, _plots()
    done = [case for case in cases if case.repeats]
    head = ("sources", "lanes", "batch", "precision", "frames/s", "spread", "p50, ms", "p99, ms", "GPU, MiB",
            "J a frame", "CPU, ms a frame")  # fmt: skip
    rows = [
        (
            str(case.load["sources"]),
            str(case.load["lanes"]),
            str(batch_of(case)),
            _runs(case)[0].precision,
            number(case.value("fps")),
            _spread(case, "fps"),
            number(case.value("p50")),
            number(case.value("p99")),
            number(case.value("gpu_memory")),
            number(case.value("joules")),
            number(case.value("cpu")),
        )
        for case in done
    ]
    best = max(done, key=lambda case: case.value("fps") or 0.0, default=None)
    bend = knee([case for case in done if best and _same_but_batch(case, best)])
    tiles = []
    if best and bend:
        tiles = [
            ("best", number(best.value("fps")), f"frames/s, {_load(best)}"),
            ("knee", str(batch_of(bend)), f"the smallest batch within 5 %: {number(bend.value('fps'))} frames/s"),
        ]
    drawn = [("knee", plots.sweep(cases)), ("tradeoff", plots.tradeoff(cases))] if done else []
    headline = f"{len(done)} configurations, {max((len(case.repeats) for case in done), default=0)} repeats each"
    return Page(
        _TITLES["sweep"], headline, tiles, _few(report), filled([Table("Configurations", head, rows)]), _drawn(drawn)
    )


def _capacity(report: Report) -> Page:
    promise = report.promise or {}
    head = ("sources", "", "frames/s", "dropped, %", "p50, ms", "p99, ms", "slowest source", "decoder, %", "W")
    rows = [
        (
            str(case.load["sources"]),
            "held" if case.kept else "not held",
            number(case.value("fps")),
            number(100 * (case.value("dropped") or 0.0)),
            number(case.value("p50")),
            number(case.value("p99")),
            number(_runs(case)[0].source_fps[0]),
            number(_runs(case)[0].usage.decoder_percent),
            number(_runs(case)[0].usage.power_w),
        )
        for case in sorted(report.cases, key=lambda case: int(case.load["sources"]))
    ]
    most = {name: f"{value:g}" for name, value in promise.items()}
    words = f"at most {most['dropped_percent']} % dropped, p50 {most['p50_ms']} ms and p99 {most['p99_ms']} ms"
    seconds = report.cases[0].load["seconds"]
    tiles = [("held", str(held(report)), f"live sources: {words}, each tried for {seconds:g} s")]
    drawn = [("capacity", _plots().capacity(report.cases, promise))]
    headline = f"{_load(report.cases[0], sources=False)}. {_loop(_runs(report.cases[0])[0])}"
    return Page(_TITLES["capacity"], headline, tiles, _few(report), [Table("Numbers tried", head, rows)], _drawn(drawn))


def _peers(report: Report) -> Page:
    case = report.cases[0]
    ours = case.value("fps") or 0.0
    rows = [("Lookout", "", number(ours), _spread(case, "fps"), "1", "every frame, boxes received by a subscriber")]
    rows += [
        (
            peer.name,
            peer.kind,
            number(median(peer.fps)) if peer.fps else "",
            _half_range(peer.fps),
            f"{ours / median(peer.fps):.3g}" if peer.fps and median(peer.fps) else "",
            peer.note,
        )
        for peer in report.peers
    ]
    table = Table("Sides", ("", "", "frames/s", "spread", "Lookout is so many times it", ""), rows, notes=True)
    headline = f"{_load(case)}; {len(case.repeats)} turns of each. {_loop(_runs(case)[0])}"
    drawn = [("peers", _plots().bars(ours, report.peers))]
    return Page(_TITLES["peers"], headline, _tiles(case), report.remarks, [table, _metrics(case)], _drawn(drawn))


def _tiles(case: Case) -> list[tuple[str, str, str]]:
    rows = [(METRICS[name].title, number(case.value(name)), METRICS[name].unit) for name in
            ("fps", "p50", "p99", "dropped", "cpu", "joules", "gpu_memory")]  # fmt: skip
    return [row for row in rows if row[1]]


def _metrics(case: Case) -> Table:
    rows = []
    for name, metric in METRICS.items():
        values = case.values(name)
        if values:
            figures = (number(figure) for figure in (median(values), min(values), max(values)))
            rows.append((metric.title, metric.unit, *figures, _spread(case, name)))
    return Table("Medians of the repeats", ("", "", "median", "least", "most", "spread"), rows)


def _latencies(runs: Sequence[Streams]) -> Table:
    ranks = list(runs[0].latency_ms)
    rows = [("total", *(number(median(run.latency_ms[rank] for run in runs)) for rank in ranks))]
    rows += [
        (name, *(number(median(run.stages_ms[name][rank] for run in runs)) for rank in ranks))
        for name in runs[0].stages_ms
    ]
    return Table("Latency, ms", ("", *ranks), rows if ranks else [])


def _gpu(runs: Sequence[Streams], copies: int) -> Table:
    named = {
        "in use, %": [run.usage.gpu_percent for run in runs],
        "decoder, %": [run.usage.decoder_percent for run in runs],
        "memory controller, %": [run.usage.memory_controller_percent for run in runs],
        "clock, MHz": [run.usage.clock_mhz for run in runs],
        "power, W": [run.usage.power_w for run in runs],
        "highest, W": [run.usage.peak_power_w for run in runs],
        "W a stream": [run.watts_per_stream / copies if run.watts_per_stream else None for run in runs],
        "interrupts/s on one core": [run.usage.gpu_interrupts_per_s for run in runs],
        "memory, MiB": [run.gpu_mib for run in runs],
        "memory planned, MiB": [run.planned_mib or None for run in runs],
    }
    rows = [(name, number(median(known))) for name, values in named.items()
            if (known := [value for value in values if value is not None])]  # fmt: skip
    return Table("GPU", ("", "median"), rows)


def _cpu(runs: Sequence[Streams]) -> Table:
    named: dict[str, list[float]] = {
        "CPU, ms a frame": [run.usage.cpu_ms_per_frame for run in runs],
        "the measuring itself, beside that": [run.usage.bench_cpu_ms_per_frame for run in runs],
        "threads": [run.usage.threads for run in runs],
        "context switches a second": [run.usage.context_switches_per_s for run in runs],
        "waiting for input and output, % of the machine": [run.usage.io_wait_percent for run in runs],
        "read, MiB/s": [run.usage.read_mib_per_s for run in runs],
        "RSS, MiB": [run.usage.rss_mib for run in runs],
        "open files": [run.usage.open_files for run in runs],
    }
    rows = [(name, number(median(values))) for name, values in named.items()]
    return Table("CPU, input and output", ("", "median"), rows)


def _start(runs: Sequence[Streams]) -> Table:
    named = {
        "everything made, the model opened": [run.start_up.daemon_s for run in runs],
        "lanes ready": [run.start_up.lanes_s for run in runs],
        "first detections of all sources": [run.start_up.first_detections_s for run in runs],
        **{f"of the model: {name}": [run.start_up.parts[name] for run in runs if name in run.start_up.parts]
           for name in runs[0].start_up.parts},
        "rate steady, after that": [run.warmth.warm_s for run in runs],
    }  # fmt: skip
    rows = [(name, number(values[0]), number(median(values))) for name, values in named.items()]
    return Table("Start-up, s", ("", "first run", "median"), rows)


def _sources(run: Streams) -> Table:
    rows = [
        (id, number(row.fps), str(row.dropped), number(row.p50_ms), number(row.p99_ms))
        for id, row in sorted(run.by_source.items(), key=lambda item: item[1].fps)
    ]
    return Table("Sources, first run, slowest first", ("", "frames/s", "dropped", "p50, ms", "p99, ms"), rows)


def _load(case: Case, *, sources: bool = True) -> str:
    load = case.load
    run = _runs(case)[0]
    many = f"{load['sources']} sources of " if sources else ""
    settings = f"{load['lanes']} lanes, batches up to {batch_of(case)}"
    return f"{many}{load['clip']}, {run.model} on {run.backend} ({run.precision}), {settings}"


def _loop(run: Streams) -> str:
    if run.loop == "open":
        return "Open loop: frames come when they are due, and latency counts from then."
    return "Closed loop: each source's next frame comes when there is room; latency is captured to sent."


def _runs(case: Case) -> list[Streams]:
    return [run for repeat in case.repeats for run in repeat]


def _same_but_batch(case: Case, other: Case) -> bool:
    return all(case.load[name] == other.load[name] for name in case.load if name not in ("batch", "max_batch"))


def _few(report: Report) -> list[str]:
    """Remarks, those on repeats said once."""
    rows = [remark for remark in report.remarks if "fewer than 5 repeats" not in remark]
    return rows if len(rows) == len(report.remarks) else [*rows, "fewer than 5 repeats: the spread says little"]


def _spread(case: Case, name: str) -> str:
    return _half_range(case.values(name))


def _half_range(values: Sequence[float]) -> str:
    """Half of it, over the median."""
    middle = median(values) if values else 0.0
    return f"± {100 * (max(values) - min(values)) / 2 / middle:.1f} %" if len(values) > 1 and middle else ""


def _drawn(plots: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, svg) for name, svg in plots if svg]


def _plots() -> ModuleType:
    try:
        from daemon.bench import plots
    except ImportError as error:
        raise LookoutError(f"reports need {error.name}: pip install '.[bench]'") from error
    return plots
