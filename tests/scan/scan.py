"""The comparison of results with what is to come of recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.batch.archive import run
from tests.scan.recordings import RECORDINGS, Recording


@dataclass(frozen=True)
class Row:
    """One recording.

    Attributes:
        footer: of its result; None if it has none.
        faults: what is not as it is to be.
    """

    name: str
    expected: Recording
    footer: dict[str, Any] | None
    faults: list[str]

    def __str__(self) -> str:
        footer = self.footer or {}
        dropped = {cause: count for cause, count in footer.get("dropped", {}).items() if count}
        facts = f"analysed {footer.get('analysed')} dropped {dropped} passed over {footer.get('passed_over')}"
        whole = "complete" if footer.get("complete") else footer.get("ended")
        verdict = "; ".join(self.faults) or "as it is to be"
        return f"{self.name:45} shown {self.expected.shown:4}  {facts}, {whole}: {verdict}"


def scan(folder: Path, names: Sequence[str]) -> Iterator[Row]:
    """Make recordings, analyse all in one batch, and compare."""
    made, clips = folder / "made", folder / "clips"
    made.mkdir(parents=True, exist_ok=True)
    clips.mkdir(exist_ok=True)
    recordings = {name: RECORDINGS[name](made) for name in names}
    for name, found in recordings.items():
        link = clips / f"{name}{found.path.suffix}"
        if not link.exists():
            link.hardlink_to(found.path)
    config = folder / "batch.yaml"
    config.write_text(yaml.safe_dump({"sources": [], "model": {"path": "none", "backend": "fake"}}))
    code, words = run(*(clips / f"{name}{found.path.suffix}" for name, found in recordings.items()),
                      "--out", folder / "results", "-c", config)  # fmt: skip
    assert code in (0, 1), words
    for name, found in recordings.items():
        result = folder / "results" / f"{name}{found.path.suffix}.jsonl"
        lines = result.read_bytes().splitlines() if result.exists() else []
        footer = msgspec.json.decode(lines[-1]) if lines else None
        times = [msgspec.json.decode(line)["pts"] for line in lines[1:-1]]
        yield Row(name, found, footer, [*_faults(found, footer, times)])


def _faults(expected: Recording, footer: dict[str, Any] | None, times: Sequence[int]) -> Iterator[str]:
    if footer is None:
        yield "no result"
        return
    dropped = footer["dropped"]
    if footer["analysed"] + dropped["corrupt"] != expected.shown:
        yield f"{expected.shown} are shown"
    if expected.undecodable is not None and dropped["decode_error"] != expected.undecodable:
        yield f"{dropped['decode_error']} pictures could not be decoded"
    if footer["analysed"] + sum(dropped.values()) != footer["frames"]:
        yield "the sum is wrong"
    if footer["complete"] != expected.complete:
        yield "complete" if footer["complete"] else f"not complete: {footer['ended']}"
    if expected.ended and expected.ended not in footer["ended"]:
        yield f"it ended: {footer['ended']}"
    if footer["passed_over"] != expected.passed_over:
        yield f"{expected.passed_over} are to be passed over"
    if any(after < before for before, after in pairwise(times)):
        yield "times go back"
    if expected.codecs and footer["format"]["codec"] != expected.codecs[-1]:
        yield f"its codec is {footer['format']['codec']}"
