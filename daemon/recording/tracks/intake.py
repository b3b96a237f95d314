"""Analysed pictures out of the ring of a store, to the sources that are recorded."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec
import structlog

from daemon.recording.records import LostRecord, PacketRecord, StreamRecord
from daemon.recording.ring_layout import MAX_STATE_BYTES
from daemon.recording.ring_reader import RingReader
from daemon.recording.tracks.codec import frames_of
from daemon.recording.tracks.placing import Origin, TrackPlacer
from daemon.recording.tracks.records import Handed, Labels, decode_message
from daemon.recording.tracks.tap import decode_labels

log = structlog.get_logger(__name__)
_MAX_RECORDS = 50_000  # that wait here; more wait in the ring


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
        for record in self._ring.read(self._at):
            self._at = record.end
            if isinstance(record, PacketRecord):
                self._take(record, sources)
            elif isinstance(record, StreamRecord):
                self._table = record.stream.extradata
                self._labels = decode_labels(self._table)
            elif isinstance(record, LostRecord):
                log.warning("boxes of pictures are not recorded: the store was too slow", batches=record.packets)

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

    def _take(self, record: PacketRecord, sources: Mapping[str, TrackPlacer]) -> None:
        message = decode_message(record.data)
        origin = Origin(record.end, 0)
        if isinstance(message, Handed):
            if message.served not in self._labels:  # of a process before, and too many to remember
                message = msgspec.structs.replace(message, frames=[])
            for frame in frames_of(message):
                if placer := sources.get(frame.info.source):
                    placer.add(frame, record.boot, origin, self._labels)
        elif placer := sources.get(message.source):
            placer.add(message, record.boot, origin, self._labels)
        self._origins.append(origin)
