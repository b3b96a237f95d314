"""Figures for the terminal and for files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table

from daemon.errors import LookoutError
from detectors.port import ModelInfo

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from calibration.evaluate import Evaluation
    from daemon.bench.churn import Churned
    from daemon.bench.compare import Change
    from daemon.bench.decode import DecodeRates
    from daemon.bench.efficiency import Efficiency
    from daemon.bench.engine import EngineRate
    from daemon.bench.once import Played
    from daemon.bench.overhead import Overhead
    from daemon.bench.peers.loop import LoopRate
    from daemon.bench.result import Case
    from daemon.bench.streams import Streams
    from daemon.bench.verify import Verified


def write_json(path: Path | None, figures: DataclassInstance) -> None:
    """Write a dataclass of figures, if a file was asked for.

    Raises:
        LookoutError: the file cannot be written.
    """
    if path is None:
        return
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(dataclasses.asdict(figures)), indent=2) + b"\n")
    except OSError as error:
        raise LookoutError(f"--json {path} cannot be written: {error.strerror}") from error


def played(result: Played) -> None:
    """Of `lookout bench once`."""
    console = Console()
    causes = ", ".join(f"{count} {cause}" for cause, count in result.dropped_by_cause.items() if count)
    _pairs(
        console,
        f"Replay, {result.mode}",
        [
            ("model", f"{result.model} on {result.backend}"),
            ("sources", str(result.sources)),
            ("captured", str(result.captured)),
            ("published", str(result.published)),
            ("dropped", f"{result.dropped}" + (f" ({causes})" if causes else "")),
            ("seconds", f"{result.seconds:.2f}"),
            ("frames/s", f"{result.fps:.1f}"),
            ("CPU", f"{result.cpu_ms_per_frame:.2f} ms a frame"),
        ],
    )
    table = Table("stage, ms", title="Latency", title_justify="left")
    for name in ("p50", "p95", "p99", "max"):
        table.add_column(name, justify="right")
    for stage, values in (result.stages_ms or {}).items():
        table.add_row(
            "total, captured to sent" if stage == "total" else stage, *(f"{value:.2f}" for value in values.values())
        )
    console.print(table)


def efficient(result: Efficiency) -> None:
    """Of `lookout bench efficiency`."""
    _pairs(
        Console(),
        f"Efficiency, median of {result.rounds} rounds",
        [
            ("Lookout, lossless replay", f"{result.lookout_fps:.1f} frames/s"),
            ("bare: letterbox and onnxruntime, decoded frames", f"{result.bare_fps:.1f} frames/s"),
            ("onnxruntime alone", f"{result.infer_only_fps:.1f} frames/s"),
            ("Lookout / bare", f"{result.ratio:.3f}"),
            ("Lookout / onnxruntime alone", f"{result.ratio_to_infer_only:.3f}"),
        ],
    )


def overheads(result: Overhead) -> None:
    """Of `lookout bench overhead`."""
    _pairs(
        Console(),
        f"{result.sources} sources, {result.published} frames published, {result.received} received",
        [
            ("rate of one process", f"{result.fps:.0f} frames/s"),
            ("a frame, of the process's CPU", f"{result.cpu_us_per_frame:.1f} us"),
            ("a frame, of the clock", f"{result.wall_us_per_frame:.1f} us"),
        ],
    )


def evaluation(result: Evaluation, model: ModelInfo) -> None:
    """Of `lookout evaluate`."""
    _pairs(
        Console(),
        f"{model.name} {model.digest} on {model.backend}, {model.precision}",
        [
            ("AP 0.50:0.95", f"{result.ap:.4f}"),
            ("AP 0.50", f"{result.ap50:.4f}"),
            ("AP 0.75", f"{result.ap75:.4f}"),
            ("AP small / medium / large", f"{result.ap_small:.4f} / {result.ap_medium:.4f} / {result.ap_large:.4f}"),
            ("photos, boxes", f"{result.images}, {result.boxes}"),
        ],
    )


def _pairs(console: Console, title: str, rows: list[tuple[str, str]]) -> None:
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)


def decoded(result: DecodeRates) -> None:
    """Of `lookout bench decode`."""
    title = f"{result.clip}, {result.rates[0].codec} {result.size[0]}x{result.size[1]}, decoded and nothing else"
    table = Table("sessions", "processes", "frames/s", "decoder", "CPU ms a frame", "MiB a session", "start, s",
                  title=title, title_justify="left")  # fmt: skip
    for rate in result.rates:
        table.add_row(
            str(rate.sessions),
            str(rate.processes),
            f"{rate.fps:.0f}",
            _unless_none(rate.decoder_percent, "{:.0f} %"),
            f"{rate.cpu_ms_per_frame:.3f}",
            _unless_none(rate.session_mib, "{:.1f}"),
            f"{rate.start_s:.1f}",
        )
    Console().print(table)


def engines(result: EngineRate) -> None:
    """Of `lookout bench engine`."""
    _pairs(
        Console(),
        "The engine alone",
        [
            ("model", f"{result.model}, {result.precision}"),
            ("batch", str(result.batch)),
            ("images/s", f"{result.images_per_s:.0f} ({result.least:.0f} to {result.most:.0f})"),
        ],
    )


def streamed(result: Streams) -> None:
    """Of `lookout bench streams`."""
    dropped = ", ".join(f"{count} {cause}" for cause, count in result.dropped.items() if count)
    least, middle, most = result.source_fps
    stages = result.stages_ms.items()
    usage = result.usage
    _pairs(
        Console(),
        f"{result.sources} sources, {result.loop} loop, {result.seconds:.1f} s",
        [
            ("model", f"{result.model} on {result.backend}, {result.precision}"),
            ("up", f"{result.up}, decoded by {result.decoders}, after {result.warmth.start_s:.1f} s"),
            ("rate", f"{'steady' if result.warmth.steady else 'not steady'} after {result.warmth.warm_s:.1f} s more"),
            *(("not by the GPU", f"{count}: {reason}") for reason, count in result.refusals.items()),
            ("frames/s", f"{result.fps:.1f}" + _beside(result)),
            ("of a source", f"lowest {least:.2f}, median {middle:.2f}, highest {most:.2f}"),
            ("captured", f"{result.captured}, published {result.published}, unaccounted {result.unaccounted}"),
            ("received", f"{result.received_share:.4%} of what was published"),
            ("dropped", f"{result.dropped_share:.4%}" + (f" ({dropped})" if dropped else "")),
            ("latency, ms", ", ".join(f"{name} {value:.2f}" for name, value in result.latency_ms.items())),
            ("worst second", f"p99 {result.worst_second_ms:.2f} ms"),
            ("stages, p50/p99", ", ".join(f"{name} {row['p50']:.2f}/{row['p99']:.2f}" for name, row in stages)),
            ("CPU", f"{usage.cpu_ms_per_frame:.3f} ms a frame, {usage.threads} threads, {usage.rss_mib:.0f} MiB"),
            ("by thread, us", ", ".join(f"{kind} {spent:.0f}" for kind, spent in usage.cpu_us_by_thread.items())),
            ("GPU", f"{_unless_none(usage.gpu_percent, '{:.0f} %')}, decoder "
                    f"{_unless_none(usage.decoder_percent, '{:.0f} %')}, {_unless_none(usage.power_w, '{:.0f} W')}, "
                    f"{_unless_none(usage.gpu_interrupts_per_s, '{:.0f} interrupts/s on one core')}"),
            ("GPU memory", f"{_unless_none(result.gpu_mib, '{:.0f} MiB')}, planned {result.planned_mib:.0f} MiB"),
        ],
    )  # fmt: skip


def _beside(result: Streams) -> str:
    """The limits, where they were measured."""
    if result.limits is None:
        return ""
    decoder, engine = result.limits.decode_fps, result.limits.engine_fps
    return (
        f"; the decoder alone {decoder:.1f} ({result.fps / decoder:.3f}), "
        f"the engine alone {engine:.1f} ({result.fps / engine:.3f})"
    )


def trial(case: Case) -> None:
    """One number of sources of `lookout bench capacity`, as soon as it is known."""
    figures = {name: case.value(name) or 0.0 for name in ("fps", "dropped", "p50", "p99")}
    said(
        f"{case.load['sources']} sources: {figures['fps']:.1f} frames/s, {100 * figures['dropped']:.3f} % dropped, "
        f"p50 {figures['p50']:.2f}, p99 {figures['p99']:.2f} ms: {'held' if case.kept else 'not held'}"
    )


def looped(result: LoopRate) -> None:
    """Of `lookout bench loop`."""
    said(f"{result.fps:.1f} frames/s of {result.sources} sources together")


def measured(cases: Sequence[Case]) -> None:
    """Medians of the repeats of each case."""
    shown = {"fps": "{:,.1f}", "p50": "{:.1f}", "p99": "{:.1f}", "dropped": "{:.2%}", "cpu": "{:.2f}"}
    table = Table("sources", "lanes", "batches", title="Medians", title_justify="left")
    for title in ("frames/s", "p50 ms", "p99 ms", "dropped", "CPU ms a frame"):
        table.add_column(title, justify="right")
    for case in cases:
        load, figures = case.load, [_unless_none(case.value(name), form) for name, form in shown.items()]
        table.add_row(str(load["sources"]), str(load["lanes"]), str(load["batch"] or load["max_batch"]), *figures)
    Console().print(table)


def compared(changes: list[Change]) -> None:
    """Of `lookout bench compare`."""
    table = Table("sources", "lanes", "metric", "old", "new", "new / old", "noise")
    table.add_column("", no_wrap=True)
    colours = {"better": "green", "worse": "red", "unknown": "yellow"}
    for change in changes:
        table.add_row(
            str(change.case["sources"]),
            str(change.case["lanes"]),
            change.metric,
            f"{change.old:.5g}",
            f"{change.new:.5g}",
            _unless_none(change.ratio, "{:.4f}"),
            f"{change.noise:.1%}",
            change.verdict,
            style=colours.get(change.verdict),
        )
    Console().print(table)


def verified(result: Verified) -> None:
    """Of `lookout bench verify`."""
    _pairs(
        Console(),
        f"{result.share:.4%} of the boxes agree",
        [
            ("frames of both", f"{result.frames}; only the first has {result.only_a}, only the second {result.only_b}"),
            ("boxes", f"{result.boxes_a} and {result.boxes_b}, of which {result.matched} match"),
            ("of those that match", f"mean IoU {result.mean_iou:.4f}, confidence {result.confidence_shift:+.4f}"),
            *(("differs", frame) for frame in result.differing),
        ],
    )


def said(line: str) -> None:
    """A line by itself."""
    Console().print(line, highlight=False, markup=False, soft_wrap=True)


def churned(result: Churned) -> None:
    """Of `lookout bench churn`."""
    title = f"{result.drops} drops of {result.victims} among {result.sources} sources, {result.seconds:.0f} s"
    table = Table("", "before", "after", title=title, title_justify="left")
    first, last = result.settled, result.ended
    table.add_row("drops so far", str(first.drops), str(last.drops))
    table.add_row("GPU memory, MiB", _unless_none(first.gpu_mib, "{:.1f}"), _unless_none(last.gpu_mib, "{:.1f}"))
    table.add_row("RSS, MiB", f"{first.rss_mib:.1f}", f"{last.rss_mib:.1f}")
    table.add_row("threads", str(first.threads), str(last.threads))
    table.add_row("open files", str(first.open_files), str(last.open_files))
    table.add_row(
        "the others' p99, ms (quiet, meanwhile)", f"{result.quiet_p99_ms:.2f}", f"{result.churning_p99_ms:.2f}"
    )
    table.add_row("slowest other's frames/s", f"{result.quiet_fps:.2f}", f"{result.churning_fps:.2f}")
    Console().print(table)


def _unless_none(value: float | None, form: str) -> str:
    return "not told" if value is None else form.format(value)
