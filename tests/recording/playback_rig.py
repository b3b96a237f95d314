"""Stores with recordings, and their API without a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from daemon.clock import Clock, SystemClock
from daemon.config.http import HttpConfig, TokenConfig
from daemon.playback.opened import PlayPlace
from daemon.playback.server import playback
from daemon.recording.clips import ClaimedTime
from daemon.recording.index import NAME, Index
from daemon.recording.recording_file import RecordingFile
from daemon.recording.records import FileFacts, Gap
from daemon.recording.scan import scan
from daemon.recording.store import Store
from daemon.redact import Secret
from tests.support.asgi import InProcess, event_loop
from tests.support.recorded import BEGIN, SECOND, append, clip, groups, head_of, later, record

VIEW, OPERATE = "a-token-that-may-view-only", "a-token-that-may-operate"
HTTP = HttpConfig(
    tokens=[TokenConfig("screen", "view", Secret(VIEW)), TokenConfig("guard", "operate", Secret(OPERATE))]
)


class Recorded:
    """A store with pieces of a source `door`, the last of which is being written.

    Files of three seconds begin at 0, 10 and 13 s; the open one has one second from 20 s. `turned` has a file that is
    to be turned by a quarter. An event wants 11 to 14 s.
    """

    def __init__(self, folder: Path, clips: Path) -> None:
        self.path = folder
        self.store = Store.init(folder)
        self.index = Index(self.store)
        self.clip = clip(clips, "h264-b")
        self.files: list[FileFacts] = []
        for at in (0, 10, 13):
            before = self.files[-1] if self.files else None
            self.add(record(self.store, self.clip, at=at * SECOND, before=before, claimed=at == 10))
        turned = replace(self.clip, stream=msgspec.structs.replace(self.clip.stream, turns=1))
        self.turned = record(self.store, turned, source="turned")
        self.index.add_file(self.turned)
        self.open = self._begun(20)
        self.index.add_file(self.open.facts, self.open.head.gaps)
        self.begin = self.files[0].begin
        self.first = scan(self.store, self.files[0].path)
        self.index.put_claims([ClaimedTime("door", "e1", self.begin + 11 * SECOND, self.begin + 14 * SECOND, "ready")])

    def add(self, facts: FileFacts) -> None:
        self.files.append(facts)
        self.index.add_file(facts, scan(self.store, facts.path).head.gaps)

    def _begun(self, at: int) -> RecordingFile:
        """A file with one fragment, which is being written."""
        samples, last = later(self.clip.samples, at * SECOND), self.files[-1]
        gap = Gap(last.end, BEGIN + samples[0].dts, "no_key", "of a test")
        head = head_of(self.store, self.clip.stream, samples[0], since=last.since, covered_until=gap.begin, gaps=[gap])
        file = RecordingFile.create(self.store, head, samples[0].data)
        append(file, next(groups(samples)), 0)
        return file

    def at(self, seconds: float) -> int:
        """UTC ns."""
        return self.begin + round(seconds * SECOND)

    def close(self) -> None:
        self.open.detach()
        self.index.close()
        self.store.close()


@contextmanager
def served(
    places: Sequence[PlayPlace], token: str | None = VIEW, patience_s: float = 60.0, clock: Clock | None = None
) -> Iterator[InProcess]:
    """A client of the API."""
    with event_loop() as loop:
        yield InProcess(playback(HTTP, places, clock or SystemClock(), patience_s), loop, token)


@contextmanager
def recorded(folder: Path, clips: Path) -> Iterator[Recorded]:
    with closing(Recorded(folder, clips)) as found:
        yield found


@contextmanager
def locked_index(folder: Path) -> Iterator[Callable[[], None]]:
    """An index that keeps all that open it waiting, for some seconds or until what comes is called."""
    with closing(sqlite3.connect(folder / NAME, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        yield db.close
