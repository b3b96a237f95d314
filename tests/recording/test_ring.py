"""A ring in shared memory: nothing is lost in silence, whoever is killed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import msgspec
import pytest

from daemon.recording.records import LostRecord, PacketRecord, Record, StreamRecord
from daemon.recording.ring import MAX_STATE_BYTES, Ring, RingError, RingReader, RingWriter
from tests.lifetimes.rig import wait_until
from tests.recording.ring_peers import Reads, Writes, begin, info, payload

_SIZE = 1 << 20


@pytest.fixture
def ring() -> Iterator[Ring]:
    with closing(Ring("test", _SIZE)) as ring:
        yield ring


@pytest.fixture
def writer(ring: Ring) -> Iterator[RingWriter]:
    with closing(RingWriter(ring.fd)) as writer:
        yield writer


@pytest.fixture
def reader(ring: Ring) -> Iterator[RingReader]:
    with closing(RingReader(ring.fd)) as reader:
        yield reader


def put(writer: RingWriter, number: int, session: str = "a", *, key: bool = True, size: int | None = None) -> bool:
    data = payload(number) if size is None else bytes(size)
    return writer.put_packet(session, info(number, key=key), data, boot=number, utc=number + 1)


def taken(reader: RingReader) -> list[Record]:
    """All that is there, without payloads, and committed."""
    found: list[Record] = []
    for record in reader.read(reader.tail):
        if isinstance(record, PacketRecord):
            assert record.data == payload(record.number)
            found.append(msgspec.structs.replace(record, data=memoryview(b"")))
        else:
            found.append(record)
    if found:
        reader.commit(found[-1].end, b"")
    return found


def wait_for_packets(ring: Ring) -> None:
    before = ring.account.packets
    wait_until(lambda: ring.account.packets > before, "packets come")


def test_every_packet_comes_once_and_in_order_over_many_laps(writer: RingWriter, reader: RingReader) -> None:
    dice, sent, came = random.Random(1), 0, []
    while writer.account.bytes < 12 * _SIZE:
        for _ in range(dice.randrange(1, 120)):
            assert put(writer, sent)
            sent += 1
        came += taken(reader)
    packets = [record for record in came if isinstance(record, PacketRecord)]
    assert [record.number for record in packets] == [*range(sent)]
    assert all((row.pts, row.dts, row.key, row.boot, row.utc) ==
               (row.number * 10, row.number * 10 - 5, True, row.number, row.number + 1) for row in packets)  # fmt: skip
    assert isinstance(came[0], StreamRecord)
    assert len(came) == sent + 1
    assert writer.account == reader.account
    assert writer.account.waiting_bytes == 0


def test_a_stream_is_told_before_its_first_packet(writer: RingWriter, reader: RingReader) -> None:
    """By the connection, and by what a decoder must know."""
    for session, width in [("a", 640), ("a", 640), ("a", 320), ("b", 320)]:
        assert writer.put_packet(session, info(0, width=width, pts=None), payload(0), boot=0, utc=0)
    told = [record.stream if isinstance(record, StreamRecord) else None for record in reader.read(0)]
    assert [stream and (stream.session, stream.width) for stream in told] == [
        ("a", 640), None, None, ("a", 320), None, ("b", 320), None,
    ]  # fmt: skip


def test_a_connection_that_another_has_followed_is_not_heard_any_more(writer: RingWriter) -> None:
    assert put(writer, 0, "a")
    assert put(writer, 1, "b")
    assert not put(writer, 2, "a")
    assert writer.account.packets == 2
    assert writer.account.lost_packets == 0


def test_a_full_ring_drops_the_newest_until_the_next_key_picture_and_says_so(
    writer: RingWriter, reader: RingReader
) -> None:
    sent = 0
    while put(writer, sent, key=sent == 0):
        sent += 1
    assert writer.is_full
    assert not put(writer, 7000, key=True, size=9000)  # there is no room for it either
    before = taken(reader)
    assert [record.number for record in before if isinstance(record, PacketRecord)] == [*range(sent)]
    assert not put(writer, 8000, key=False)  # there is room, but nobody can decode it
    assert put(writer, sent, key=True)
    lost, packet = taken(reader)
    assert isinstance(lost, LostRecord)
    size = len(payload(sent)) + 9000 + len(payload(8000))
    assert lost[:6] == (3, size, sent + 1, sent, 8001, 8000)
    assert isinstance(packet, PacketRecord)
    assert packet.number == sent
    assert writer.account[2:4] == (3, size)


def test_what_was_lost_is_told_even_if_the_process_that_lost_it_was_killed(ring: Ring, reader: RingReader) -> None:
    with closing(RingWriter(ring.fd)) as first:
        while put(first, first.account.packets):
            pass
    assert len(taken(reader)) > 100
    with closing(RingWriter(ring.fd)) as second:
        assert second.is_full
        assert put(second, second.account.packets, "b")
        assert [type(record) for record in taken(reader)] == [LostRecord, StreamRecord, PacketRecord]
        assert ring.account.lost_packets == 1


def test_a_packet_that_never_fits_is_lost_alone(writer: RingWriter, reader: RingReader) -> None:
    assert not put(writer, 0, size=2 * _SIZE)
    assert put(writer, 0)
    assert [type(record) for record in taken(reader)] == [LostRecord, StreamRecord, PacketRecord]


def test_a_writer_that_was_left_behind_writes_no_more(ring: Ring, writer: RingWriter, reader: RingReader) -> None:
    assert put(writer, 0, "a")
    with closing(RingWriter(ring.fd)) as successor:
        assert not put(writer, 9, "a")
        assert put(successor, 1, "b")
        assert not put(writer, 9, "a")
        writer.attach()
        assert put(writer, 2, "c")
        assert not put(successor, 9, "b")
    successor.attach()
    assert not put(successor, 9, "b")  # closed
    numbers = [record.number for record in taken(reader) if isinstance(record, PacketRecord)]
    assert numbers == [0, 1, 2]


def test_memory_is_used_again_and_given_back_when_it_is_not_needed() -> None:
    """While little waits, a few pages do; those of a backlog go when it was read."""
    with (
        closing(Ring("large", 16 * _SIZE)) as ring,
        closing(RingWriter(ring.fd)) as writer,
        closing(RingReader(ring.fd)) as reader,
    ):
        most, number = 0, 0
        while writer.account.bytes < 20 * _SIZE:
            while writer.account.waiting_bytes < _SIZE // 4:
                assert put(writer, number)
                number += 1
            most = max(most, ring.memory)
            taken(reader)
        assert most < 1.5 * _SIZE
        while put(writer, number):
            number += 1
        assert ring.memory > 15 * _SIZE
        assert ring.account.waiting_bytes > 15 * _SIZE
        taken(reader)
        assert ring.memory < 4 * _SIZE


@pytest.mark.parametrize("seed", range(3))
def test_any_history_gives_the_packets_in_order(seed: int, ring: Ring) -> None:
    """Backlogs, full rings, packets of any size, ends that are made anew: a number is a packet, byte for byte."""
    dice, writer, reader = random.Random(seed), RingWriter(ring.fd), RingReader(ring.fd)
    expected, lost, told, session = 0, 0, 0, 0
    for _ in range(150):
        for _ in range(dice.randrange(80)):
            size, number = dice.choice([0, 7, 900, 30_000, 90_000]), writer.account.packets
            data = number.to_bytes(8, "big") * (size // 8)
            kind = info(number, key=dice.random() < 0.3, width=dice.choice([640, 640, 640, 320]))
            lost += not writer.put_packet(str(session), kind, data, boot=number, utc=0)
        what = dice.choice(["all", "some", "some", "nothing", "writer", "reader"])
        if what == "writer":
            session += 1
            writer.close()
            writer = RingWriter(ring.fd)
        elif what == "reader":
            reader.close()
            reader = RingReader(ring.fd)
        elif what != "nothing":
            tail = reader.tail
            for record in reader.read(tail, limit_bytes=None if what == "all" else dice.randrange(1, _SIZE)):
                tail = record.end
                if isinstance(record, PacketRecord):
                    assert (record.number, record.pts) == (expected, 10 * expected)
                    assert record.data == expected.to_bytes(8, "big") * (len(record.data) // 8)
                    expected += 1
                elif isinstance(record, LostRecord):
                    told += record.packets
                del record
            reader.commit(tail, b"")
    assert writer.account.packets > 1000
    assert writer.account.lost_packets == lost > 100
    assert told <= lost
    reader.close()
    writer.close()


def test_a_reader_goes_on_where_the_one_before_has_committed(
    ring: Ring, writer: RingWriter, reader: RingReader
) -> None:
    for number in range(10):
        put(writer, number)
    records = [*reader.read(0)]
    reader.commit(records[4].end, b"so far")
    with closing(RingReader(ring.fd)) as successor:
        assert successor.state == b"so far"
        again = [record for record in successor.read(successor.tail) if isinstance(record, PacketRecord)]
        assert [record.number for record in again] == [4, 5, 6, 7, 8, 9]
        assert [*successor.read(again[0].offset, limit_bytes=1)] == again[:1]
        del again
    del records


def test_a_commit_is_refused_that_would_break_the_ring(writer: RingWriter, reader: RingReader) -> None:
    put(writer, 0)
    put(writer, 1)
    reader.commit(reader.head, bytes(MAX_STATE_BYTES))
    for tail, state in [(0, b""), (reader.head + 8, b""), (reader.head, bytes(MAX_STATE_BYTES + 1))]:
        with pytest.raises(ValueError, match="a commit of"):
            reader.commit(tail, state)


def test_nobody_can_make_a_ring_shorter_for_the_others(ring: Ring) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(ring.fd, 4096)


def test_a_file_that_is_no_ring_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", bytes(_SIZE)):
        path.write_bytes(content)
        with path.open("r+b") as file, pytest.raises(RingError):
            RingReader(file.fileno())


def test_a_damaged_ring_is_an_error_and_no_crash(ring: Ring, writer: RingWriter, reader: RingReader) -> None:
    put(writer, 0)
    put(writer, 1)
    first = next(reader.read(0))
    os.pwrite(ring.fd, bytes([255]) * 8, 256 * 1024 + first.end)
    with pytest.raises(RingError, match=f"no record at byte {first.end}"):
        list(reader.read(0))


@pytest.mark.parametrize("kills", [12, pytest.param(100, marks=pytest.mark.long)])
def test_kills_of_either_end_lose_nothing(kills: int, ring: Ring, tmp_path: Path) -> None:
    """Each packet is in the reader's file once, in order, over all processes, byte for byte."""
    dice, pause = random.Random(kills), Event()
    with (tmp_path / "numbers").open("w+b") as file:
        writing, reading = begin(Writes("0", _SIZE), ring.fd), begin(Reads(), ring.fd, file.fileno())
        try:
            for session in range(kills):
                wait_for_packets(ring)
                pause.wait(dice.random() * 0.03)
                which = dice.choice(["writer", "reader", "both"])
                for process in (writing,) * (which != "reader") + (reading,) * (which != "writer"):
                    process.kill()
                    process.wait()
                if which != "reader":
                    writing = begin(Writes(str(session + 1), _SIZE), ring.fd)
                if which != "writer":
                    reading = begin(Reads(), ring.fd, file.fileno())
            writing.kill()
            writing.wait()
            wait_until(lambda: ring.account.waiting_bytes == 0, "all is read")
        finally:
            for process in (writing, reading):
                process.kill()
                process.wait()
        file.seek(0)
        numbers = [int(line) for line in file]
    assert numbers == [*range(ring.account.packets)]
    assert ring.account.lost_packets == 0
