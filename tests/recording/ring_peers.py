"""The two ends of a ring, as processes that are killed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from threading import Event
from typing import Any

from daemon.recording.records import PacketRecord
from daemon.recording.ring import RingReader, RingWriter
from daemon.sources.port import PacketInfo
from daemon.system.children import Child, spawn


@dataclass(frozen=True)
class Writes:
    """Puts packets without end; it waits while the ring is half full.

    Attributes:
        session: of this process.
    """

    session: str
    size: int


@dataclass(frozen=True)
class Reads:
    """Appends the number of each packet to a file, which it cuts to what was committed when it begins."""


def begin(order: Writes | Reads, *fds: int) -> Child:
    return spawn("tests.recording.ring_peers", order, fds)


def main(order: Writes | Reads, ring: int, *files: int) -> int:
    if isinstance(order, Writes):
        _write(order, RingWriter(ring))
    _read(RingReader(ring), *files)
    return 0


def payload(number: int) -> bytes:
    return number.to_bytes(8, "big") * (20 + number * 7919 % 1000)


def info(number: int = 0, *, key: bool = True, **changes: Any) -> PacketInfo:
    facts = {"codec": "h264", "extradata": b"\1extra", "time_base": (1, 90000), "width": 1920, "height": 1080,
             "turns": 0, "pts": number * 10, "dts": number * 10 - 5, "key": key, **changes}  # fmt: skip
    return PacketInfo(**facts)


def _write(order: Writes, writer: RingWriter) -> None:
    pause = Event()
    while True:
        while writer.account.waiting_bytes > order.size // 2:
            pause.wait(0.001)
        number = writer.account.packets
        writer.put_packet(order.session, info(number), payload(number), boot=number, utc=number)


def _read(reader: RingReader, file: int) -> None:
    pause = Event()
    os.ftruncate(file, int(reader.state or b"0"))
    os.lseek(file, 0, os.SEEK_END)
    while True:
        tail, count = reader.tail, 0
        for record in reader.read(tail):
            tail, count = record.end, count + 1
            if isinstance(record, PacketRecord):
                is_whole = record.data == payload(record.number)
                os.write(file, b"%d\n" % (record.number if is_whole else -1))
            if count == 20:
                reader.commit(tail, str(os.lseek(file, 0, os.SEEK_CUR)).encode())
                count = 0
        if count:
            reader.commit(tail, str(os.lseek(file, 0, os.SEEK_CUR)).encode())
        pause.wait(0.001)
