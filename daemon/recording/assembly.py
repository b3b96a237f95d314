"""Packets become chunks, each of which may become a fragment of a file; and the places where none follows the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from daemon.lateness import Lateness
from daemon.recording.causes import Cause
from daemon.recording.records import LostRecord, PacketRecord, Record, Sample, Stream, StreamRecord

RECORDABLE = ("h264", "hevc")
_SECOND_NS = 1_000_000_000
_CHUNK_NS = _SECOND_NS
_EARLY_NS = _SECOND_NS // 2  # a turn may cut a chunk that is so long
_HOLE_NS = 2 * _SECOND_NS  # a longer step is a time without video,
_HOLE_PERIODS = 3  # unless pictures come as rarely
_BACK_NS = _SECOND_NS  # times that go back by more are of another timeline
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


class _Timed(NamedTuple):
    """A packet with times that grow."""

    packet: PacketRecord
    pts: int
    dts: int
    boot: int  # when it could have come
    utc: int


class Place(msgspec.Struct):
    """How far a stream has come: another process goes on from here.

    Attributes:
        stream: None before the first.
        needs_key: nothing is taken before the next key picture.
        last_dts, last_boot: of the last packet, ns; None at the beginning of a stream.
        period: between two packets, ns.
        offset: of the time of day to the clock that nobody sets, ns.
        end_utc, end_boot: of the last packet.
    """

    stream: Stream | None = None
    needs_key: bool = True
    last_dts: int | None = None
    last_boot: int = 0
    period: int = _PERIOD_NS
    offset: int | None = None
    end_utc: int = 0
    end_boot: int = 0


class Assembler:
    """One source's packets, in the order of the ring.

    Attributes:
        place: after the packets of all chunks that were given.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._pending: list[_Timed] = []
        self._lateness = Lateness()
        self._now = msgspec.structs.replace(self.place)  # after the pending packets, too
        self._why: Cause = "no_key"

    def add(self, record: Record) -> Iterable[Chunk | Break]:
        """The items that a record completes."""
        if isinstance(record, PacketRecord):
            return () if self._follows(record) else self._add_packet(record)
        return self._begin(record) if isinstance(record, StreamRecord) else self._lose(record)

    def cut(self) -> Iterator[Chunk]:
        """A chunk of what there is, if that is enough: the last packet waits, for its duration is unknown."""
        if len(self._pending) > 1 and self._pending[-1].dts - self._pending[0].dts >= _EARLY_NS:
            yield self._chunk(self._pending[-1])

    def flush(self) -> Iterator[Chunk]:
        """A chunk of all that there is: nothing may follow."""
        if self._pending:
            yield self._chunk(None)

    @property
    def pending_boot(self) -> int | None:
        """When the last packet that waits came; None if none waits."""
        return self._pending[-1].packet.boot if self._pending else None

    @property
    def waits_since(self) -> int | None:
        """When the first of them came; None if none waits."""
        return self._pending[0].boot if self._pending else None

    def _follows(self, packet: PacketRecord) -> bool:
        """Take a packet that completes nothing, as nearly all are; False for any other, of which nothing is done."""
        now, pending, dts = self._now, self._pending, packet.dts
        if not pending or packet.key or dts is None or now.last_dts is None or now.offset is None:
            return False
        step = dts - now.last_dts
        if not 0 < step <= _HOLE_NS or dts - pending[0].dts >= _CHUNK_NS:
            return False
        if not -_STEP_NS <= packet.utc - packet.boot - now.offset <= _STEP_NS:
            return False
        pending.append(self._timed(packet)[0])
        return True

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
        timed, hole = self._timed(packet)
        if hole:
            yield from self.flush()
            yield Break(now.end_utc, "network", hole, 0, packet.offset)
        if self._pending and (packet.key or timed.dts - self._pending[0].dts >= _CHUNK_NS):
            yield self._chunk(timed)
        now.needs_key = False
        self._pending.append(timed)

    def _timed(self, packet: PacketRecord) -> tuple[_Timed, str | None]:
        """A packet's times, and what is wrong with them; a hole begins a timeline."""
        now, last = self._now, self._now.last_dts
        waited = packet.boot - now.last_boot if last is not None else 0
        pts, dts = packet.pts, packet.dts
        if dts is None:
            dts = pts if pts is not None else (last or 0) + waited
        pts = dts if pts is None else pts
        hole = None
        if last is not None:
            step = dts - last
            if step > max(_HOLE_NS, _HOLE_PERIODS * now.period):
                hole = f"no video for {step / 1e9:.1f} s"
            elif step < -_BACK_NS:
                hole = f"its times go back by {-step / 1e9:.1f} s"
            elif step <= 0:
                dts = last + 1
            else:
                now.period = min(step, now.period * 2) if now.period else step
        late = self._lateness.add(dts, packet.boot)
        boot = max(packet.boot - late, now.end_boot)
        utc = max(packet.utc - (packet.boot - boot), now.end_utc)
        now.last_dts, now.last_boot = dts, packet.boot
        if not hole:
            now.end_utc, now.end_boot = utc, boot
        return _Timed(packet, pts, dts, boot, utc), hole

    def _chunk(self, following: _Timed | None) -> Chunk:
        """A chunk of the pending packets but the one that follows them."""
        rows = self._pending
        self._pending = []
        if following is not None and rows[-1] is following:
            rows = rows[:-1]
            self._pending = [following]
        period = self._now.period
        first, last = rows[0], rows[-1]
        ends = [row.dts for row in rows[1:]] + [last.dts + period if following is None else following.dts]
        samples = [
            Sample(row.pts, row.dts, max(0, end - row.dts), row.packet.key, row.packet.data)
            for row, end in zip(rows, ends)
        ]
        if following is None:
            end_utc, end_boot = last.utc + period, last.boot + period
            self._now.end_utc, self._now.end_boot = end_utc, end_boot
        else:
            end_utc, end_boot = following.utc, following.boot
        assert self._now.stream is not None  # noqa: S101 - packets are pending
        ring_end = last.packet.end
        self.place = msgspec.structs.replace(
            self._now,
            needs_key=False,
            last_dts=last.dts,
            last_boot=last.packet.boot,
            end_utc=end_utc,
            end_boot=end_boot,
        )
        return Chunk(
            self._now.stream, samples, first.packet.number, first.utc, end_utc, first.boot, end_boot,
            first.packet.key, ring_end,
        )  # fmt: skip


def _step(offset_ns: int) -> str:
    return f"the time of day was set {'ahead' if offset_ns > 0 else 'back'} by {abs(offset_ns) / 1e9:.1f} s"
