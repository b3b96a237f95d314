"""Receives the packets of watched sources of one daemon, and packs them, in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import structlog
import zmq

from daemon.clock import Clock
from daemon.dashboard.muxer import Output, SourceVideo
from daemon.peers.addresses import DaemonAddress
from daemon.peers.subscription import subscriber
from daemon.system.stop_token import StopToken
from lookout.messages import Owner, decode_packet, topic, watched_source

log = structlog.get_logger(__name__)
_IDLE_MS = 1000
_GATHER_S = 0.005
_HIGH_WATER = 2000  # packets that wait here
_MAX_BATCH = 256

Made = tuple[str, Sequence[Output], float | None]
"""A source, what its packets gave, and the interval of its key pictures, seconds."""


class PacketLink(threading.Thread):
    """Receives until `close`.

    Args:
        deliver: called in this thread with what the packets gave; False if the last call is still being worked on.
        admits: whether a packet is of its source's newest owner.
    """

    def __init__(
        self,
        address: DaemonAddress,
        clock: Clock,
        deliver: Callable[[Sequence[Made]], bool],
        admits: Callable[[str, Owner | None], bool],
    ) -> None:
        super().__init__(name=f"packets-{address.name}", daemon=True)
        self._address, self._clock, self._deliver, self._admits = address, clock, deliver, admits
        self._zmq = zmq.Context()
        self._ending = StopToken()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waker, False)
        self._endpoint: str | None = None  # set by any thread, as is the next
        self._wanted: frozenset[str] = frozenset()
        self._videos: dict[str, SourceVideo] = {}
        self._made: list[Made] = []  # not delivered yet

    def want(self, endpoint: str | None, sources: Iterable[str]) -> None:
        """Receive the packets of these sources, and of no others; any thread may call it."""
        self._endpoint, self._wanted = endpoint, frozenset(sources)
        self._ring()

    def close(self) -> None:
        self._ending.set()
        self._ring()
        if self.ident is not None:
            self.join(2.0)

    def run(self) -> None:
        try:
            while not self._ending.is_set:
                if self._endpoint is None:
                    self._wait_for_endpoint()
                else:
                    self._serve(self._endpoint)
        except Exception:
            log.exception("live video of a daemon failed", daemon=self._address.name)
        finally:
            self._zmq.destroy(linger=0)
            for fd in (self._wake, self._waker):
                with suppress(OSError):
                    os.close(fd)

    def _ring(self) -> None:
        with suppress(OSError):
            os.write(self._waker, b".")

    def _wait_for_endpoint(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        if poller.poll(_IDLE_MS):
            self._silence()

    def _silence(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _serve(self, endpoint: str) -> None:
        """Receive from one endpoint until there is another."""
        socket = self._connect(endpoint)
        subscribed: frozenset[str] = frozenset()
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._wake, zmq.POLLIN)
        while not self._ending.is_set and self._endpoint == endpoint:
            if subscribed != self._wanted:
                subscribed = self._subscribe(socket, subscribed, self._wanted)
            came = dict(poller.poll(10 if self._made else _IDLE_MS))
            if self._wake in came:
                self._silence()
            if socket in came or self._made:
                self._clock.wait(self._ending, _GATHER_S)
                self._receive(socket)
        self._videos.clear()
        socket.close(linger=0)

    def _connect(self, endpoint: str) -> zmq.Socket[bytes]:
        socket = subscriber(self._zmq, self._address, _HIGH_WATER)
        socket.connect(endpoint)
        return socket

    def _subscribe(self, socket: zmq.Socket[bytes], old: frozenset[str], new: frozenset[str]) -> frozenset[str]:
        for source in old - new:
            socket.setsockopt(zmq.UNSUBSCRIBE, topic("packets", source))
            self._videos.pop(source, None)
        for source in new - old:
            socket.setsockopt(zmq.SUBSCRIBE, topic("packets", source))
        return new

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(_MAX_BATCH):
            if len(self._made) >= _MAX_BATCH:
                break
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            source = watched_source(frames[0])
            if len(frames) == 3 and source in self._wanted and source is not None:
                self._add(source, frames[1], frames[2])
        if self._made and self._deliver(self._made):
            self._made = []

    def _add(self, source: str, header: bytes, data: bytes) -> None:
        video = self._videos.setdefault(source, SourceVideo())
        try:
            packet = decode_packet(header)
            found = video.add(packet, data, self._clock.monotonic_ns()) if self._admits(source, packet.owner) else []
        except ValueError as error:
            log.warning("a packet is not understood", source=source, reason=str(error)[:200])
            return
        if found:
            self._made.append((source, found, video.key_interval_s))
