"""The connection to one daemon: a thread that receives its messages, and hands them on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import structlog
import zmq
from zmq.utils.monitor import parse_monitor_message

from daemon.clock import Clock
from daemon.errors import ConfigError
from daemon.peers.addresses import DaemonAddress
from daemon.peers.api import AwayError, DaemonApi
from daemon.peers.subscription import subscriber
from daemon.peers.subscriptions import Subscriptions
from daemon.peers.wake_pipe import WakePipe
from daemon.system.stop_token import StopToken
from lookout.messages import topic
from lookout.packets import reachable

log = structlog.get_logger(__name__)
LinkState = Literal["connecting", "up", "away"]
_GATHER_S = 0.01  # messages are gathered this long, so that the receiver wakes less often
_IDLE_MS = 1000
_MAX_BATCH = 1000  # messages
_ASK_S = 2.0  # between two questions for the endpoint
_AGAIN_S = 10.0  # after a failure that nobody foresaw, or an endpoint that is none
_SILENT_S = 90.0  # the daemon's own figures come once a minute at least
_LATE_S = 10.0  # for figures that are expected, beside two of their intervals
_APPLY_NS = 1_000_000_000  # between changes of topics for which there was no time
_ANSWER_NS = 5_000_000_000  # for the first answer
_HIGH_WATER = 2000
_KEPT = topic("detections")
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Arrived(NamedTuple):
    """A message, as it came: topic and payload."""

    topic: bytes
    payload: bytes


class _Facts(msgspec.Struct):
    """The part of `GET /api/v1/daemon` that is used here."""

    endpoint: str
    version: str = ""


class Link(threading.Thread):
    """Receives from one daemon until `close`, and connects again whenever it comes back.

    Args:
        kinds: of messages of all sources, beside those that `want` asks for.
        deliver: called with a batch of messages; False if the last batch is still being worked on.
        on_state: called when the connection changes, with the reason.

    Attributes:
        endpoint: of the daemon's messages; None if unknown.
    """

    def __init__(
        self,
        address: DaemonAddress,
        clock: Clock,
        kinds: Sequence[str],
        deliver: Callable[[Sequence[Arrived]], bool],
        on_state: Callable[[LinkState, str | None], None],
    ) -> None:
        super().__init__(name=f"link-{address.name}", daemon=True)
        self._address, self._clock = address, clock
        self._kinds, self._deliver, self._on_state = kinds, deliver, on_state
        self._api = DaemonApi(address)
        self._zmq = zmq.Context()
        self._ending = StopToken()
        self._wake = WakePipe()
        self._wanted: Sequence[bytes] = ()  # topics beside the usual; set by any thread
        self._topics = Subscriptions(_KEPT, clock.monotonic_ns())
        self._applied: Sequence[bytes] | None = None  # the last of `_wanted`
        self._applied_ns = 0
        self.endpoint = address.endpoint
        self._heard_ns = 0
        self._silent_s = _SILENT_S
        self._state: LinkState = "connecting"
        self._batch: list[Arrived] = []  # not delivered yet

    def want(self, topics: Iterable[bytes]) -> None:
        """Receive these topics beside the usual ones, the most important first; any thread may call it."""
        self._wanted = (*topics,)
        self._wake.ring()

    def expect(self, interval_s: float) -> None:
        """The daemon sends its own figures this often; any thread may call it."""
        self._silent_s = min(2 * interval_s + _LATE_S, _SILENT_S)

    def request_stop(self) -> None:
        """End soon. A second call does nothing."""
        self._ending.set()
        self._wake.ring()

    def close(self, seconds: float = 2.0) -> None:
        """End the thread, which is waited for so long; the context ends with it."""
        self.request_stop()
        if self.ident is not None:
            self.join(seconds)
        else:
            self._release()

    def run(self) -> None:
        said: str | None = None
        try:
            while not self._ending.is_set:
                try:
                    endpoint = self._find_endpoint()
                    if endpoint is not None:
                        self._serve(endpoint)
                except Exception as error:
                    is_known = isinstance(error, ConfigError)
                    reason = str(error) if is_known else f"{type(error).__name__}: {error}"
                    if reason != said or self._state == "up":
                        text = "the connection to a daemon failed: it is tried again"
                        log.error(text, daemon=self._address.name, reason=reason, exc_info=not is_known)
                    said = reason
                    self._batch = []  # what could not be taken would fail again
                    self._change("away", reason)
                    self._clock.wait(self._ending, _AGAIN_S)
        finally:
            self._release()

    def _release(self) -> None:
        self._zmq.destroy(linger=0)
        self._wake.close()

    def _change(self, state: LinkState, reason: str | None) -> None:
        if (state, reason) != (self._state, None) or state == "up":
            self._state = state
            self._on_state(state, reason)

    def _find_endpoint(self) -> str | None:
        """Where the daemon publishes; None if it does not tell now."""
        if self._address.endpoint is not None:
            return self._address.endpoint
        try:
            return self._query()
        except AwayError as error:
            self._change("away", str(error))
            self._clock.wait(self._ending, _ASK_S)
            return None

    def _query(self) -> str:
        answer = self._api.request("GET", "daemon")
        if answer.status != 200:
            raise AwayError(f"its HTTP API refuses: {answer.error}")
        try:
            endpoint = msgspec.json.decode(answer.body, type=_Facts).endpoint
        except msgspec.MsgspecError as error:
            raise AwayError("its HTTP API does not answer as Lookout does") from error
        return reachable(endpoint, self._address.http)

    def _serve(self, endpoint: str) -> None:
        """Receive from one endpoint; returns when the daemon publishes elsewhere, and at the end."""
        self.endpoint = endpoint
        with self._zmq.socket(zmq.PAIR) as monitor, subscriber(self._zmq, self._address, _HIGH_WATER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            monitor.setsockopt(zmq.LINGER, 0)
            self._connect(socket, monitor, endpoint)
            self._receive_until_moved(socket, monitor, endpoint)

    def _receive_until_moved(self, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes], endpoint: str) -> None:
        poller = zmq.Poller()
        for each in (socket, monitor, self._wake.end):
            poller.register(each, zmq.POLLIN)
        self._topics, self._applied = Subscriptions(_KEPT, self._clock.monotonic_ns()), None
        self._heard_ns = begun_ns = self._clock.monotonic_ns()
        away_ns: int | None = None
        while not self._ending.is_set:
            came = dict(poller.poll(10 if self._batch else _IDLE_MS))
            if self._wake.end in came:
                self._wake.drain()
            self._subscribe(socket)
            if monitor in came:
                away_ns = self._note(monitor, away_ns)
            if socket in came or self._batch:
                self._clock.wait(self._ending, _GATHER_S)
                self._receive(socket)
            now = self._clock.monotonic_ns()
            if self._state == "connecting" and now - begun_ns > _ANSWER_NS:
                self._change("away", f"nothing answers at {endpoint}")
            if self._state == "up" and now - self._heard_ns > self._silent_s * 1e9:
                self._change("away", f"it is connected, and has sent nothing for {self._silent_s:g} s")
            if away_ns and self._address.http and self._address.endpoint is None and now - away_ns > _ASK_S * 1e9:
                away_ns = now
                if self._has_moved(endpoint):
                    break

    def _has_moved(self, endpoint: str) -> bool:
        try:
            return self._query() != endpoint
        except AwayError:
            return False

    def _connect(self, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes], endpoint: str) -> None:
        for kind in self._kinds:
            socket.setsockopt(zmq.SUBSCRIBE, topic(kind))
        name = f"inproc://link-{id(socket)}"
        socket.monitor(name, _EVENTS)
        monitor.connect(name)
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise ConfigError(f"cannot subscribe to {endpoint}: {error.strerror}") from error

    def _note(self, monitor: zmq.Socket[bytes], away_ns: int | None) -> int | None:
        """Read the monitor; returns since when the daemon is away, None if it is not."""
        while True:
            try:
                event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]
            except zmq.Again:
                return away_ns
            if event == zmq.EVENT_DISCONNECTED:
                away_ns = self._clock.monotonic_ns()
                self._change("away", "the connection broke: it has ended, does not answer, or the network is gone")
            else:
                away_ns, self._heard_ns = None, self._clock.monotonic_ns()
                self._change("up", None)

    def _subscribe(self, socket: zmq.Socket[bytes]) -> None:
        now, wanted = self._clock.monotonic_ns(), self._wanted
        if wanted is self._applied and now - self._applied_ns < _APPLY_NS:
            return
        self._applied, self._applied_ns = wanted, now
        ended, begun = self._topics.change(wanted, now)
        for name in ended:
            socket.setsockopt(zmq.UNSUBSCRIBE, name)
        for name in begun:
            socket.setsockopt(zmq.SUBSCRIBE, name)

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        """Take what has come. While the receiver is busy messages wait in ZeroMQ, which drops those beyond a number."""
        batch = self._batch
        while len(batch) < _MAX_BATCH:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            if len(frames) == 2:
                batch.append(Arrived(*frames))
        if batch:
            self._heard_ns = self._clock.monotonic_ns()
            if self._state == "away":
                self._change("up", None)
            if self._deliver(batch):
                self._batch = []
