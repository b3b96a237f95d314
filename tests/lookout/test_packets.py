"""Live video for a program: where it is, what is lost of it, and a daemon that gives none or starts again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from lookout.errors import ConfigError, LookoutError
from lookout.messages import Owner, Packet, Packets, encoder, topic
from lookout.packets import PacketSubscriber, reachable
from lookout.testing import Publisher
from tests.support.daemon import PATIENCE_S


class Video:
    """A daemon's second socket."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._socket = context.socket(zmq.XPUB)
        self.port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{self.port}"

    def wait_for_demand(self) -> bytes:
        assert self._socket.poll(round(PATIENCE_S * 1000)), "nobody wants packets"
        return self._socket.recv()

    def send(self, index: int, instance: str = "run1", owner: Owner | None = None) -> None:
        packet = Packet(instance=instance, source="door", session="s", index=index, codec="h264", extradata=b"\1sets",
                        time_base=(1, 90000), width=640, height=360, turns=0, pts=index * 40, dts=None, key=not index,
                        owner=owner)  # fmt: skip
        self._socket.send_multipart([topic("packets", "door"), encoder("msgpack")(packet), b"unit %d" % index])


@pytest.fixture
def videos() -> Iterator[list[Video]]:
    """Two of them."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield [Video(context), Video(context)]
    context.destroy(linger=0)


@pytest.fixture
def daemon() -> Iterator[Publisher]:
    with Publisher(timeout_s=PATIENCE_S) as found:
        yield found


@pytest.fixture
def packets(daemon: Publisher) -> Iterator[PacketSubscriber]:
    with PacketSubscriber(daemon.endpoint, "door") as found:
        yield found


def _answer(endpoint: str | None, reason: str | None = None) -> Packets:
    return Packets(instance="", source="door", index=0, endpoint=endpoint, reason=reason)


def _watched(daemon: Publisher, packets: PacketSubscriber, video: Video) -> None:
    """Until packets are wanted of the second socket."""
    daemon.wait_for_subscription(b"packets/door/")
    daemon.send(_answer(video.endpoint))
    while packets._video is None:
        assert packets.receive(0.05) is None
    assert video.wait_for_demand() == b"\1packets/door/"


def _received(packets: PacketSubscriber, count: int) -> list[int]:
    rows = [packets.receive(PATIENCE_S) for _ in range(count)]
    assert [row.data for row in rows if row] == [b"unit %d" % row.header.index for row in rows if row]
    return [row.header.index for row in rows if row]


def test_packets_come_as_they_were_sent(daemon: Publisher, packets: PacketSubscriber, videos: list[Video]) -> None:
    video, _ = videos
    _watched(daemon, packets, video)
    daemon.send(_answer(video.endpoint))  # somebody else asks: the same once more
    for index in range(3):
        video.send(index)
    first = packets.receive(PATIENCE_S)
    assert first is not None
    assert (first.header.extradata, first.header.key, first.header.pts) == (b"\1sets", True, 0)
    assert _received(packets, 2) == [1, 2]
    assert packets.lost == 0
    assert packets.receive(0) is None


def test_a_gap_is_a_loss_and_another_run_is_none(
    daemon: Publisher, packets: PacketSubscriber, videos: list[Video]
) -> None:
    video, _ = videos
    _watched(daemon, packets, video)
    for index, instance in ((0, "run1"), (3, "run1"), (0, "run1"), (9, "run2"), (10, "run2")):
        video.send(index, instance)
    assert _received(packets, 5) == [0, 3, 0, 9, 10]
    assert packets.lost == 2


def test_a_daemon_that_starts_again_is_found_again(
    daemon: Publisher, packets: PacketSubscriber, videos: list[Video]
) -> None:
    """Its second socket has another port."""
    first, second = videos
    _watched(daemon, packets, first)
    daemon.restart()
    daemon.send(_answer(second.endpoint))
    while (old := packets._told) != second.endpoint:
        assert packets.receive(0.05) is None, old
    second.wait_for_demand()
    second.send(0, "run2")
    assert _received(packets, 1) == [0]


def test_packets_of_a_former_owner_are_left_out(
    daemon: Publisher, packets: PacketSubscriber, videos: list[Video]
) -> None:
    video, _ = videos
    _watched(daemon, packets, video)
    video.send(0, owner=Owner("new", 2, "north"))
    video.send(1, owner=Owner("old", 1, "north"))
    video.send(2, owner=Owner("new", 2, "north"))
    assert _received(packets, 2) == [0, 2]


def test_a_daemon_without_packets_says_so_in_one_line(daemon: Publisher, packets: PacketSubscriber) -> None:
    daemon.wait_for_subscription(b"packets/door/")
    daemon.send(_answer(None, "publisher.packets is off"))
    with pytest.raises(LookoutError, match=r"^source door: no packets come: publisher\.packets is off$"):
        packets.receive(PATIENCE_S)


def test_an_endpoint_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="no port"):
        PacketSubscriber("tcp://127.0.0.1", "door")


@pytest.mark.parametrize(
    ("told", "asked", "found"),
    [
        ("tcp://127.0.0.1:7", "tcp://10.0.0.7:5556", "tcp://127.0.0.1:7"),
        ("tcp://0.0.0.0:7", "tcp://10.0.0.7:5556", "tcp://10.0.0.7:7"),
        ("tcp://*:7", "tcp://hall.example:5556", "tcp://hall.example:7"),
        ("tcp://[::]:7", "tcp://[fe80::1]:5556", "tcp://[fe80::1]:7"),
        ("tcp://0.0.0.0:7", None, "tcp://127.0.0.1:7"),
        ("ipc:///run/lookout.packets", "ipc:///run/lookout", "ipc:///run/lookout.packets"),
    ],
)
def test_a_wildcard_is_the_host_that_was_asked(told: str, asked: str | None, found: str) -> None:
    assert reachable(told, asked) == found
