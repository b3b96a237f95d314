"""The packets of one video among those of a container, and what is passed over."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from av.packet import Packet
from av.video.stream import VideoStream

from daemon.sources.timeline import nanoseconds
from daemon.sources.video_streams import can_be_decoded, is_attached

_SILENCE_NS, _GAP_NS = 2_000_000_000, 250_000_000  # without a packet of the video: so far, and before its next one
_SILENCE_STEPS = 4  # likewise, in the usual steps between its packets
_STEPS = 16  # of which the usual one is found
_MAX_HELD = 500  # packets without times that stand for a silence
_MAX_OVERLAP = 12  # packets of a stream before the one that it continues ends
_END = 1 << 63


class Selection:
    """Passes on the packets of one video stream, and those of a stream that continues it.

    A stream continues the video if its packets come while the video's own are missing, as when a recorder changes the
    identifier. They are held until that is certain. A stream whose packets come beside the video's is another video.

    Args:
        stream: to begin with.
        passed_over: counts packets by kind; see `lookout.messages.SourceMetrics`.
        has_one_timeline: in this container a stream that begins before another one ends does not continue it.
    """

    def __init__(self, stream: VideoStream, passed_over: Counter[str], *, has_one_timeline: bool) -> None:
        self._index, self._passed_over, self._has_one_timeline = stream.index, passed_over, has_one_timeline
        self._max_overlap = 0 if has_one_timeline else _MAX_OVERLAP
        self._others: dict[int, _Other] = {}
        self._last: deque[Packet[Any]] = deque(maxlen=_STEPS)  # packets of the video

    def passes(self, packet: Packet[Any]) -> bool:
        """Whether a packet of the video comes without packets of other streams, as nearly all do: it can be decoded."""
        if self._others:
            return False
        self._last.append(packet)
        return True

    def select(self, packet: Packet[Any]) -> Sequence[Sequence[Packet[Any]]]:
        """The packets to decode after this one has come, those of one stream together."""
        if packet.stream_index == self._index:
            return self._continue(packet)
        other = self._others.get(packet.stream_index) or self._add(packet)
        if other.kind is not None:
            self._passed_over[other.kind] += 1
            return ()
        other.held.append(packet)
        return (self._switch(other),) if other.lasts(max(_SILENCE_NS, self._limit)) else ()

    def finish(self) -> Sequence[Sequence[Packet[Any]]]:
        """The packets to decode at the end of the container."""
        runs = []
        for other in sorted(self._others.values(), key=_Other.begins_at):
            if other.kind is None and len(other.held) > other.overlapped:
                runs.append(self._switch(other))
            else:
                self._passed_over["other_video"] += other.overlap(_END)
        return runs

    @property
    def _time(self) -> int | None:
        """Time of decoding of the video's last packet, ns."""
        return _time_of(self._last[-1]) if self._last else None

    @property
    def _limit(self) -> float:
        """The longest step between two packets of the video that is no gap, ns."""
        times = [time for time in map(_time_of, self._last) if time is not None]
        steps = [after - before for before, after in pairwise(times) if after > before]
        return _SILENCE_STEPS * median(steps) if steps else 0

    def _continue(self, packet: Packet[Any]) -> Sequence[Sequence[Packet[Any]]]:
        """The video goes on: behind packets of other streams, which may have filled a gap in it."""
        runs: list[Sequence[Packet[Any]]] = []
        if any(other.held for other in self._others.values()):
            position, has_gap = _END if packet.pos is None else packet.pos, self._has_gap_before(packet)
            for other in sorted(self._others.values(), key=_Other.begins_at):
                if has_gap and other.is_before(position) and len(other.held) > other.overlapped:
                    stream = self._index
                    runs.append(self._switch(other))
                    self._index = stream
                else:
                    self._passed_over["other_video"] += other.overlap(position)
        self._last.append(packet)
        return (*runs, (packet,))

    def _has_gap_before(self, packet: Packet[Any]) -> bool:
        """Whether packets of the video are missing before one."""
        time, last = _time_of(packet), self._time
        return time is not None and last is not None and not 0 <= time - last <= max(_GAP_NS, self._limit)

    def _add(self, packet: Packet[Any]) -> _Other:
        """Another stream, with its first packet."""
        other = self._others[packet.stream_index] = _Other(packet.stream, self._max_overlap)
        if self._has_one_timeline:
            other.begin(_time_of(packet), self._time)
        return other

    def _switch(self, other: _Other) -> Sequence[Packet[Any]]:
        """Go on with another stream."""
        held = other.take_held()
        del self._others[other.stream.index]
        self._index = other.stream.index
        self._last.clear()
        self._last.extend(held)
        return held


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

    def take_held(self) -> list[Packet[Any]]:
        held, self.held = self.held, []
        return held

    def begins_at(self) -> int:
        """Where its packets begin that are held."""
        return (self.held[0].pos or 0) if self.held else 0

    def is_before(self, position: int) -> bool:
        """Whether packets are held, all from before a place."""
        return bool(self.held) and (self.held[-1].pos or 0) < position

    def begin(self, time: int | None, end: int | None) -> None:
        """Compare its first packet with the video's last one; ns."""
        if time is not None and end is not None and time < end:
            self.kind = self.kind or "other_video"

    def overlap(self, position: int) -> int:
        """The video goes on behind some of the packets that are held: their number.

        Args:
            position: of the video's packet, which a demuxer may have held until now.
        """
        count = sum(packet.pos is None or packet.pos < position for packet in self.held)
        if count:
            del self.held[:count]
            self.overlapped += count
            if self.overlapped > self._max_overlap:
                self.kind = self.kind or "other_video"
        return count

    def lasts(self, silence: float) -> bool:
        """Whether the video has been silent for so long, ns, that this stream continues it."""
        first, last = _time_of(self.held[0]), _time_of(self.held[-1])
        if len(self.held) <= self.overlapped:
            return False
        return len(self.held) >= _MAX_HELD or (first is not None and last is not None and last - first >= silence)


def _time_of(packet: Packet[Any]) -> int | None:
    """Time of decoding, ns."""
    time, unit = packet.dts, packet.time_base
    return None if time is None or unit is None else nanoseconds(time, unit)
