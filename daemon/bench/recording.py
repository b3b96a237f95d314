"""What became of every frame, as a file: one JSON object a line, or a Parquet table of the same.

A frame that was published has what its message says, times and boxes; one that was dropped has its cause. Sources are
told apart by `source`, frames of a source by `seq`, and moments of a recording by `pts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from daemon.errors import LookoutError
from daemon.messages import Detections, Latency
from daemon.pipeline.ledger import CAUSES, Rows


class Box(msgspec.Struct, frozen=True):
    """See `daemon.messages.Detection`."""

    class_id: int
    label: str
    confidence: float
    box: tuple[float, float, float, float]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One frame.

    Attributes:
        dropped: the cause; None if it was published.
    """

    source: str
    seq: int
    pts: int | None = None
    captured_at: int
    dropped: str | None = None
    latency: Latency | None = None
    boxes: list[Box] = []


_ENCODER = msgspec.json.Encoder()


def line_of(message: Detections) -> bytes:
    """Of a published frame."""
    boxes = [Box(found.class_id, found.label, found.confidence, found.box) for found in message.detections]
    row = Row(
        source=message.source,
        seq=message.seq,
        pts=message.pts,
        captured_at=message.captured_at,
        latency=message.latency,
        boxes=boxes,
    )
    return _ENCODER.encode(row) + b"\n"


def write_lost(path: Path, rows: Rows, sources: tuple[str, ...]) -> None:
    """Add the frames that were dropped; and turn the whole into Parquet if the file's name asks for it."""
    with lines_file(path).open("ab") as file:
        for row in rows[rows["dropped"] != 0]:
            cause = CAUSES[int(row["dropped"]) - 1]
            lost = Row(
                source=sources[int(row["source"])],
                seq=int(row["seq"]),
                captured_at=int(row["captured_at"]),
                dropped=cause,
            )
            file.write(_ENCODER.encode(lost) + b"\n")
    if path.suffix == ".parquet":
        _to_parquet(lines_file(path), path)


def check_name(path: Path) -> None:
    """Before a run that is to be recorded.

    Raises:
        LookoutError: files of that name cannot be made.
    """
    if path.suffix not in (".jsonl", ".parquet"):
        raise LookoutError(f"--frames-out {path}: its name must end in .jsonl or .parquet")
    if path.suffix == ".parquet":
        _pyarrow()


def read(path: Path) -> Iterator[Row]:
    """The frames of a file.

    Raises:
        LookoutError: it cannot be read, or is something else.
    """
    try:
        if path.suffix == ".parquet":
            for row in _pyarrow().parquet.read_table(path).to_pylist():
                yield msgspec.convert(row, Row)
            return
        decoder = msgspec.json.Decoder(Row)
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise LookoutError(f"{path}, line {number}: not a recorded frame: {error}") from error
    except OSError as error:
        raise LookoutError(f"{path} cannot be read: {error}") from error
    except msgspec.ValidationError as error:
        raise LookoutError(f"{path}: not recorded frames: {error}") from error


def lines_file(path: Path) -> Path:
    """Where lines go while a run goes on."""
    return path if path.suffix == ".jsonl" else path.with_suffix(".parquet.part")


def _to_parquet(lines: Path, path: Path) -> None:
    arrow = _pyarrow()
    table = arrow.Table.from_pylist([msgspec.to_builtins(row) for row in _all(lines)])
    arrow.parquet.write_table(table, path)
    lines.unlink()


def _all(lines: Path) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(Row)
    with lines.open("rb") as file:
        for line in file:
            yield decoder.decode(line)


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise LookoutError("Parquet needs pyarrow: pip install '.[bench]', or use .jsonl") from error
    return pyarrow
