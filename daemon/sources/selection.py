"""The packets of one video among those of a container, and what is passed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from av.packet import Packet
from av.video.stream import VideoStream

from daemon.sources.timeline import nanoseconds
from daemon.sources.video_streams import can_be_decoded, is_attached

_SILENCE_NS = 2_000_000_000  # after which another stream continues the video
_SILENCE_STEPS = 4  # likewise, in the longest steps between its own packets
_MAX_HELD = 500  # packets without times, likewise
_MAX_OVERLAP = 12  # packets of a stream before the one that it continues ends


class Selection:
    """Passes on the packets of one video stream, and those of a stream that continues it.

    A stream continues the video if its packets come once the video's own have ended, as when a recorder changes the
    identifier. They are held until that is certain. A stream whose packets come beside the video's is another video.

    Args:
        stream: to begin with.
        passed_over: counts packets by kind; see `daemon.messages.SourceMetrics`.
        has_one_timeline: in this container a stream that begins before another one ends does not continue it.

    Attributes:
        stream: of the packets that were passed on last.
    """

    def __init__(self, stream: VideoStream, passed_over: Counter[str], *, has_one_timeline: bool) -> None:
        self.stream = stream
        self._index, self._passed_over, self._has_one_timeline = stream.index, passed_over, has_one_timeline
        self._max_overlap = 0 if has_one_timeline else _MAX_OVERLAP
        self._others: dict[int, _Other] = {}
        self._time: int | None = None  # of decoding, of the last packet, ns
        self._step = 0  # longest step between packets, ns

    def select(self, packet: Packet[Any]) -> Sequence[Packet[Any]]:
        """The packets to decode after this one has come."""
        if packet.stream_index == self._index:
            for other in self._others.values():
                self._passed_over["other_video"] += other.overlap()
            self._note_time(_time_of(packet))
            return (packet,)
        other = self._others.get(packet.stream_index) or self._add(packet)
        if other.kind is not None:
            self._passed_over[other.kind] += 1
            return ()
        other.held.append(packet)
        return self._switch(other) if other.lasts(max(_SILENCE_NS, _SILENCE_STEPS * self._step)) else ()

    def _add(self, packet: Packet[Any]) -> _Other:
        """Another stream, with its first packet."""
        other = self._others[packet.stream_index] = _Other(packet.stream, self._max_overlap)
        if self._has_one_timeline:
            other.begin(_time_of(packet), self._time)
        return other

    def finish(self) -> Sequence[Packet[Any]]:
        """The packets to decode at the end of the container."""
        for other in self._others.values():
            if other.kind is None and len(other.held) > other.overlapped:
                return self._switch(other)
            self._passed_over["other_video"] += other.overlap()
        return ()

    def _switch(self, other: _Other) -> Sequence[Packet[Any]]:
        """Go on with another stream."""
        held, other.held = other.held, []
        del self._others[other.stream.index]
        self.stream, self._index, self._step = other.stream, other.stream.index, 0
        self._time = None
        for packet in held:
            self._note_time(_time_of(packet))
        return held

    def _note_time(self, time: int | None) -> None:
        if time is not None and self._time is not None:
            self._step = max(self._step, time - self._time)
        self._time = time


class _Other:
    """A stream beside the video.

    Attributes:
        kind: why it does not continue the video, None if it may.
        held: its packets since the video's last one.
        overlapped: number of its packets before that.
    """

    def __init__(self, stream: VideoStream, max_overlap: int) -> None:
        self.stream, self._max_overlap = stream, max_overlap
        self.kind: str | None = None
        if is_attached(stream):
            self.kind = "attached_picture"
        elif not can_be_decoded(stream):
            self.kind = "other_video"
        self.held: list[Packet[Any]] = []
        self.overlapped = 0

    def begin(self, time: int | None, end: int | None) -> None:
        """Compare its first packet with the video's last one; ns."""
        if time is not None and end is not None and time < end:
            self.kind = self.kind or "other_video"

    def overlap(self) -> int:
        """The video goes on: number of the packets that were held."""
        count = len(self.held)
        if count:
            self.held.clear()
            self.overlapped += count
            if self.overlapped > self._max_overlap:
                self.kind = self.kind or "other_video"
        return count

    def lasts(self, silence: int) -> bool:
        """Whether the video has been silent for so long, ns, that this stream continues it."""
        first, last = _time_of(self.held[0]), _time_of(self.held[-1])
        if len(self.held) <= self.overlapped:
            return False
        return len(self.held) >= _MAX_HELD or (first is not None and last is not None and last - first >= silence)


def _time_of(packet: Packet[Any]) -> int | None:
    """Time of decoding, ns."""
    time, unit = packet.dts, packet.time_base
    return None if time is None or unit is None else nanoseconds(time, unit)
