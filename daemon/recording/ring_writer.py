"""The end of a ring that a capture writes into."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from daemon.recording.records import Stream
from daemon.recording.ring_layout import (
    A_JUMP,
    A_LOSS,
    A_PACKET,
    A_STREAM,
    HEAD_BYTES,
    HEADER,
    LOST,
    NO_TIME,
    PACKET,
    TAIL,
    TOKEN,
    WRITER,
    WRITER_SLOTS,
    WRITTEN,
    RingAccount,
    account_of,
    identity_of,
    mapped,
    newest,
)
from daemon.recording.ring_space import JUMP, RingSpace
from daemon.sources.port import PacketInfo

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PAST_SESSIONS = 16
_FULL_UNTIL = 0.75  # of a ring that was full
_NO_LOSS = (0, 0, 0, 0, 0, 0)
_encode = msgspec.msgpack.Encoder().encode


class RingWriter:
    """Puts packets into a ring. Any thread may use it.

    From its construction on, and from `attach` on, others write no more: each has a token, and the ring has that of the
    last.

    Args:
        fd: of the ring; the writer keeps a copy.

    Attributes:
        is_full: packets are lost until a key picture comes and there is room for what follows it.

    Raises:
        RingError: it is no ring.
        OSError: no memory or no descriptor.
    """

    def __init__(self, fd: int) -> None:
        self.identity = identity_of(fd)
        self._map, self._words, self._size = mapped(fd)
        self._lock = threading.Lock()
        self._past: deque[str] = deque(maxlen=_PAST_SESSIONS)  # sessions that others have followed
        self._token = -1
        self.attach()

    def attach(self) -> None:
        """Take the ring from another writer, if one has it by now; nothing after `close`."""
        with self._lock:
            if not self._token or self._words[TOKEN] == self._token:
                return
            self._token = self._words[TOKEN] = secrets.randbits(62) + 1
            self._version, counts = newest(self._map, self._words)
            self._head, self._packets, self._bytes, self._lost_packets, self._lost_bytes, *loss = counts
            self._loss: tuple[int, ...] = tuple(loss)
            self.is_full = self._loss[0] > 0
            self._space = RingSpace(self._map, self._words, self._size, self._head)
            self._place = self._space.place_of(self._head)  # of the head, in the data
            self._kind: tuple[object, ...] | None = None  # of the last packet: what a Stream says

    def put_packet(self, session: str, info: PacketInfo, data: ReadableBuffer, *, boot: int, utc: int) -> bool:
        """Put a packet behind those before.

        Args:
            session: of the connection. One that another has followed is refused.
            boot, utc: when it came, ns, by the clock that counts suspension and by the time of day.

        Returns:
            Whether it is in the ring. Otherwise the ring is full, which it counts, or another writer has it.
        """
        with self._lock:
            if not self._token or self._words[TOKEN] != self._token:
                return False
            kind = (
                session, info.codec, info.extradata, info.time_base, info.width, info.height, info.turns,
            )  # fmt: skip
            view = memoryview(data)
            count, map = view.nbytes, self._map
            if kind != self._kind or self.is_full:
                return self._put_after(kind, info, view, boot, utc)
            length = (PACKET.size + count + 7) & ~7
            head, at = self._head, self._place
            if at + length + JUMP.size > self._space.limit:
                found = self._moved(head, at, length)
                if found is None:
                    return self._lose(count, boot, utc)
                head, at = found
            self._place = at + length
            pts, dts = info.pts, info.dts
            PACKET.pack_into(
                map, HEAD_BYTES + at, length, A_PACKET, info.key, 0, count, self._packets,
                NO_TIME if pts is None else pts, NO_TIME if dts is None else dts, boot, utc,
            )  # fmt: skip
            at += HEAD_BYTES + PACKET.size
            map[at : at + count] = view
            self._head = head + length
            self._packets += 1
            self._bytes += count
            self._version = version = self._version + 1
            WRITER.pack_into(
                map, WRITER_SLOTS[version & 1], self._head, self._packets, self._bytes, self._lost_packets,
                self._lost_bytes, 0, 0, 0, 0, 0, 0,
            )  # fmt: skip
            self._words[WRITTEN] = version
            return True

    @property
    def account(self) -> RingAccount:
        return account_of(self._map, self._words)

    def close(self) -> None:
        """It writes no more."""
        with self._lock:
            if self._token:
                self._token = 0
                self._words.release()
                self._map.close()

    def _put_after(self, kind: tuple[object, ...], info: PacketInfo, data: memoryview, boot: int, utc: int) -> bool:
        """Put a packet behind what is to be told before it: a loss, or another stream. All of it becomes visible at
        once."""
        session = str(kind[0])
        if session in self._past:
            return False
        if self.is_full and not (info.key and self._has_room_again()):
            return self._lose(data.nbytes, boot, utc)
        end: tuple[int, int] | None = (self._head, self._place)
        if self.is_full:
            end = self._told(end, A_LOSS, LOST.pack(0, 0, 0, 0, *self._loss)[HEADER.size :])
        if kind != self._kind:
            stream = Stream(session, *kind[1:])  # type: ignore[arg-type]
            end = self._told(end, A_STREAM, _encode(stream))
        length = PACKET.size + data.nbytes
        times = NO_TIME if info.pts is None else info.pts, NO_TIME if info.dts is None else info.dts
        rest = PACKET.pack(length, A_PACKET, info.key, 0, data.nbytes, self._packets, *times, boot, utc)
        end = self._told(end, A_PACKET, rest[HEADER.size :], data, is_key=info.key)
        if end is None:
            self._space.rewind(self._head)
            return self._lose(data.nbytes, boot, utc)
        if self._kind and self._kind[0] != session:
            self._past.append(str(self._kind[0]))
        self._head, self._place = end
        self._kind, self.is_full, self._loss = kind, False, _NO_LOSS
        self._packets += 1
        self._bytes += data.nbytes
        self._publish()
        return True

    def _has_room_again(self) -> bool:
        """Enough to go on for a while: one loss is better than many with a few pictures between."""
        return self._head - self._words[TAIL] <= _FULL_UNTIL * self._size

    def _told(
        self,
        end: tuple[int, int] | None,
        kind: int,
        rest: bytes,
        data: memoryview | None = None,
        *,
        is_key: bool = False,
    ) -> tuple[int, int] | None:
        """Write a record, which nobody sees yet.

        Args:
            end: of the record before: where it is in all that was ever written, and in the data. None without room.

        Returns:
            Its own end.
        """
        if end is None:
            return None
        count = HEADER.size + len(rest) + (data.nbytes if data else 0)
        length = (count + 7) & ~7
        found: tuple[int, int] | None = end
        if end[1] + length + JUMP.size > self._space.limit:
            found = self._moved(*end, length)
        if found is None:
            return None
        head, place = found
        at = HEAD_BYTES + place
        HEADER.pack_into(self._map, at, length, kind, is_key, length - count)
        at += HEADER.size
        self._map[at : at + len(rest)] = rest
        if data:
            self._map[at + len(rest) : at + len(rest) + data.nbytes] = data
        return head + length, place + length

    def _moved(self, head: int, place: int, length: int) -> tuple[int, int] | None:
        """Where a record begins for which the run may have no room, in all that was ever written and in the data; None
        without room."""
        found = self._space.find(place, length)
        if found is None or found == place:
            return found if found is None else (head, place)
        JUMP.pack_into(self._map, HEAD_BYTES + place, JUMP.size, A_JUMP, 0, 0, found)
        self._space.begin_run(head + JUMP.size, found)
        return head + JUMP.size, found

    def _lose(self, count: int, boot: int, utc: int) -> bool:
        packets, size, begin, begin_boot, _, _ = self._loss
        if not packets:
            begin, begin_boot = utc, boot
        self._loss, self.is_full = (packets + 1, size + count, begin, begin_boot, utc, boot), True
        self._lost_packets += 1
        self._lost_bytes += count
        self._publish()
        return False

    def _publish(self) -> None:
        self._version += 1
        counts = self._head, self._packets, self._bytes, self._lost_packets, self._lost_bytes
        WRITER.pack_into(self._map, WRITER_SLOTS[self._version & 1], *counts, *self._loss)
        self._words[WRITTEN] = self._version
