"""The socket between the daemon, which never waits for it, and a capture process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from daemon.capture.processes.channel import Channel, pair
from daemon.capture.processes.protocol import FromCapture, Heartbeat, NewMemory, Remove, ToCapture


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
