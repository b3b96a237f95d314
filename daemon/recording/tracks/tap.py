"""From lanes to recorders: each analysed picture of a recorded source goes into the ring of its stores."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from daemon.clock import Clock, boottime_ns
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.outbox import Served
from daemon.recording.ring import Ring
from daemon.recording.ring_layout import MAX_STATE_BYTES
from daemon.recording.ring_writer import RingWriter
from daemon.recording.tracks.records import Handed, Labels, PackedNews, StateChange
from daemon.sources.port import PacketInfo
from detectors.detections import Detections, joined_bytes, no_tracks
from lookout.messages import State

_SESSION = "tracks"
_encode = msgspec.msgpack.Encoder().encode
_decode_labels = msgspec.msgpack.Decoder(dict[int, Served]).decode


def decode_labels(table: bytes) -> Labels:
    """Models with their labels, as the records of a ring have them."""
    return _decode_labels(table) if table else {}


class _Target(NamedTuple):
    """Stores that want the same sources."""

    sources: AbstractSet[str]
    writers: list[RingWriter]


class TrackTap:
    """Implements `daemon.pipeline.lane.Follower`. Any thread may call it; nothing waits for a store.

    Args:
        rings: of each store.
        boottime: ns, the clock by which packets come as well.
    """

    def __init__(self, rings: Mapping[str, Ring], clock: Clock, boottime: Callable[[], int] = boottime_ns) -> None:
        self._clock, self._boottime = clock, boottime
        self._writers = {store: RingWriter(ring.fd) for store, ring in rings.items()}
        self._targets: tuple[_Target, ...] = ()
        self._sources: AbstractSet[str] = frozenset()
        self._counts: Counter[str] = Counter()  # by account; a source has one batch in flight
        self._numbers: dict[int, tuple[Served, int]] = {}  # by identity, which is quicker
        self._labels: Labels = {}
        self._info = _info_of(b"")
        self._lock = threading.Lock()  # of labels

    def use(self, sources: Mapping[str, AbstractSet[str]]) -> None:
        """Give each store these sources from now on."""
        targets: list[_Target] = []
        for store, writer in self._writers.items():
            wanted = frozenset(sources.get(store, ()))
            same = next((target for target in targets if target.sources == wanted), None)
            if same is not None:
                same.writers.append(writer)
            elif wanted:
                targets.append(_Target(wanted, [writer]))
        self._targets = tuple(targets)
        self._sources = frozenset[str]().union(*(target.sources for target in targets))

    def close(self) -> None:
        """Nothing is put any more."""
        for writer in self._writers.values():
            writer.close()

    def on_batch(self, frames: Sequence[Frame], found: Sequence[Detections], served: Served) -> None:
        targets, counts = self._targets, self._counts
        if not targets:
            return
        known = self._numbers.get(id(served))
        number = self._number(served) if known is None else known[1]
        infos, indexes = [frame.info for frame in frames], []
        for info in infos:
            account = info.account or info.source
            indexes.append(counts[account])
            counts[account] += 1
        for target in targets:
            places = [place for place, info in enumerate(infos) if info.source in target.sources]
            if len(places) == len(infos):
                handed = _handed(number, infos, indexes, found)
            elif places:
                own = [[row[place] for place in places] for row in (infos, indexes, found)]
                handed = _handed(number, *own)  # type: ignore[arg-type]
            else:
                continue
            self._put(target.writers, _encode(handed))

    def note(self, source: str, state: State, now_ns: int) -> None:
        """A source has another state, since a monotonic time that rules are told as well."""
        if source in self._sources:
            change = _encode(StateChange(source, state, now_ns, self._clock.utc_ns()))
            for target in self._targets:
                if source in target.sources:
                    self._put(target.writers, change)

    def _put(self, writers: Sequence[RingWriter], data: bytes) -> None:
        boot, utc, info = self._boottime(), self._clock.utc_ns(), self._info
        for writer in writers:
            writer.put_packet(_SESSION, info, data, boot=boot, utc=utc)

    def _number(self, served: Served) -> int:
        """The number of a model's labels, which the next record tells."""
        with self._lock:
            number = next((number for number, row in self._labels.items() if row == served), None)
            if number is None:
                number = max(self._labels, default=0) + 1
                labels = {**self._labels, number: served}
                while len(table := _encode(labels)) > MAX_STATE_BYTES and len(labels) > 1:
                    del labels[min(labels)]
                self._labels, self._info = labels, _info_of(table)
            self._numbers[id(served)] = served, number
            return number


def _info_of(table: bytes) -> PacketInfo:
    """The labels that records need lie where packets have the settings of their codec."""
    return PacketInfo("tracks", table, (1, 1), 0, 0, 0, None, None, key=True)


def _handed(number: int, infos: list[FrameInfo], indexes: list[int], found: Sequence[Detections]) -> Handed:
    tracked = [one.tracks is not None for one in found]
    tracks = [no_tracks(one) if one.tracks is None else one.tracks for one in found] if any(tracked) else []
    return Handed(
        number,
        infos,
        indexes,
        [len(one.confidence) for one in found],
        tracked,
        joined_bytes([one.xyxy for one in found]),
        joined_bytes([one.confidence for one in found]),
        joined_bytes([one.class_id for one in found]),
        joined_bytes([one.id for one in tracks]),
        joined_bytes([one.class_id for one in tracks]),
        joined_bytes([one.xyxy for one in tracks]),
        {place: PackedNews.of(one.news) for place, one in enumerate(tracks) if one.news is not None},
        {place: one.attributes.tolist() for place, one in enumerate(found) if one.attributes is not None},
    )
