"""Analysed pictures out of the ring of a store, to the sources that are recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import structlog

from daemon.recording.records import LostRecord, PacketRecord, Record, StreamRecord
from daemon.recording.ring_layout import MAX_STATE_BYTES
from daemon.recording.ring_reader import RingReader
from daemon.recording.tracks.placing import Origin, TrackPlacer
from daemon.recording.tracks.records import Handed, Labels, ToTracks, decode_message
from daemon.recording.tracks.stored_frames import frames_of
from daemon.recording.tracks.tap import decode_labels

log = structlog.get_logger(__name__)
_MAX_RECORDS = 50_000  # that wait here; more wait in the ring
AT_ONCE = 200
"""Records whose boxes are converted together: numbers of many take as long as those of a few."""


class _Told(NamedTuple):
    """A record.

    Attributes:
        boot: when it was handed over, BOOTTIME ns.
        end: of it in the ring.
        labels: of the models, as of then.
    """

    message: ToTracks
    boot: int
    end: int
    labels: Labels


class TrackIntake:
    """One thread uses it.

    Args:
        ring: its descriptor.

    Raises:
        RingError: it is no ring.
        OSError: no memory or no descriptor.
    """

    def __init__(self, ring: int) -> None:
        self._ring = RingReader(ring)
        self._at = self._ring.tail
        self._table = self._ring.state
        self._labels: Labels = decode_labels(self._table)
        self._origins: deque[Origin] = deque()

    def take(self, sources: Mapping[str, TrackPlacer]) -> None:
        """Give what has come to the sources that it is of; what is of others goes."""
        if len(self._origins) > _MAX_RECORDS:
            return
        records = self._ring.read(self._at)
        while some := [*islice(records, AT_ONCE)]:
            self._at = some[-1].end
            self._give(self._told(some), sources)

    def commit(self) -> None:
        """Frames that are written, or belong to nothing, are not needed any more."""
        origins = self._origins
        tail = self._at if all(not origin.left for origin in origins) else self._ring.tail
        while origins and not origins[0].left:
            tail = max(tail, origins.popleft().end)
        if tail != self._ring.tail:
            self._ring.commit(tail, self._table if len(self._table) <= MAX_STATE_BYTES else b"")

    def close(self) -> None:
        self._ring.close()

    def _told(self, records: Iterable[Record]) -> Iterator[_Told]:
        """The records that say something; those of models whose labels nobody knows are left out."""
        for record in records:
            if isinstance(record, PacketRecord):
                message = decode_message(record.data)
                if isinstance(message, Handed) and message.served not in self._labels:
                    continue  # of a process before, and too many to remember
                yield _Told(message, record.boot, record.end, self._labels)
            elif isinstance(record, StreamRecord):
                self._table = record.stream.extradata
                self._labels = decode_labels(self._table)
            elif isinstance(record, LostRecord):
                log.warning("boxes of pictures are not recorded: the store was too slow", batches=record.packets)

    def _give(self, told: Iterable[_Told], sources: Mapping[str, TrackPlacer]) -> None:
        rows = [*told]
        batches = [row.message for row in rows if isinstance(row.message, Handed)]
        frames = iter(frames_of(batches) if batches else ())
        for message, boot, end, labels in rows:
            origin = Origin(end, 0)
            if isinstance(message, Handed):
                for frame in next(frames):
                    if placer := sources.get(frame.info.source):
                        placer.add(frame, boot, origin, labels)
            elif placer := sources.get(message.source):
                placer.add(message, boot, origin, labels)
            self._origins.append(origin)
