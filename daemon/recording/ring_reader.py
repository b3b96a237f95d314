"""The end of a ring that a recorder reads from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest

import msgspec

from daemon.recording.records import LostRecord, PacketRecord, Record, Stream, StreamRecord
from daemon.recording.ring_layout import (
    A_JUMP,
    A_LOSS,
    A_PACKET,
    A_STREAM,
    COMMITTED,
    HEAD_BYTES,
    HEADER,
    LOST,
    MAX_STATE_BYTES,
    NO_TIME,
    PACKET,
    PAGE,
    READER,
    READER_SLOTS,
    TAIL,
    RingAccount,
    RingError,
    account_of,
    mapped,
    newest,
)
from daemon.recording.ring_space import JUMP, give_back, place_of, runs_of

_SPARE_BYTES = 512 << 10  # of memory that is kept beside twice what waits, or what usually comes in a turn
_MOST_USUAL_BYTES = 4 << 20
_decode = msgspec.msgpack.Decoder(Stream).decode


class RingReader:
    """Takes packets out of a ring. One thread uses it.

    A reader that is killed is followed by one that begins where `commit` was called last.

    Args:
        fd: of the ring; the reader keeps a copy.

    Attributes:
        tail: up to where all was read for good.

    Raises:
        RingError: it is no ring.
        OSError: no memory or no descriptor.
    """

    def __init__(self, fd: int) -> None:
        self._map, self._words, self._size = mapped(fd)
        self._version = self._words[COMMITTED]
        at = READER_SLOTS[self._version & 1]
        self.tail, count = READER.unpack_from(self._map, at)
        self._state = bytes(self._map[at + READER.size : at + READER.size + count])
        self._usual = 0  # bytes of a commit
        self._give_back()  # the reader before may have been killed before it did

    @property
    def head(self) -> int:
        """Where the next packet will be."""
        _, (head, *_) = newest(self._map, self._words)
        return head

    @property
    def state(self) -> bytes:
        """As of the last commit; empty before the first."""
        return self._state

    @property
    def account(self) -> RingAccount:
        return account_of(self._map, self._words)

    def read(self, at: int, limit_bytes: int | None = None) -> Iterator[Record]:
        """The records that lie there, up to the head as of now.

        Args:
            at: `tail`, or the end of a record behind it.
            limit_bytes: of records, after which it ends.

        Raises:
            RingError: it is no record.
        """
        head = self.head
        if not self.tail <= at <= head:
            raise RingError(f"byte {at} of a ring that holds {self.tail} to {head}")
        until = head if limit_bytes is None else min(head, at + limit_bytes)
        begin = place_of(runs_of(self._map, self._words), at)
        with memoryview(self._map)[HEAD_BYTES:].toreadonly() as data:
            while at < until:
                length, kind, is_key, fill = HEADER.unpack_from(data, begin)
                end = at + length
                if length < HEADER.size or length % 8 or end > head or begin + length > self._size or begin % 8:
                    raise RingError(f"a ring has no record at byte {at}")
                if kind == A_PACKET:
                    _, _, _, _, count, number, pts, dts, boot, utc = PACKET.unpack_from(data, begin)
                    first = begin + PACKET.size
                    yield PacketRecord(
                        number, None if pts == NO_TIME else pts, None if dts == NO_TIME else dts, is_key == 1, boot,
                        utc, data[first : first + count], at, end,
                    )  # fmt: skip
                elif kind == A_STREAM:
                    yield StreamRecord(_stream(data[begin + HEADER.size : begin + length - fill]), at, end)
                elif kind == A_LOSS:
                    _, _, _, _, packets, size, first, first_boot, last, last_boot = LOST.unpack_from(data, begin)
                    yield LostRecord(packets, size, first, first_boot, last, last_boot, at, end)
                elif kind != A_JUMP:
                    raise RingError(f"a ring has a record of kind {kind} at byte {at}")
                begin = begin + length if kind != A_JUMP else JUMP.unpack_from(data, begin)[4] % self._size
                at = end

    def commit(self, tail: int, state: bytes) -> None:
        """All up to here was read for good. Payloads before it are not valid any more.

        Args:
            tail: the end of a record.
            state: that the next reader begins with; `MAX_STATE_BYTES` at most.

        Raises:
            ValueError: the state is too long, or the tail goes back.
        """
        if len(state) > MAX_STATE_BYTES or not self.tail <= tail <= self.head:
            raise ValueError(f"a commit of {self.tail} to {tail} with a state of {len(state)} bytes")
        version = self._version + 1
        at = READER_SLOTS[version & 1]
        READER.pack_into(self._map, at, tail, len(state))
        at += READER.size
        self._map[at : at + len(state)] = state
        self._words[COMMITTED] = version
        self._usual += (min(tail - self.tail, _MOST_USUAL_BYTES) - self._usual) // 4
        self._version, self.tail, self._state = version, tail, state
        self._give_back()

    def close(self) -> None:
        self._words.release()
        with suppress(BufferError):  # payloads are in use: unmapped with the last of them
            self._map.close()

    def _give_back(self) -> None:
        """Give the memory back of what was read, as far as it is not needed again soon, and the room to the writer."""
        at, keep = self._words[TAIL], 2 * max(self.head - self.tail, self._usual) + _SPARE_BYTES
        runs = runs_of(self._map, self._words)
        for run, after in zip_longest(runs, runs[1:]):
            end = self.tail if after is None else min(self.tail, after.begin)
            begin = max(at, run.begin)
            if begin < end:
                place = run.place + begin - run.begin
                # No other record lies in the page in which a run begins, or ends.
                last = place + end - begin if end == self.tail else (place + end - begin + PAGE - 1) & -PAGE
                give_back(self._map, max(place & -PAGE, keep), last)
        self._words[TAIL] = self.tail


def _stream(data: memoryview) -> Stream:
    try:
        return _decode(data)
    except msgspec.DecodeError as problem:
        raise RingError(f"a ring has a stream that cannot be read: {problem}") from problem
