"""Packets of watched sources, on a socket of their own.

Video is much more than messages. On a socket of its own, with a low high-water mark, a subscriber that does not keep up
loses packets and no detections, and the daemon holds little for it. A subscription to exactly `packets/<source>/` is
the demand. Captures ask for each packet whether there is some.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import structlog
import zmq

from daemon.config.publisher import PublisherConfig
from daemon.errors import LookoutError
from daemon.lifecycle import ThreadPart
from daemon.publish.ownership_fence import Fence, may_send
from daemon.publish.subscribers import Subscribers
from daemon.publish.zeromq import ZeroMqSink, sender
from daemon.sources.port import PacketInfo
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse
from lookout.messages import Owner, Packet, Packets, encoder, topic, watched_source

log = structlog.get_logger(__name__)
_HIGH_WATER = 128  # packets that wait for one subscriber
_MAX_SUBSCRIBERS = 16  # connections; 16 x 128 packets of 17 kB are 35 MB
_MAX_WAITING = 16 << 20  # bytes before the socket; only a thread that gets no time leaves more
_GATHER_S = 0.015  # packets are gathered this long, so that this thread and ZeroMQ's wake less often
_POLL_EVERY = 5  # of these, for subscriptions
_IDLE_MS = 200
_OFF = "publisher.packets is off"


class _Waiting(NamedTuple):
    source: str
    session: str
    info: PacketInfo
    data: bytes
    owner: Owner | None


class PacketPublisher(ThreadPart):
    """Publishes packets. Its thread starts with the first question for them.

    Implements `daemon.capture.sinks.WatchedPackets`.

    Its failure ends live video and nothing else.

    Args:
        sink: has the keys.
        instance: id of the daemon's run.
        fence: asked before packets are sent.

    Attributes:
        watched: sources with a subscriber; another set whenever they change.
    """

    def __init__(
        self, sink: ZeroMqSink, config: PublisherConfig, instance: str, fence: Fence, runtime: Runtime
    ) -> None:
        super().__init__("packets", runtime, is_vital=False)
        self._sink, self._instance, self._fence = sink, instance, fence
        self._encode = encoder(config.encoding)
        self.watched: frozenset[str] = frozenset()
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0  # of `_waiting`
        self._index: Counter[str] = Counter()
        self._lock = threading.Lock()  # for the three above
        self._socket: zmq.Socket[bytes] | None = None
        self._endpoint: str | None = None
        self._reason: str | None = _OFF if config.packets == "off" else None
        self._let_in: frozenset[str] | None = None  # as the subscribers of packets know

    # --- for captures ----------------------------------------------------------------------------------------------

    def is_watched(self, source: str) -> bool:
        return source in self.watched

    def put_packet(self, source: str, session: str, info: PacketInfo, data: bytes) -> None:
        """A packet without bytes is one that was lost on the way here."""
        if source not in self.watched:
            return
        with self._lock:
            if not data or self._bytes + len(data) > _MAX_WAITING:
                self._index[source] += 1  # subscribers see the gap
                return
            self._bytes += len(data)
            self._waiting.append(_Waiting(source, session, info, data, self._fence.owner(source)))

    def start(self) -> None:
        """Waits for the first question."""

    # --- for the publisher -----------------------------------------------------------------------------------------

    def answer(self, source: str) -> Packets:
        """Where the packets of a source are published; the first call opens the socket."""
        if self._endpoint is None and self._reason is None and not self.ending.is_set:
            try:
                self._open()
            except (LookoutError, OSError, RuntimeError) as error:
                self._reason = str(error)
                log.warning("packets cannot be published", reason=self._reason)
        return Packets(instance=self._instance, source=source, index=0, endpoint=self._endpoint, reason=self._reason)

    def _open(self) -> None:
        socket = self._sink.open_packets(_HIGH_WATER)
        try:
            self._socket = socket
            self._endpoint = str(socket.getsockopt_string(zmq.LAST_ENDPOINT))
            super().start()
        except BaseException:
            self._socket = self._endpoint = None
            socket.close(linger=0)
            raise
        log.info("packets of watched sources are published", endpoint=self._endpoint)

    # --- the thread ------------------------------------------------------------------------------------------------

    def work(self, pulse: Pulse) -> None:
        pulse.rest()
        socket = self._socket
        assert socket is not None  # noqa: S101 - `_open` sets it before the start
        with closing(Subscribers(socket, self._clock, _MAX_SUBSCRIBERS)) as subscribers:
            self._serve(socket, subscribers)

    def on_error(self, error: Exception) -> None:
        log.exception("packets are published no more")
        self._endpoint, self._reason = None, f"it failed: {type(error).__name__}"

    def close(self) -> None:
        self._demand(frozenset())
        if self._socket is not None:
            self._socket.close(linger=0)

    def _serve(self, socket: zmq.Socket[bytes], subscribers: Subscribers) -> None:
        turns, put = 0, sender(socket)
        while not self.ending.is_set:
            if self.watched:
                self._clock.wait(self.ending, _GATHER_S)
                self._send(put)
            else:
                socket.poll(_IDLE_MS)
            turns += 1
            if not self.watched or turns % _POLL_EVERY == 0:
                self._poll(subscribers)

    def _poll(self, subscribers: Subscribers) -> None:
        let_in = self._sink.let_in
        if let_in is not None and let_in is not self._let_in:
            self._let_in = let_in
            subscribers.cut_off_all_but(let_in)
        subscribers.poll()
        self._demand(frozenset(source for each in subscribers.prefixes if (source := watched_source(each)) is not None))

    def _demand(self, wanted: frozenset[str]) -> None:
        gone = self.watched - wanted
        if self.watched != wanted:
            self.watched = wanted
        with self._lock:
            for source in gone:
                del self._index[source]

    def _send(self, put: Callable[[bytes, int], object]) -> None:
        """To the socket, which never blocks: a subscriber without room loses the packet, and sees the gap."""
        with self._lock:
            rows, self._waiting, self._bytes = self._waiting, deque(), 0
            numbers = []
            for row in rows:
                numbers.append(self._index[row.source])
                self._index[row.source] += 1
        grants = self._fence.grants()
        for row, index in zip(rows, numbers):
            if not may_send(grants, row):
                continue  # subscribers see the gap
            info = row.info
            header = Packet(
                instance=self._instance,
                source=row.source,
                session=row.session,
                index=index,
                codec=info.codec,
                extradata=info.extradata,
                time_base=info.time_base,
                width=info.width,
                height=info.height,
                turns=info.turns,
                pts=info.pts,
                dts=info.dts,
                key=info.key,
                owner=row.owner,
            )
            put(topic("packets", row.source), zmq.SNDMORE)
            put(self._encode(header), zmq.SNDMORE)
            put(row.data, 0)
