"""Pages of reports, shown on the terminal, in HTML and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from daemon.bench.result import METRICS, Case, Constraints, Report, name_of, write
from daemon.bench.run import Run
from daemon.bench.search import SETTINGS, batch_of, knee, max_met
from daemon.commands.report import Page, Table, filled, number, write_pages


def save(report: Report, folder: Path) -> list[Path]:
    """Write KIND.json, KIND.md and KIND.html.

    Raises:
        LookoutError: they cannot be written, or the plotting library is missing.
    """
    stem = folder / report.kind
    figures = stem.with_suffix(".json")
    write(figures, report)
    page = page_of(report)
    page.plots.extend((name, svg) for name, svg in _plots(report) if svg)
    return [figures, *write_pages(stem, page, report.environment)]


def page_of(report: Report) -> Page:
    """The page of a report, without plots."""
    if report.kind == "run":
        return _run_page(report)
    return _source_search_page(report, report.constraints) if report.constraints else _grid_page(report)


def summary_of(case: Case) -> str:
    """A case in one line."""
    if case.failed:
        return f"{name_of(case.load)}: {case.failed}"
    figures = f"{number(case.value('fps'))} frames/s, p50 / p99 {_percentiles(case, 'p50', 'p99')} ms"
    outcome = "" if case.kept is None else ", holds" if case.kept else ", does not hold"
    return f"{name_of(case.load)}, {case.load['seconds']:g} s: {figures}{outcome}"


def _run_page(report: Report) -> Page:
    case = report.cases[0]
    runs = _runs(case)
    tables = [
        *([_peers(case, report)] if report.peers else []),
        _metrics(case),
        _models(case),
        _frames(runs),
        _latencies(case),
        _limits(case, report),
        _gpu(runs, case.copies),
        _cpu(runs),
        _start(runs),
    ]
    if report.accuracy:
        row = (f"{report.accuracy.ap:.4f}", f"{report.accuracy.ap50:.4f}", str(report.accuracy.images))
        tables.append(Table("Accuracy", ("AP", "AP50", "photos"), [row]))
    tables.append(_sources(runs[0]))
    copies = f", {case.copies} daemons at once" if case.copies > 1 else ""
    headline = f"{_load(case)}{copies}; {len(case.repeats)} repeats of {runs[0].seconds:.0f} s. {_loop(runs[0])}"
    return Page("Run", headline, _tiles(case), report.remarks, filled(tables))


def _grid_page(report: Report) -> Page:
    done = [case for case in report.cases if case.repeats]
    names = [name for name in SETTINGS if len({case.load[name] for case in done}) > 1 or name == "batch"]
    head = (*names, "frames/s", "spread", "p50 / p99, ms", "GPU, MiB", "J/frame", "CPU, ms/frame")
    rows = [
        (
            *(str(batch_of(case) if name == "batch" else case.load[name]) for name in names),
            number(case.value("fps")),
            _spread(case.values("fps")),
            _percentiles(case, "p50", "p99"),
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
    headline = f"{len(done)} configurations, {max((len(case.repeats) for case in done), default=0)} repeats each"
    if done:
        headline += f"; {_load(done[0])}, unless noted. {_loop(_runs(done[0])[0])}"
    return Page("Search", headline, tiles, _few(report), filled([_narrow(Table("Configurations", head, rows))]))


def _source_search_page(report: Report, wanted: Constraints) -> Page:
    head = ("sources", "seconds", "", "frames/s", "p50 / p99, ms", "slowest source", "decoder, %", "W")
    rows = [
        (
            str(case.load["sources"]),
            f"{case.load['seconds']:g}",
            "holds" if case.kept else "does not hold",
            number(case.value("fps")),
            _percentiles(case, "p50", "p99"),
            number(_runs(case)[0].source_fps[0]),
            number(_runs(case)[0].usage.decoder_percent),
            number(_runs(case)[0].usage.power_w),
        )
        for case in sorted(report.cases, key=lambda case: (int(case.load["sources"]), case.load["seconds"]))
    ]
    first = report.cases[0]
    limits = f"at most {wanted.dropped_percent:g} % dropped, p50 {wanted.p50_ms:g} ms and p99 {wanted.p99_ms:g} ms"
    seconds = max(wanted.confirm_s, first.load["seconds"])
    tiles = [("met", str(max_met(report)), f"live sources: {limits}, for {seconds:g} s")]
    headline = f"{_load(first, sources=False)}. {_loop(_runs(first)[0])}"
    return Page("Most sources", headline, tiles, _few(report), [_narrow(Table("Numbers tried", head, rows))])


def _plots(report: Report) -> list[tuple[str, str]]:
    """Names and SVGs; empty if there is nothing to plot."""
    from daemon.bench import plots

    if report.kind == "run":
        runs = _runs(report.cases[0])
        own = [("latency", plots.latency(runs)), ("stages", plots.stages(runs)), ("timeline", plots.timeline(runs[0]))]
        beside = plots.bars(report.cases[0].value("fps") or 0.0, report.peers) if report.peers else ""
        return [("peers", beside), *own]
    if report.constraints:
        return [("most", plots.source_search(report.cases, report.constraints))]
    if not any(case.repeats for case in report.cases):
        return []
    return [("knee", plots.grid(report.cases)), ("tradeoff", plots.tradeoff(report.cases))]


def _peers(case: Case, report: Report) -> Table:
    ours = case.value("fps") or 0.0
    rows = [("Lookout", "", number(ours), _spread(case.values("fps")), "1", "boxes received by a subscriber")]
    rows += [
        (
            peer.name,
            peer.kind,
            number(median(peer.fps)) if peer.fps else "",
            _spread(peer.fps),
            f"{ours / median(peer.fps):.3g}" if peer.fps and median(peer.fps) else "",
            peer.note,
        )
        for peer in report.peers
    ]
    return Table("Interleaved", ("", "", "frames/s", "spread", "Lookout's multiple", ""), rows, notes=True)


def _tiles(case: Case) -> list[tuple[str, str, str]]:
    rows = []
    for name in ("fps", "p50", "p99", "dropped", "cpu", "joules", "gpu_memory"):
        shown = _percentiles(case, name) if name in ("p50", "p99") else number(case.value(name))
        rows.append((METRICS[name].title, shown, METRICS[name].unit))
    return [row for row in rows if row[1]]


def _metrics(case: Case) -> Table:
    rows = []
    for name, metric in METRICS.items():
        values = case.values(name)
        if values:
            middle = _percentiles(case, name) if name in ("p50", "p99") else number(median(values))
            figures = (middle, number(min(values)), number(max(values)))
            rows.append((metric.title, metric.unit, *figures, _spread(values)))
    return Table("Medians of the repeats", ("", "", "median", "lowest", "highest", "spread"), rows)


def _models(case: Case) -> Table:
    """Each of several models, medians of the repeats."""
    runs = _runs(case)
    rows = [
        (
            name,
            f"{row.model} on {row.backend} ({row.precision})",
            number(case.value("fps", name)),
            _spread(case.values("fps", name)),
            f"{case.value('dropped', name) or 0:.4%}",
            *(number(case.value(rank, name)) for rank in ("p50", "p99")),
        )
        for name, row in runs[0].models.items()
    ]
    return Table("Models", ("", "", "frames/s", "spread", "dropped", "p50, ms", "p99, ms"), rows)


def _frames(runs: Sequence[Run]) -> Table:
    """Fates and decoders of frames, all runs together."""
    total = {name: sum(getattr(run, name) for run in runs) for name in ("captured", "published", "unaccounted")}
    causes = {cause: sum(run.dropped.get(cause, 0) for run in runs) for cause in runs[0].dropped}
    rows = [(name, str(count)) for name, count in total.items()]
    rows += [(f"dropped: {cause}", str(count)) for cause, count in causes.items() if count]
    for name in runs[0].crops:
        rows.append((f"second stage, looks {name}", f"{sum(run.crops.get(name, 0) for run in runs):,}"))
    rows.append(("received, of published", f"{min(run.received_share for run in runs):.4%}"))
    rows.append(("sources with frames", f"{min(run.up for run in runs)} of {runs[0].sources}"))
    rows += [(f"decoded by {decoder}", f"{count} sources") for decoder, count in runs[0].decoders.items()]
    rows += [(f"not by the GPU: {reason}", f"{count} sources") for reason, count in runs[0].refusals.items()]
    return Table("Frames, all runs", ("", ""), rows)


def _latencies(case: Case) -> Table:
    runs = [run for run in _runs(case) if run.latency_ms]
    if not runs:
        return Table("", (), [])
    ranks, first = list(runs[0].latency_ms), "due to sent" if runs[0].loop == "open" else "captured to sent"
    stages = {first: [run.latency_ms for run in runs]}
    for name in runs[0].stages_ms:
        stages.setdefault(name, [run.stages_ms[name] for run in runs if name in run.stages_ms])
    rows = [(name, *(number(median(row[rank] for row in found)) for rank in ranks)) for name, found in stages.items()]
    never = _never(case)
    return Table(f"Latency, ms{f', of published frames; {never}' if never else ''}", ("", *ranks), rows)


def _limits(case: Case, report: Report) -> Table:
    if report.limits is None:
        return Table("", (), [])
    fps = case.value("fps") or 0.0
    named = {"the decoder alone": report.limits.decode_fps, "the engine alone": report.limits.engine_fps}
    rows = [(name, number(limit), f"{fps / limit:.3f}" if limit else "") for name, limit in named.items()]
    return Table("Limits of the hardware", ("", "frames/s", "Lookout's share"), rows)


def _gpu(runs: Sequence[Run], copies: int) -> Table:
    named = {
        "in use, %": [run.usage.gpu_percent for run in runs],
        "decoder, %": [run.usage.decoder_percent for run in runs],
        "memory controller, %": [run.usage.memory_controller_percent for run in runs],
        "clock, MHz": [run.usage.clock_mhz for run in runs],
        "power, W": [run.usage.power_w for run in runs],
        "highest, W": [run.usage.peak_power_w for run in runs],
        "W a source": [run.watts_per_source / copies if run.watts_per_source else None for run in runs],
        "interrupts/s on one core": [run.usage.gpu_interrupts_per_s for run in runs],
        "memory, MiB": [run.gpu_mib for run in runs],
        "memory planned, MiB": [run.planned_mib or None for run in runs],
    }
    return Table("GPU", ("", "median"), _medians(named))


def _cpu(runs: Sequence[Run]) -> Table:
    kinds = sorted({kind for run in runs for kind, spent in run.usage.cpu_us_by_thread.items() if spent})
    named: dict[str, list[float | None]] = {
        "CPU, ms/frame": [run.usage.cpu_ms_per_frame for run in runs],
        **{f"{kind}, us": [run.usage.cpu_us_by_thread.get(kind) for run in runs] for kind in kinds},
        "measuring thread, ms/frame": [run.usage.bench_cpu_ms_per_frame for run in runs],
        "threads": [run.usage.threads for run in runs],
        "context switches/s": [run.usage.context_switches_per_s for run in runs],
        "I/O wait, % of the machine": [run.usage.io_wait_percent for run in runs],
        "read, MiB/s": [run.usage.read_mib_per_s for run in runs],
        "RSS, MiB": [run.usage.rss_mib for run in runs],
        "open files": [run.usage.open_files for run in runs],
    }
    return Table("CPU, input and output", ("", "median"), _medians(named))


def _start(runs: Sequence[Run]) -> Table:
    named = {
        "daemon built, model opened": [run.start_up.daemon_s for run in runs],
        "lanes ready": [run.start_up.lanes_s for run in runs],
        "first detections of all sources": [run.start_up.first_detections_s for run in runs],
        **{f"of the model: {name}": [run.start_up.parts[name] for run in runs if name in run.start_up.parts]
           for name in runs[0].start_up.parts},
        "steady, after that": [run.warm_up.warm_s for run in runs],
    }  # fmt: skip
    rows = [(name, number(values[0]), number(median(values))) for name, values in named.items()]
    return Table("Start-up, s", ("", "first run", "median"), rows)


def _sources(run: Run) -> Table:
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
    return f"{many}{', '.join(load['clips'])}, {run.model} on {run.backend} ({run.precision}), {settings}"


def _loop(run: Run) -> str:
    if run.loop == "open":
        return "Open loop: frames come when due, and latency counts from then."
    return "Closed loop: a source's next frame comes when there is room; latency tells how many wait."


def _runs(case: Case) -> list[Run]:
    return [run for repeat in case.repeats for run in repeat]


def _same_but_batch(case: Case, other: Case) -> bool:
    return all(case.load[name] == other.load[name] for name in case.load if name not in ("batch", "max_batch"))


def _few(report: Report) -> list[str]:
    """Remarks; those on repeats only once."""
    rows = [remark for remark in report.remarks if "fewer than 5 repeats" not in remark]
    few = ["fewer than 5 repeats: the spread says little"] if len(rows) < len(report.remarks) else []
    return [*dict.fromkeys(rows), *few]


def _percentiles(case: Case, *names: str) -> str:
    """Percentiles, with the share of frames without latency, which were never published."""
    values, never = " / ".join(number(case.value(name)) for name in names), _never(case)
    return f"{values} of published; {never}" if never else values


def _never(case: Case) -> str:
    dropped = case.value("dropped")
    return f"{number(100 * dropped)} % never published" if dropped else ""


def _narrow(table: Table) -> Table:
    """The table without empty columns."""
    kept = [place for place in range(len(table.head)) if any(row[place] for row in table.rows)]
    rows = [[row[place] for place in kept] for row in table.rows]
    return Table(table.title, [table.head[place] for place in kept], rows)


def _medians(named: Mapping[str, Sequence[float | None]]) -> list[tuple[str, str]]:
    """Medians of known values."""
    known = {name: [value for value in values if value is not None] for name, values in named.items()}
    return [(name, number(median(values))) for name, values in known.items() if values]


def _spread(values: Sequence[float]) -> str:
    """Half the range over the median."""
    middle = median(values) if values else 0.0
    return f"± {100 * (max(values) - min(values)) / 2 / middle:.1f} %" if len(values) > 1 and middle else ""
