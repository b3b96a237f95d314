"""The comparison of results with what is to come of recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import yaml

from tests.batch.archive import run
from tests.scan.recordings import RECORDINGS, Recording
from tests.support.playing import Played

PLAYED = "played to its end"


@dataclass(frozen=True)
class Result:
    """What came of a recording; see `daemon.batch.records.Footer`."""

    analysed: int
    dropped: Mapping[str, int]
    complete: bool
    ended: str
    passed_over: Mapping[str, int]
    times: Sequence[int | None]
    codec: str | None


@dataclass(frozen=True)
class Row:
    """One recording.

    Attributes:
        result: None if there is none.
    """

    name: str
    expected: Recording
    result: Result | None

    @property
    def faults(self) -> list[str]:
        """Each difference from what is to come of it."""
        return [*faults(self.expected, self.result)] if self.result else ["no result"]

    def __str__(self) -> str:
        facts = f"{self.name:43} shown {self.expected.shown:4}"
        if result := self.result:
            dropped = " ".join(f"{cause} {count}" for cause, count in result.dropped.items() if count)
            passed = " ".join(f"{kind} {count}" for kind, count in result.passed_over.items())
            ended = "complete" if result.complete else result.ended
            facts += f"  analysed {result.analysed:4}  dropped: {dropped or '0'}  passed over: {passed or '0'}  {ended}"
        return f"{facts}: {'; '.join(self.faults) or 'right'}"


def scan(folder: Path, names: Sequence[str], keys: Mapping[str, object] | None = None) -> Iterator[Row]:
    """Make recordings, analyse all in one batch, and compare.

    Args:
        keys: of each recording's source.
    """
    made, clips = folder / "made", folder / "clips"
    made.mkdir(parents=True, exist_ok=True)
    clips.mkdir(exist_ok=True)
    found = {name: RECORDINGS[name](made) for name in names}
    files = {name: clips / f"{name}{recording.path.suffix}" for name, recording in found.items()}
    for name, path in files.items():
        path.unlink(missing_ok=True)
        path.hardlink_to(found[name].path)
    config = {"sources": [], "model": {"path": "none", "backend": "fake"}, "batch": {"source": dict(keys or {})}}
    (folder / "batch.yaml").write_text(yaml.safe_dump(config))
    code, words = run(*files.values(), "--out", folder / "results", "-c", folder / "batch.yaml")
    assert code in (0, 1), words
    for name, path in files.items():
        yield Row(name, found[name], _read(folder / "results" / f"{path.name}.jsonl"))


def of_played(played: Played) -> Result:
    damaged = played.dropped["decode_error"] or played.dropped["corrupt"] or played.marked
    return Result(
        analysed=played.pictures,
        dropped=played.dropped,
        complete=played.reason is None and not damaged,
        ended=played.reason or PLAYED,
        passed_over=played.passed_over,
        times=played.times,
        codec=played.codecs[-1] if played.formats else None,
    )


def faults(expected: Recording, result: Result) -> Iterator[str]:
    corrupt, undecodable = result.dropped.get("corrupt", 0), result.dropped.get("decode_error", 0)
    if result.analysed + corrupt != expected.shown:
        yield f"{result.analysed} and {corrupt} of {expected.shown} are shown"
    if expected.undecodable is not None and undecodable != expected.undecodable:
        yield f"{undecodable} pictures could not be decoded"
    if result.complete != expected.complete:
        yield "it is complete" if result.complete else f"it is not complete: {result.ended}"
    if expected.ended not in result.ended:
        yield f"it ended: {result.ended}"
    if dict(result.passed_over) != expected.passed_over:
        yield f"{dict(result.passed_over)} are passed over, and not {expected.passed_over}"
    times = [time for time in result.times if time is not None]
    if len(times) != result.analysed or any(after < before for before, after in pairwise(times)):
        yield "times go back, or there is none"
    if expected.codecs and result.codec != expected.codecs[-1]:
        yield f"its last codec is {result.codec}"


def _read(path: Path) -> Result | None:
    if not path.exists():
        return None
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    footer = lines[-1]
    assert footer["analysed"] + sum(footer["dropped"].values()) == footer["frames"]
    return Result(
        footer["analysed"], footer["dropped"], footer["complete"], footer["ended"], footer["passed_over"],
        [line["pts"] for line in lines[1:-1]], footer["format"]["codec"],
    )  # fmt: skip
