"""`python -m tests.bench rings`: packets of cameras into rings of recording, and one reader that takes all of them.

The writers are processes that put packets at the rate of their cameras, and do nothing else. The reader goes through
all records twice a second, as a recorder does, and commits them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from threading import Event
from time import monotonic, process_time, thread_time

from daemon.recording.records import PacketRecord
from daemon.recording.ring import UNIT_BYTES, Ring, RingReader, RingWriter
from daemon.sources.port import PacketInfo
from daemon.system.children import Child, spawn

_COST_PACKETS = 6_000
_COLD_PACKETS, _COLD_BYTES = 400, 32 << 20
_TURN_S = 0.5
_GOP = 60
_INFO = PacketInfo("h264", bytes(40), (1, 90000), 1920, 1080, 0, 0, 0, key=True)


@dataclass(frozen=True)
class RingsOptions:
    """Options of the measurement; see `python -m tests.bench rings --help`."""

    rings: int = 240
    packet_bytes: int = 17_000
    fps: float = 30.0
    seconds: float = 10.0
    writers: int = 2
    ring_mib: int = 16


@dataclass(frozen=True)
class Load:
    """The work of one writer.

    Attributes:
        pid: the process that holds the rings, by these descriptors.
    """

    pid: int
    fds: Sequence[int]
    packet_bytes: int
    fps: float
    seconds: float


@dataclass(frozen=True)
class RingsFound:
    """
    Attributes:
        us_one, us_all: CPU of a packet into one ring, and into each of all in turns.
        us_cold: into one, where other work has filled the caches between two packets.
        writers_cpu, reader_cpu: shares of a core.
        memory: most bytes of all rings together.
    """

    us_one: float
    us_all: float
    us_cold: float
    mb_per_s: float
    packets: int
    lost: int
    read: int
    writers_cpu: float
    reader_cpu: float
    memory: int


def rings(options: RingsOptions) -> RingsFound:
    """Run and measure."""
    us_one, us_all = cost(options, 1), cost(options, options.rings)
    with ExitStack() as stack:
        made = [stack.enter_context(closing(_ring(number, options))) for number in range(options.rings)]
        readers = [stack.enter_context(closing(RingReader(ring.fd))) for ring in made]
        spread = [[ring.fd for ring in made[number :: options.writers]] for number in range(options.writers)]
        end = os.pipe()
        begun, cpu = monotonic(), process_time()
        children = [
            spawn(__name__, Load(os.getpid(), fds, options.packet_bytes, options.fps, options.seconds), [end[1]])
            for fds in spread
        ]
        os.close(end[1])
        read, memory = _read_until_ended(children, readers, made)
        lasted, cpu = monotonic() - begun, process_time() - cpu
        accounts = [ring.account for ring in made]
        with open(end[0], "rb") as file:
            of_writers = sum(map(float, file.read().split()))
    size = sum(account.bytes for account in accounts)
    return RingsFound(
        us_one, us_all, cold_cost(options), size / options.seconds / 1e6, sum(account.packets for account in accounts),
        sum(account.lost_packets for account in accounts), read, of_writers / options.seconds, cpu / lasted, memory,
    )  # fmt: skip


def cost(options: RingsOptions, count: int) -> float:
    """CPU of a packet into some rings in turns, us; half a second of packets lies in each before it is read."""
    data, turn = bytes(options.packet_bytes), max(1, round(options.fps * _TURN_S))
    with ExitStack() as stack:
        made = [stack.enter_context(closing(_ring(number, options))) for number in range(count)]
        writers = [stack.enter_context(closing(RingWriter(ring.fd))) for ring in made]
        readers = [stack.enter_context(closing(RingReader(ring.fd))) for ring in made]
        used, turns = 0.0, max(3, _COST_PACKETS // (turn * count))
        for number in range(-2, turns):  # the first ones warm up
            begun = thread_time()
            for _ in range(turn):
                for writer in writers:
                    writer.put_packet("session", _INFO, data, boot=1, utc=1)
            used += thread_time() - begun if number >= 0 else 0
            for reader in readers:
                reader.commit(reader.head, b"")
        return used / (turns * turn * count) * 1e6


def cold_cost(options: RingsOptions) -> float:
    """CPU of a packet into a ring, us, where other work has filled the caches between two packets."""
    data, others = [bytes(options.packet_bytes) for _ in range(_COLD_PACKETS)], bytearray(_COLD_BYTES)
    with ExitStack() as stack:
        ring = stack.enter_context(closing(_ring(0, options)))
        writer, reader = (
            stack.enter_context(closing(RingWriter(ring.fd))),
            stack.enter_context(closing(RingReader(ring.fd))),
        )
        used = 0.0
        for packet in data:
            others[:] = bytes(_COLD_BYTES)
            begun = thread_time()
            writer.put_packet("session", _INFO, packet, boot=1, utc=1)
            used += thread_time() - begun
            reader.commit(reader.head, b"")
        return used / len(data) * 1e6


def main(load: Load, told: int) -> int:
    """A writer: tells its CPU, seconds."""
    pause, data = Event(), bytes(load.packet_bytes)
    with ExitStack() as stack:
        writers = [stack.enter_context(closing(_writer(load.pid, fd))) for fd in load.fds]
        begun, used = monotonic(), process_time()
        step, sent, count = 1 / (load.fps * len(writers)), 0, round(load.seconds * load.fps * len(writers))
        infos = _INFO, PacketInfo("h264", _INFO.extradata, (1, 90000), 1920, 1080, 0, 0, 0, key=False)
        while sent < count:
            due = min(count, int((monotonic() - begun) / step))
            for number in range(sent, due):
                info = infos[number // len(writers) % _GOP > 0]
                writers[number % len(writers)].put_packet("session", info, data, boot=number, utc=number)
            sent = max(sent, due)
            pause.wait(0.002)
        os.write(told, f"{process_time() - used}\n".encode())
    return 0


def _writer(pid: int, fd: int) -> RingWriter:
    with open(f"/proc/{pid}/fd/{fd}", "r+b", buffering=0) as file:
        return RingWriter(file.fileno())


def _ring(number: int, options: RingsOptions) -> Ring:
    return Ring(f"ring {number}", (options.ring_mib << 20) // UNIT_BYTES * UNIT_BYTES)


def _read_until_ended(
    children: Sequence[Child], readers: Sequence[RingReader], made: Sequence[Ring]
) -> tuple[int, int]:
    """Packets that were read, and the most memory."""
    pause, read, memory, is_last = Event(), 0, 0, False
    while not is_last:
        pause.wait(_TURN_S)
        is_last = all(child.poll() is not None for child in children)
        memory = max(memory, sum(ring.memory for ring in made))
        for reader in readers:
            tail = reader.tail
            for record in reader.read(tail):
                tail = record.end
                read += isinstance(record, PacketRecord)
                del record
            reader.commit(tail, b"where it is")
    return read, memory
