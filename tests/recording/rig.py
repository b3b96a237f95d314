"""A camera, its ring and its recorder, in a time that tests advance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemon.recording.absence import Absence
from daemon.recording.clips import Claim, Clip
from daemon.recording.index import IndexReader
from daemon.recording.recorder import Recorder, StorePlace
from daemon.recording.records import Gap
from daemon.recording.retention import Rules
from daemon.recording.ring import Ring, RingWriter
from daemon.recording.source_recorder import Account, Settings, SourceRecorder
from daemon.recording.store import Store
from daemon.recording.timeline import Span
from daemon.sources.port import PacketInfo
from tests.support import recorded
from tests.support.clock import ManualClock
from tests.support.daemon import PATIENCE_S

SECOND = 1_000_000_000
FPS = 15
EVERYTHING = Settings(continuous=True, pre=5 * SECOND, post=5 * SECOND, longest=300 * SECOND)
EVENTS = Settings(continuous=False, pre=2 * SECOND, post=2 * SECOND, longest=60 * SECOND)
DAY = Rules(continuous_ns=86_400 * SECOND, events_ns=86_400 * SECOND)


@dataclass
class Rig:
    """Attributes:
    key_each: one of so many pictures is a key picture; None for those of the clip.
    put: packets that the ring took.
    told: clips, with whether they were over.
    """

    folder: Path
    clip: recorded.Clip
    settings: Settings = EVERYTHING
    rules: Rules = DAY
    ring_bytes: int = 4 << 20
    key_each: int | None = None
    source: str = "door"
    clock: ManualClock = field(default_factory=ManualClock)
    put: int = 0
    told: list[tuple[str, bool, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session, self._next = "aaaa", 0
        self._due = 0.0
        self.begin_daemon()

    def begin_daemon(self) -> None:
        """Another daemon, which has a ring of its own."""
        self.ring = Ring("test", self.ring_bytes)
        self.writer = RingWriter(self.ring.fd)
        self.start()

    def begin_ring(self) -> None:
        """The source is added again to the daemon that is there."""
        self.ring = Ring("test", self.ring_bytes)
        self.writer = RingWriter(self.ring.fd)
        self.recorder.record(self.source, self.settings, self.ring.fd)

    def start(self, down_since: int | None = None) -> None:
        """Another process records from here on."""
        self._start(down_since)
        self.recorder.record(self.source, self.settings, self.ring.fd)

    def start_without(self, at: int | None = None, *, in_fleet: bool = False, is_there: bool = False) -> None:
        """Another process records, and not this camera.

        Args:
            at: UTC ns, when its daemon began; None for now.
            is_there: the daemon has the camera.
        """
        self._start(None)
        there = frozenset({"door"} if is_there else ())
        self.recorder.explain(Absence(at or self.clock.utc_ns(), frozenset(), there, in_fleet))
        self.recorder.turn()

    def _start(self, down_since: int | None) -> None:
        place = StorePlace(str(self.folder), False, self.rules, None, down_since)
        self.recorder = Recorder(place, "instance", self.clock, self._tell, self.clock.monotonic_ns)

    def connect(self, session: str, first: int = 0) -> None:
        """The camera connects anew, and begins with some picture of its clip."""
        self.session, self._next = session, first

    def send(self, seconds: float, *, turns: bool = True, skip: bool = False) -> None:
        """Video, as time goes by.

        Args:
            turns: the recorder works meanwhile.
            skip: nothing comes; the camera's clock goes on.
        """
        for _ in range(round(seconds * FPS)):
            if not skip:
                self._send_one()
            self._next += 1
            self.wait(1 / FPS, turns=turns)

    def wait(self, seconds: float, *, turns: bool = True) -> None:
        """Time goes by."""
        self.clock.advance(seconds)
        self._due += seconds
        if self._due >= 0.5:
            self._due = 0.0
            if turns:
                self.recorder.turn()

    def await_index(self) -> None:
        """Whoever reads the files for an index that was lost is done."""
        if self.recorder._to is not None and (follower := self.recorder._to._follower):
            follower.join(PATIENCE_S)

    def finish(self) -> None:
        self.recorder.turn()
        self.await_index()
        self.recorder.finish()

    def kill(self) -> None:
        """The process of the recorder ends at once; its locks and its threads go with it."""
        self.await_index()
        for source in self.recorder._sources.values():
            source.close()
        if self.recorder._to is not None:
            self.recorder._to.close()

    def event(self, name: str, ago: float = 0.0) -> None:
        """Something was seen some seconds ago."""
        at = self.clock.utc_ns() - round(ago * SECOND)
        self.recorder.claim(self.source, Claim(name, None, None, at))

    @property
    def account(self) -> Account:
        return self.recorder.accounts[0]

    def timeline(self) -> list[Span | Gap]:
        store = Store.open(self.folder)
        index = IndexReader(store)
        try:
            newest = index.newest(self.source)
            return index.timeline(self.source, newest.since if newest else 0, self.clock.utc_ns())
        finally:
            index.close()
            store.close()

    def shape(self) -> list[tuple[str, float]]:
        """The timeline in words and seconds; what follows without a hole is one."""
        found: list[tuple[str, int]] = []
        for row in self.timeline():
            what, length = "recorded" if isinstance(row, Span) else row.cause, row.end - row.begin
            if found and found[-1][0] == what:
                length += found.pop()[1]
            found.append((what, length))
        return [(what, round(length / SECOND, 1)) for what, length in found if length > SECOND // 100]

    def packets(self) -> Iterator[list[str]]:
        """NAL units of all packets in all files, in their order."""
        store = Store.open(self.folder)
        try:
            for path in store.files():
                yield from (row[3] for row in recorded.played(store.path / path))
        finally:
            store.close()

    def _send_one(self) -> None:
        samples, stream = self.clip.samples, self.clip.stream
        lap, number = divmod(self._next, len(samples))
        sample = samples[number]
        shift = round(lap * len(samples) * SECOND / FPS)
        key = sample.key if self.key_each is None else self._next % self.key_each == 0
        info = PacketInfo(
            stream.codec, stream.extradata, stream.time_base, stream.width, stream.height, stream.turns,
            sample.pts + shift, sample.dts + shift, key,
        )  # fmt: skip
        now, utc = self.clock.monotonic_ns(), self.clock.utc_ns()
        self.put += self.writer.put_packet(self.session, info, sample.data, boot=now, utc=utc)

    def _tell(self, source: SourceRecorder, clip: Clip, is_over: bool) -> None:
        self.told.append((clip.id, is_over, clip.covered))
