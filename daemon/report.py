"""Figures for the terminal and for files."""

from __future__ import annotations

import dataclasses
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
    from daemon.bench.efficiency import Efficiency
    from daemon.bench.overhead import Overhead
    from daemon.bench.replay import Replayed


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


def replayed(result: Replayed) -> None:
    """Of `lookout bench replay`."""
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
