"""Claims of one process that works alone: a journal beside the results remembers attempts and failures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from daemon.batch.store import BatchView, ModelFacts, Outcome, StoreError

_Kind = Literal["begun", "claimed", "released", "failed", "reopened"]
_Entry = tuple[_Kind, str, str]  # kind, the clip's name (of "begun", the batch), and a reason


class LocalClipStore:
    """Implements `ClipStore`. The folder of results is locked, so nobody else has claims.

    Args:
        journal: file; created if it is not there, begun anew if it is of another batch.
        batch: id.
        names: of all clips, by number.

    Raises:
        StoreError: the journal cannot be written.
    """

    def __init__(self, journal: Path, batch: str, names: Sequence[str]) -> None:
        self._path, self._names = journal, names
        self._numbers: Mapping[str, int] = {name: number for number, name in enumerate(names)}
        self._outcomes: dict[int, Outcome] = {}
        self._attempts: Counter[int] = Counter()
        self._claimed: dict[int, str] = {}
        entries = _entries(journal)
        begins_anew = not entries or entries[0][:2] != ("begun", batch)
        try:
            self._file = journal.open("wb" if begins_anew else "ab", buffering=0)
        except OSError as error:
            raise StoreError(f"{journal} cannot be written: {error.strerror}") from error
        if begins_anew:
            self._append("begun", batch)
        else:
            self._file.write(b"\n")  # the last line may be cut short
            for kind, name, reason in entries[1:]:
                self._apply(kind, self._numbers.get(name), reason)

    def agree(self, facts: Mapping[str, ModelFacts]) -> None:
        """There is nobody else."""

    def view(self) -> BatchView:
        return BatchView(dict(self._outcomes), dict(self._claimed), dict(self._attempts))

    def claim(self, clips: Sequence[int]) -> dict[int, int]:
        free = [clip for clip in clips if clip not in self._claimed and clip not in self._outcomes]
        for clip in free:
            self._note("claimed", clip)
            self._claimed[clip] = "here"
        return {clip: self._attempts[clip] for clip in free}

    def holds(self, clip: int) -> bool:
        return clip in self._claimed

    def finish(self, clip: int, outcome: Outcome) -> None:
        if outcome.state == "failed":
            self._note("failed", clip, outcome.reason or "")
        self._outcomes[clip] = outcome  # a result says by itself that a clip is done
        self._claimed.pop(clip, None)

    def retry(self, clip: int) -> None:
        self._claimed.pop(clip, None)

    def release(self, clips: Sequence[int]) -> None:
        for clip in clips:
            if self._claimed.pop(clip, None):
                self._note("released", clip)

    def reopen(self, clips: Sequence[int]) -> None:
        for clip in clips:
            self._note("reopened", clip)

    def close(self) -> None:
        with suppress(StoreError):
            self.release([*self._claimed])
        with suppress(OSError):
            self._file.close()

    def _note(self, kind: _Kind, clip: int, reason: str = "") -> None:
        self._append(kind, self._names[clip], reason)
        self._apply(kind, clip, reason)

    def _apply(self, kind: _Kind, clip: int | None, reason: str) -> None:
        if clip is None:
            return
        if kind == "claimed":
            self._attempts[clip] += 1
        elif kind == "released":
            self._attempts[clip] -= 1
        elif kind == "failed":
            self._outcomes[clip] = Outcome(state="failed", reason=reason)
        elif kind == "reopened":
            self._attempts.pop(clip, None)
            self._outcomes.pop(clip, None)

    def _append(self, kind: _Kind, name: str, reason: str = "") -> None:
        try:
            os.write(self._file.fileno(), msgspec.json.encode((kind, name, reason)) + b"\n")
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error.strerror}") from error


def _entries(journal: Path) -> list[_Entry]:
    try:
        lines = journal.read_bytes().splitlines()
    except OSError:
        return []
    found: list[_Entry] = []
    for line in lines:
        with suppress(msgspec.MsgspecError):  # a line that is cut short
            found.append(msgspec.json.decode(line, type=_Entry))
    return found
