"""How a ring lies in memory.

    0          magic, version of the layout, size; token of the writer; what counts, as below
    128        two slots of the writer: where it is, and its counts
    8 KiB      two slots of the reader: where it is, and what it wants to remember
    224 KiB    two slots of the writer: where runs of records lie, see `ring_space`
    256 KiB    the data

An end publishes by a store of eight bytes: the number of the slot that counts from then on. The other end sees it after
all that was stored before, as processors of the x86 family promise. Another family needs a barrier there.
"""

from __future__ import annotations

import mmap
import os
from struct import Struct
from typing import Final, NamedTuple

from daemon.errors import LookoutError

MAX_STATE_BYTES: Final = 100 << 10
UNIT_BYTES: Final = 64 << 10
"""The size of a ring's data is a multiple."""

HEAD_BYTES = 256 << 10
PAGE = mmap.PAGESIZE
MAGIC, LAYOUT = int.from_bytes(b"lookring", "little"), 1
# Words of the head.
IS, HAS, SIZE, TOKEN, WRITTEN, TAIL, COMMITTED, TABLED = range(8)
WRITER_SLOTS = 128, 256
READER_SLOTS = 8 << 10, 112 << 10
TABLE_SLOTS = 224 << 10, 240 << 10

# head, packets, bytes, lost packets, lost bytes; of the loss that no record tells yet: packets, bytes, times
WRITER = Struct("<11q")
READER = Struct("<qI4x")  # tail, length of the state
PACKET = Struct("<IBBHqqqqqq")  # see HEADER; bytes, number, pts, dts, boot, utc
HEADER = Struct("<IBBH")  # length of the record; kind; is a key picture; bytes at its end that mean nothing
LOST = Struct("<IBBH6q")
A_PACKET, A_STREAM, A_LOSS, A_JUMP = 1, 2, 3, 4
NO_TIME = -(1 << 63)


class RingError(LookoutError):
    """A ring is none, or what lies in it cannot be understood."""


class RingAccount(NamedTuple):
    """All that has gone through a ring since it was made.

    Attributes:
        packets, bytes: that were put into it.
        lost_packets, lost_bytes: for which it had no room.
        waiting_bytes: that nobody has read for good.
    """

    packets: int
    bytes: int
    lost_packets: int
    lost_bytes: int
    waiting_bytes: int


def identity_of(fd: int) -> tuple[int, int]:
    """The same for all descriptors of a ring, in every process."""
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino


def mapped(fd: int) -> tuple[mmap.mmap, memoryview[int], int]:
    """A ring in memory, its words, and the size of its data."""
    size = os.fstat(fd).st_size
    if size <= HEAD_BYTES:
        raise RingError(f"a ring of {size} bytes")
    map = mmap.mmap(fd, size)
    words = memoryview(map)[:128].cast("Q")
    if (words[IS], words[HAS], words[SIZE]) != (MAGIC, LAYOUT, size - HEAD_BYTES):
        words.release()
        map.close()
        raise RingError("a ring of another version")
    return map, words, size - HEAD_BYTES


def newest(map: mmap.mmap, words: memoryview[int]) -> tuple[int, tuple[int, ...]]:
    """The writer's slot that counts, and its version."""
    while True:
        version = words[WRITTEN]
        counts = WRITER.unpack_from(map, WRITER_SLOTS[version & 1])
        if words[WRITTEN] - version < 2:  # otherwise it may have been written over meanwhile
            return version, counts


def account_of(map: mmap.mmap, words: memoryview[int]) -> RingAccount:
    tail = words[TAIL]  # before the head, which only grows
    _, (head, packets, size, lost_packets, lost_bytes, *_) = newest(map, words)
    return RingAccount(packets, size, lost_packets, lost_bytes, head - tail)
