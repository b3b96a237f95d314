"""The video of a source, packet by packet as its camera sent it, while somebody watches.

with PacketSubscriber("tcp://127.0.0.1:5556", "street") as packets:
    for packet in packets:
        print(packet.header.pts, packet.header.key, len(packet.data))
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns as _now_ns
from types import TracebackType
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import zmq

from lookout.client import Connection
from lookout.epochs import Epochs
from lookout.errors import LookoutError
from lookout.messages import Packet, Packets, decode, decode_packet, topic

_POLL_MS = 500
_ANYWHERE = {"0.0.0.0", "::", "*", ""}  # noqa: S104 - not bound here
PacketSubscriberT = TypeVar("PacketSubscriberT", bound="PacketSubscriber")


class VideoPacket(NamedTuple):
    """One packet.

    Attributes:
        data: as the camera sent it.
    """

    header: Packet
    data: bytes


class PacketSubscriber:
    """The packets of one source; use it from one thread. The daemon copies them while this is open, and no longer.

    Iteration yields every packet and waits without limit; `receive` has a time limit. A daemon that starts again is
    found again.

    Args:
        endpoint: of the daemon's messages, such as tcp://127.0.0.1:5556; it says where packets are.
        source: its id.
        server_key, secret_key: as for `lookout.client.Subscriber`.
        high_water_mark: packets that may wait here; ZeroMQ drops more.

    Attributes:
        lost: packets that did not arrive, from gaps in their `index`; a decoder goes on at the next `key`.

    Raises:
        ConfigError: the endpoint or key is not one.
    """

    def __init__(
        self,
        endpoint: str,
        source: str,
        *,
        server_key: str | Path | None = None,
        secret_key: Path | None = None,
        high_water_mark: int = 1000,
    ) -> None:
        self.lost = 0
        self._asked, self._source = endpoint, source
        self._keys, self._high_water_mark = (server_key, secret_key), high_water_mark
        self._next: tuple[str, int] | None = None  # instance and index
        self._epochs = Epochs()
        self._told: str | None = None
        self._video: Connection | None = None
        self._context, self._poller = zmq.Context(), zmq.Poller()
        try:
            self._question = self._connection(endpoint)
        except BaseException:
            self._context.term()
            raise

    def __enter__(self: PacketSubscriberT) -> PacketSubscriberT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[VideoPacket]:
        while True:
            packet = self.receive(_POLL_MS / 1000)
            if packet is not None:
                yield packet

    def receive(self, timeout_s: float) -> VideoPacket | None:
        """The next packet, or None when the time is over.

        Raises:
            LookoutError: the daemon publishes no packets, and says why.
            ValueError: what came is not of the wire's version 1.
        """
        until = _now_ns() + round(timeout_s * 1e9)
        while True:
            ready = dict(self._poller.poll(max(0, (until - _now_ns()) // 1_000_000)))
            if self._question.socket in ready:
                self._answered(decode(*self._question.socket.recv_multipart()))
            elif self._video is not None and self._video.socket in ready:
                packet = self._read(self._video)
                if packet is not None:
                    return packet
            if _now_ns() >= until:
                return None

    def close(self) -> None:
        """More than once is fine."""
        self._context.destroy(linger=0)

    # ---------------------------------------------------------------------------------------------------------------

    def _connection(self, endpoint: str) -> Connection:
        """A socket that has asked for the packets: at the daemon's endpoint where they are, there for them."""
        name = topic("packets", self._source)
        connection = Connection(self._context, endpoint, self._keys, [name], self._high_water_mark)
        self._poller.register(connection.socket, zmq.POLLIN)
        return connection

    def _answered(self, answer: object) -> None:
        if not isinstance(answer, Packets):
            return
        if answer.endpoint is None:
            raise LookoutError(f"source {self._source}: no packets come: {answer.reason}")
        if answer.endpoint == self._told:
            return  # to somebody else who asked
        if self._video is not None:
            self._poller.unregister(self._video.socket)
            self._video.socket.close(linger=0)
            self._video = None
        self._video = self._connection(reachable(answer.endpoint, self._asked))
        self._told = answer.endpoint

    def _read(self, video: Connection) -> VideoPacket | None:
        _, header, data = video.socket.recv_multipart()
        packet = decode_packet(header)
        if not self._epochs.admits(packet.source, packet.owner):
            return None
        if self._next is not None and self._next[0] == packet.instance:
            self.lost += max(0, packet.index - self._next[1])
        self._next = packet.instance, packet.index + 1
        return VideoPacket(packet, data)


def reachable(endpoint: str, asked: str | None) -> str:
    """An endpoint that a daemon told, with the host of the address at which it was asked in place of a wildcard."""
    scheme, _, address = endpoint.partition("://")
    found, colon, port = address.rpartition(":")
    if scheme == "tcp" and found.strip("[]") in _ANYWHERE:
        host = (urlsplit(asked).hostname if asked else None) or "127.0.0.1"
        found = f"[{host}]" if ":" in host else host
    return "".join((scheme, "://", found, colon, port))
