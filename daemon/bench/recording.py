"""A file with the fate of every frame: JSON lines, or a Parquet table.

A published frame has the times and boxes of its message, a dropped one its cause. `source` and `seq` identify a frame,
`pts` a moment of a recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from daemon.errors import LookoutError
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.ledger import Rows
from lookout.messages import Detections, Latency


class Box(msgspec.Struct, frozen=True):
    """See `lookout.messages.Detection`."""

    class_id: int
    label: str
    confidence: float
    box: tuple[float, float, float, float]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One frame, of several models once for each.

    Attributes:
        dropped: the cause; None if published.
        model: the name of one of several models.
    """

    source: str
    seq: int
    pts: int | None = None
    captured_at: int
    dropped: str | None = None
    latency: Latency | None = None
    boxes: list[Box] = []
    model: str | None = None


_ENCODER = msgspec.json.Encoder()


def line_of(message: Detections) -> bytes:
    """The line of a published frame."""
    boxes = [Box(found.class_id, found.label, found.confidence, found.box) for found in message.detections]
    row = Row(
        source=message.source,
        seq=message.seq,
        pts=message.pts,
        captured_at=message.captured_at,
        latency=message.latency,
        boxes=boxes,
        model=None if message.model.id is msgspec.UNSET else message.model.id,
    )
    return _ENCODER.encode(row) + b"\n"


def write_dropped(path: Path, rows: Rows, accounts: Sequence[tuple[str, str]]) -> None:
    """Append the dropped frames; convert to Parquet if the file's name says so.

    Args:
        accounts: source and model of each of the rows' numbers; an empty name where there is one model.
    """
    with lines_file(path).open("ab") as file:
        for row in rows[rows["dropped"] != 0]:
            cause = CAUSES[int(row["dropped"]) - 1]
            source, model = accounts[int(row["source"])]
            lost = Row(
                source=source,
                seq=int(row["seq"]),
                captured_at=int(row["captured_at"]),
                dropped=cause,
                model=model or None,
            )
            file.write(_ENCODER.encode(lost) + b"\n")
    if path.suffix == ".parquet":
        _to_parquet(lines_file(path), path)


def check_name(path: Path) -> None:
    """Check the name of a recording before a run.

    Raises:
        LookoutError: its format is unknown or unavailable.
    """
    if path.suffix not in (".jsonl", ".parquet"):
        raise LookoutError(f"--frames-out {path}: its name must end in .jsonl or .parquet")
    if path.suffix == ".parquet":
        _pyarrow()


def read(path: Path) -> Iterator[Row]:
    """The frames of a file.

    Raises:
        LookoutError: it cannot be read, or is not a recording.
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
    """The file of JSON lines during a run."""
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
        raise LookoutError("Parquet needs pyarrow: pip install 'lookoutd[bench]', or use .jsonl") from error
    return pyarrow
