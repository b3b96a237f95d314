"""Packets become chunks, each of which may become a fragment of a file; and the places where none follows the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from daemon.lateness import Lateness
from daemon.recording.causes import Cause
from daemon.recording.records import LostRecord, PacketRecord, Record, Sample, Stream, StreamRecord

RECORDABLE = ("h264", "hevc")
_SECOND_NS = 1_000_000_000
_CHUNK_NS = _SECOND_NS
_HOLE_NS = 2 * _SECOND_NS  # a longer step is a time without video,
_HOLE_PERIODS = 3  # unless pictures come as rarely
_BACK_NS = _SECOND_NS  # times that go back by more are of another timeline
_MAX_STEPS, _FOREVER = 8, 1 << 62
_STEP_NS = _SECOND_NS  # the time of day was set, by more than clocks are slewed
_PERIOD_NS = _SECOND_NS // 25  # of a stream of one picture


class Chunk(NamedTuple):
    """Samples that follow each other.

    Attributes:
        number: of the first packet.
        begin, end: UTC ns; the end is the next one's begin, where one follows.
        begin_boot, end_boot: likewise, by the clock that nobody sets.
        key: the first sample is a key picture.
        ring_end: where the packets end in the ring.
    """

    stream: Stream
    samples: list[Sample]
    number: int
    begin: int
    end: int
    begin_boot: int
    end_boot: int
    key: bool
    ring_end: int

    @property
    def begin_pts(self) -> int:
        return min(sample.pts for sample in self.samples)


class Break(NamedTuple):
    """The stream does not continue here.

    Attributes:
        at: UTC ns.
        cause: of a gap, if there is one; None for another file without a gap.
        packets: that are in no chunk.
        ring_end: where they end in the ring.
    """

    at: int
    cause: Cause | None
    detail: str | None
    packets: int
    ring_end: int


class _Moment(msgspec.Struct, frozen=True, gc=False):
    """The times of a packet: of decoding, and when it could have come, ns; they grow."""

    dts: int
    boot: int
    utc: int


class _Waiting(NamedTuple):
    """Packets that become a chunk, by column."""

    packets: list[PacketRecord]
    moments: list[_Moment]

    def add(self, packet: PacketRecord, moment: _Moment) -> None:
        self.packets.append(packet)
        self.moments.append(moment)


class Place(msgspec.Struct):
    """How far a stream has come: another process goes on from here.

    Attributes:
        stream: None before the first.
        needs_key: nothing is taken before the next key picture.
        last_dts, last_boot: of the last packet, ns; None at the beginning of a stream.
        period: between two packets, ns.
        offset: of the time of day to the clock that nobody sets, ns.
        end_utc, end_boot: of the last packet.
        steps: BOOTTIME ns at which the time of day was set, and the offset before; the last ones.
    """

    stream: Stream | None = None
    needs_key: bool = True
    last_dts: int | None = None
    last_boot: int = 0
    period: int = _PERIOD_NS
    offset: int | None = None
    end_utc: int = 0
    end_boot: int = 0
    steps: list[tuple[int, int]] = []


class Assembler:
    """One source's packets, in the order of the ring.

    Attributes:
        place: after the packets of all chunks that were given.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._waiting = _Waiting([], [])
        self._lateness = Lateness()
        self._now = msgspec.structs.replace(self.place)  # after the waiting packets, too
        self._why: Cause = "no_key"

    def add(self, record: Record) -> Iterable[Chunk | Break]:
        """The items that a record completes."""
        if isinstance(record, PacketRecord):
            return () if self._follows(record) else self._add_packet(record)
        return self._begin(record) if isinstance(record, StreamRecord) else self._lose(record)

    def cut(self) -> Iterator[Chunk]:
        """A chunk of what there is, but for the last packet: its duration is not known."""
        if len(self._waiting.moments) > 1:
            yield self._chunk(self._waiting.moments[-1], keeps_last=True)

    def flush(self) -> Iterator[Chunk]:
        """A chunk of all that there is: nothing may follow."""
        if self._waiting.packets:
            yield self._chunk(None)

    @property
    def waiting_boot(self) -> int | None:
        """When the last packet that waits came; None if none waits."""
        return self._waiting.packets[-1].boot if self._waiting.packets else None

    @property
    def waits_since(self) -> int | None:
        """When the first of them came; None if none waits."""
        return self._waiting.moments[0].boot if self._waiting.moments else None

    @property
    def waits_since_utc(self) -> int | None:
        """Likewise, by the time of day."""
        return self._waiting.moments[0].utc if self._waiting.moments else None

    def assume_offset(self, offset: int) -> None:
        """The offset of the time of day is this one where no packet has told it; ns."""
        if self.place.offset is None:
            self.place = msgspec.structs.replace(self.place, offset=offset)

    def seen_at(self, session: str, pts: int) -> int | None:
        """When a picture came, BOOTTIME ns, by those that wait; None if none of its session does."""
        packets, moments = self._waiting
        if not packets or self._now.stream is None or self._now.stream.session != session:
            return None
        first = packets[0].pts
        return moments[0].boot + pts - (moments[0].dts if first is None else first)

    def _follows(self, packet: PacketRecord) -> bool:
        """Take a packet that completes nothing, as nearly all are; False for any other, of which nothing is done."""
        dts, boot = packet.dts, packet.boot
        now, waiting = self._now, self._waiting
        if packet.key or dts is None or not waiting.packets or now.last_dts is None or now.offset is None:
            return False
        step = dts - now.last_dts
        if not 0 < step <= _HOLE_NS or dts - waiting.moments[0].dts >= _CHUNK_NS:
            return False
        if not -_STEP_NS <= packet.utc - boot - now.offset <= _STEP_NS:
            return False
        now.period = min(step, now.period * 2) if now.period else step
        moment = self._moment(packet, dts)
        now.end_boot, now.end_utc = moment.boot, moment.utc
        waiting.packets.append(packet)
        waiting.moments.append(moment)
        return True

    def _moment(self, packet: PacketRecord, dts: int) -> _Moment:
        now, came = self._now, packet.boot
        boot = came - self._lateness.add(dts, came)
        boot = max(boot, now.end_boot)
        utc = packet.utc - came + boot
        now.last_dts, now.last_boot = dts, came
        return _Moment(dts, boot, utc if utc > now.end_utc else now.end_utc)

    def _begin(self, record: StreamRecord) -> Iterator[Chunk | Break]:
        known, stream = self._now.stream, record.stream
        if known == stream:  # told again
            return
        yield from self.flush()
        same = known is not None and known.session == stream.session
        is_told = self._now.needs_key and self._why == "disk_slow"  # why nothing is recorded since the last chunk
        if not same:
            self._now.last_dts = None
            self._lateness = Lateness()
        self._now.stream, self._now.needs_key, self._why = stream, True, "no_key"
        self.place = msgspec.structs.replace(self._now)
        if known is not None:
            yield Break(self._now.end_utc, None if same or is_told else "source_down", None, 0, record.end)

    def _lose(self, record: LostRecord) -> Iterator[Chunk | Break]:
        yield from self.flush()
        self._now.needs_key, self._now.last_dts, self._why = True, None, "disk_slow"
        self.place = msgspec.structs.replace(self._now)
        yield Break(record.begin, "disk_slow", None, record.packets, record.end)

    def _add_packet(self, packet: PacketRecord) -> Iterator[Chunk | Break]:
        now = self._now
        stream = now.stream
        offset = packet.utc - packet.boot
        if now.offset is not None and abs(offset - now.offset) > _STEP_NS:
            yield from self.flush()
            now.steps = [*now.steps, (packet.boot, now.offset)][-_MAX_STEPS:]
            step, now.offset, now.end_utc = offset - now.offset, offset, packet.utc
            self.place = msgspec.structs.replace(now)
            yield Break(packet.utc, "clock", _step(step), 0, packet.offset)
        now.offset = offset
        if stream is None or stream.codec not in RECORDABLE:
            detail = "of an unknown stream" if stream is None else f"{stream.codec} is not recorded"
            yield Break(packet.utc, "codec", detail, 1, packet.end)
            return
        if now.needs_key and not packet.key:
            yield Break(packet.utc, self._why, None, 1, packet.end)
            return
        dts, hole = self._decoding(packet)
        moment = self._moment(packet, dts)
        if hole:
            yield from self.flush()
            yield Break(now.end_utc, "network", hole, 0, packet.offset)
        else:
            now.end_boot, now.end_utc = moment.boot, moment.utc
        if self._waiting.packets and (packet.key or dts - self._waiting.moments[0].dts >= _CHUNK_NS):
            yield self._chunk(moment)
        now.needs_key = False
        self._waiting.add(packet, moment)

    def _decoding(self, packet: PacketRecord) -> tuple[int, str | None]:
        """When a packet is decoded, and what is wrong with that; a hole begins a timeline."""
        now, last = self._now, self._now.last_dts
        dts = packet.dts if packet.dts is not None else packet.pts
        if dts is None:
            dts = 0 if last is None else last + packet.boot - now.last_boot
        if last is None:
            return dts, None
        step = dts - last
        if step > max(_HOLE_NS, _HOLE_PERIODS * now.period):
            return dts, f"no video for {step / 1e9:.1f} s"
        if step < -_BACK_NS:
            return dts, f"its times go back by {-step / 1e9:.1f} s"
        if step <= 0:
            return last + 1, None
        now.period = min(step, now.period * 2) if now.period else step
        return dts, None

    def _chunk(self, following: _Moment | None, *, keeps_last: bool = False) -> Chunk:
        """A chunk of the packets that wait.

        Args:
            following: of the packet behind them; None if it is not known.
            keeps_last: that is the last one of those that wait.
        """
        packets, moments = self._waiting
        self._waiting = _Waiting([], [])
        if keeps_last:
            self._waiting.add(packets.pop(), moments.pop())
        now, first, last = self._now, moments[0], moments[-1]
        end = following or _Moment(last.dts + now.period, last.boot + now.period, last.utc + now.period)
        if following is None:
            now.end_boot, now.end_utc = end.boot, end.utc
        begins = [moment.dts for moment in moments]
        pts = [at if packet.pts is None else packet.pts for packet, at in zip(packets, begins)]
        durations = [max(0, to - at) for at, to in pairwise([*begins, end.dts])]
        keys, data = [packet.key for packet in packets], [packet.data for packet in packets]
        assert now.stream is not None  # noqa: S101 - packets wait
        self.place = msgspec.structs.replace(
            now, needs_key=False, last_dts=last.dts, last_boot=packets[-1].boot, end_utc=end.utc, end_boot=end.boot
        )
        return Chunk(
            now.stream, [*map(Sample, pts, begins, durations, keys, data)], packets[0].number, first.utc, end.utc,
            first.boot, end.boot, packets[0].key, packets[-1].end,
        )  # fmt: skip


def times_of(place: Place, begin: int, end: int) -> tuple[int, int]:
    """The begin and end of a time between two BOOTTIMEs, UTC ns. Where the clock was set back within, so that the
    end comes before the begin, those of the longest part without a step."""
    parts, at = list[tuple[int, int]](), begin
    for until, offset in (*place.steps, (end, place.offset or 0)):
        if at < min(until, end) or (until == end and not parts):
            parts.append((at + offset, min(until, end) + offset))
            at = min(until, end)
    first, last = parts[0][0], parts[-1][1]
    return (first, last) if first <= last else max(parts, key=lambda part: part[1] - part[0])


def boot_of(place: Place, utc: int, now_boot: int) -> int:
    """The BOOTTIME, ns, of a time of day that has come, UTC ns: of the last one where it came twice."""
    newest = offset = place.offset or 0
    until = now_boot + _SECOND_NS  # clocks may differ a little
    for since, before in (*reversed(place.steps), (-_FOREVER, 0)):
        if since <= utc - offset <= until:
            return utc - offset
        offset, until = before, since
    return utc - newest


def _step(offset_ns: int) -> str:
    return f"the time of day was set {'ahead' if offset_ns > 0 else 'back'} by {abs(offset_ns) / 1e9:.1f} s"
