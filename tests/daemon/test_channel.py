"""The socket between the daemon, which never waits for it, and a capture process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from daemon.capture.processes.channel import Channel, NoDescriptorError, pair
from daemon.capture.processes.protocol import FromCapture, Heartbeat, NewMemory, Remove, ToCapture
from tests.support.descriptors import no_descriptors


@contextmanager
def _channels() -> Iterator[tuple[Channel, Channel]]:
    mine, theirs = pair()
    daemon, process = Channel(mine, FromCapture), Channel(theirs, ToCapture)
    try:
        yield daemon, process
    finally:
        daemon.close()
        process.close()


def test_the_daemon_receives_packets_one_by_one_and_then_none() -> None:
    with _channels() as (daemon, process):
        assert daemon.receive() == ([], None)
        process.send([Heartbeat(1), Heartbeat(2)])
        process.send([Heartbeat(3)])
        assert daemon.receive() == ([Heartbeat(1), Heartbeat(2)], None)
        assert daemon.receive() == ([Heartbeat(3)], None)
        assert daemon.receive() == ([], None)


def test_a_descriptor_comes_with_its_packet() -> None:
    with _channels() as (daemon, process), open(os.devnull, "rb") as file:
        process.send([NewMemory(0, 1, device=False)], file.fileno())
        process.send([Heartbeat(1)])
        received = daemon.receive()
        assert received is not None
        assert received[0] == [NewMemory(0, 1, device=False)]
        assert received[1] is not None
        assert os.path.sameopenfile(received[1], file.fileno())
        os.close(received[1])
        assert daemon.receive() == ([Heartbeat(1)], None)


def test_a_full_socket_takes_no_packet_until_there_is_room() -> None:
    with _channels() as (daemon, process):
        sent = 0
        while daemon.send([Remove(sent)]):
            sent += 1
        assert [process.receive() for _ in range(sent)] == [([Remove(number)], None) for number in range(sent)]
        assert daemon.send([Remove(sent)])


def test_a_descriptor_for_which_the_socket_has_no_room_comes_once_there_is_some() -> None:
    """At whatever packet the room has ended."""
    for spare in range(4):
        with _channels() as (daemon, process), open(os.devnull, "rb") as file:
            sent = 0
            while daemon.send([Remove(sent)]):
                sent += 1
            received = [process.receive() for _ in range(spare)]
            is_sent = daemon.send([Remove(-1)], file.fileno())
            received += [process.receive() for _ in range(sent - spare)]
            assert received == [([Remove(number)], None) for number in range(sent)]
            assert is_sent or daemon.send([Remove(-1)], file.fileno())
            daemon.send([Remove(-2)])
            (with_fd, fd), last = process.receive(), process.receive()  # type: ignore[misc]
            assert (with_fd, last) == ([Remove(-1)], ([Remove(-2)], None))
            assert fd is not None
            os.close(fd)


def test_a_packet_comes_without_its_descriptor_where_none_is_free() -> None:
    with _channels() as (daemon, process), open(os.devnull, "rb") as file:
        daemon.send([Remove(1)], file.fileno())
        daemon.send([Remove(2)])
        with no_descriptors(), pytest.raises(NoDescriptorError):
            process.receive()
        assert process.receive_without_descriptor() == [Remove(1)]
        assert process.receive() == ([Remove(2)], None)


def test_what_was_sent_before_the_end_is_received() -> None:
    with _channels() as (daemon, process):
        process.send([Heartbeat(1)])
        process.close()
        with pytest.raises(BrokenPipeError):
            daemon.send([Remove(0)])
        assert daemon.receive() == ([Heartbeat(1)], None)
        assert daemon.receive() is None


def test_a_closed_channel_is_an_error() -> None:
    """Its descriptor may be another file's by now."""
    with _channels() as (daemon, _):
        daemon.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            daemon.receive()
        with pytest.raises(OSError, match="Bad file descriptor"):
            daemon.send([Remove(0)])
