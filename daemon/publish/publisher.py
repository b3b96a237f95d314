"""The publisher thread: the one owner of the PUB socket, fed by a bounded outbox.

The socket is an XPUB, which subscribers cannot tell from a PUB: it lets the publisher see subscriptions, so that
whoever comes late is told the state of each source, and a replay can wait for its audience.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path

import msgspec
import numpy as np
import structlog
import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from daemon.config import PublisherConfig
from daemon.errors import ConfigError
from daemon.messages import (
    Detection,
    ImageSize,
    Latency,
    Message,
    Metrics,
    PublisherMetrics,
    State,
    Status,
    VideoFormat,
    encoder,
    topic,
)
from daemon.messages import Detections as DetectionsMessage
from daemon.pipeline.ledger import MOST_GONE, Ledger
from daemon.pipeline.outbox import Outbox, Report, Result
from daemon.publish.audience import Audience, in_use, matching
from daemon.publish.curve import secret_key
from daemon.redact import scrub
from daemon.system.context import Context
from daemon.system.stop import Stop
from detectors.detections import Detections

log = structlog.get_logger(__name__)
_IDLE_S = 0.1
_MOST = 256  # messages at a time
_EVERY_S = 0.002  # live: what comes closer together is sent together, so that this thread wakes less often
_AT_ONCE = 32  # messages to the socket one after the other: ZeroMQ's thread sleeps between those that come apart
_MOST_BYTES = 4096  # of a message that comes in; libzmq allocates what a peer announces, before it knows who that is
_GREET_NS = 20_000_000  # between two looks at who has subscribed
_LINGER_MS = 1000
_NO_KEYS = "{} holds no .key file"
_IN_USE = "is another Lookout running? Stop it, or choose another endpoint"
_SILENT = logging.getLogger("lookout.gate")  # a peer that is turned away is not for an operator
_SILENT.setLevel(logging.CRITICAL)


class Publisher(threading.Thread):
    """Sends what is in the outbox, in order, numbering the messages of each topic.

    Binds in the constructor, so that a port in use is known before anything slow starts.

    Raises:
        ConfigError: the endpoint cannot be bound, or its keys cannot be read.

    Attributes:
        audience: set as long as somebody subscribes.
    """

    def __init__(
        self,
        config: PublisherConfig,
        outbox: Outbox,
        ledger: Ledger,
        instance: str,
        context: Context,
    ) -> None:
        super().__init__(name="publisher", daemon=True)
        self._config, self._outbox, self._ledger, self._instance = config, outbox, ledger, instance
        self._context, self._clock = context, context.clock
        self._encode = encoder(config.encoding)
        self._names: dict[str, bytes] = {}  # topic of each source
        self._index: Counter[bytes] = Counter()
        self._last_status: dict[bytes, Status] = {}
        self._gone: dict[str, None] = {}  # removed sources whose counters are kept, the longest removed first
        self._encoded: list[tuple[bytes, bytes]] = []  # topic and message
        self._greeted = 0  # monotonic ns
        self._ending = Stop()
        self.audience = threading.Event()
        self._zmq = zmq.Context()
        self._gate: ThreadAuthenticator | None = None
        try:
            self._gate = _gate(self._zmq, config)
            self._socket = _bind(self._zmq, config)
        except BaseException:
            if self._gate:
                self._gate.stop()
            self._zmq.term()
            raise
        self._put = _sender(self._socket)
        self._peers = Audience(self._socket, context.clock, config.max_subscribers)
        self._let_in: set[str] | None = None  # keys, since they were read again
        self.endpoint = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def stop(self, timeout_s: float) -> None:
        """Send what is left, close the socket and end, within the time."""
        self._ending.set()
        if self.ident is None:
            self._close()
        else:
            self.join(timeout_s)

    def metrics(self) -> PublisherMetrics:
        return PublisherMetrics(len(self._outbox), self._outbox.limit, len(self._peers))

    def announce(
        self,
        source: str,
        session: str | None,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> None:
        """Queue a status message and log it; called from capture threads and the monitor."""
        status = Status(
            instance=self._instance,
            source=source,
            session=session,
            index=0,
            at=self._clock.utc_ns(),
            state=state,
            reason=scrub(reason) if reason else None,
            retry_in_s=None if retry_in_s is None else round(retry_in_s, 3),
            format=format,
        )
        level = log.warning if state in ("down", "stalled") else log.info
        fields = {"retry_in_s": status.retry_in_s, "reason": reason}
        level(f"source {state}", source=source, **{key: value for key, value in fields.items() if value is not None})
        self._outbox.report(Report(topic("status", source), status))

    def forget(self, source: str) -> None:
        """A source is gone, and what was announced of it is the past."""
        self._outbox.report(Report(topic("status", source), None, source))

    def renew_clients(self) -> Callable[[], None]:
        """Read the keys that are let in again; what comes back lets in these and no others, from any thread.

        The last key may be taken away, too: whoever had it is cut off, and nobody gets in.

        Raises:
            ConfigError: they cannot be read.
        """
        gate, config = self._gate, self._config
        keys = _clients(config) if gate else {}
        if gate and not keys:
            log.warning("no subscriber is let in", reason=_NO_KEYS.format(_folder(config)))

        def renew() -> None:
            if gate:
                gate.certs["*"] = keys
                self._let_in = {key.decode() for key in keys}

        return renew

    def run(self) -> None:
        try:
            with self._context.watchdog.pulse(self.name) as pulse:
                while not self._ending.is_set:
                    if self.run_once(_IDLE_S) and not self._outbox.lossless:
                        self._clock.wait(self._ending, _EVERY_S)
                    pulse.beat()
                while self.run_once(0.0):
                    pulse.beat()  # what is left
        except Exception as error:
            log.exception("publisher failed")
            self._context.on_failure(f"publisher failed: {error}")
        finally:
            self._close()

    def run_once(self, timeout_s: float) -> int:
        """Send what waits; how many messages that were."""
        items = self._outbox.take(_MOST, timeout_s)
        now = self._clock.monotonic_ns()
        if not items or now - self._greeted >= _GREET_NS:
            self._greeted = now
            self._greet()
        boxes = _boxes([item for item in items if isinstance(item, Result)])
        for item in items:
            if not self._outbox.sent():
                break
            if isinstance(item, Result):
                self._send_counted(item, next(boxes))
            else:
                self._send_report(item)
            if len(self._encoded) >= _AT_ONCE:
                self._hand_over()
        self._hand_over()
        return len(items)

    def _send_counted(self, result: Result, boxes: list[Detection]) -> None:
        """A result that breaks the publisher is in the accounts all the same."""
        try:
            self._send_result(result, boxes)
        except Exception:
            self._ledger.drop(result.frame, "shutdown")
            raise

    def _send_result(self, result: Result, boxes: list[Detection]) -> None:
        frame, times = result.frame, result.times
        name = self._names.get(frame.source) or self._names.setdefault(frame.source, topic("detections", frame.source))
        latency = Latency(
            decode=frame.decode,
            wait=result.taken - frame.captured_ns,
            preprocess=times.preprocess,
            infer=times.infer,
            postprocess=times.postprocess,
            total=self._clock.monotonic_ns() - frame.captured_ns,
        )
        message = DetectionsMessage(
            instance=self._instance,
            source=frame.source,
            session=frame.session,
            seq=frame.seq,
            index=self._index[name],
            pts=frame.pts,
            captured_at=frame.captured_at,
            clock=frame.clock,
            image=ImageSize(frame.width, frame.height, frame.pixel_aspect),
            model=result.served.model,
            detections=boxes,
            latency=latency,
            dropped=self._ledger.totals(frame.source),
        )
        self._send(name, message)
        self._ledger.published(frame, latency)

    def _send_report(self, report: Report) -> None:
        message = report.message
        if message is None:
            self._last_status.pop(report.topic, None)
            self._gone[report.source] = None
            self._forget_oldest()
            return
        if isinstance(message, Status):
            self._last_status[report.topic] = message
            self._gone.pop(message.source, None)
        # Structs are frozen; the index is only known here.
        self._send(report.topic, _numbered(message, self._index[report.topic]))

    def _forget_oldest(self) -> None:
        """Counters of the longest removed sources, beyond those that are kept for one that comes back."""
        while len(self._gone) > MOST_GONE:
            source = next(iter(self._gone))
            del self._gone[source]
            self._names.pop(source, None)
            for kind in ("detections", "status"):
                self._index.pop(topic(kind, source), None)

    def _send(self, name: bytes, message: Message) -> None:
        self._index[name] += 1
        self._encoded.append((name, self._encode(message)))

    def _hand_over(self) -> None:
        """To the socket. XPUB never blocks: at the high-water mark it leaves a message out for that subscriber, who
        sees the gap in `index`."""
        for name, payload in self._encoded:  # two calls cost half of what send_multipart does
            self._put(name, zmq.SNDMORE)
            self._put(payload, 0)
        self._encoded.clear()

    def _greet(self) -> None:
        """Take note of subscriptions, and tell whoever is new the state of each source."""
        if self._let_in is not None:
            let_in, self._let_in = self._let_in, None
            self._peers.cut_off_all_but(let_in)
        fresh = self._peers.look()
        if len(self._peers):
            self.audience.set()
        else:
            self.audience.clear()
        if fresh:
            for name in matching([*self._last_status], fresh):
                self._send(name, _numbered(self._last_status[name], self._index[name]))

    def _close(self) -> None:
        self._peers.close()
        self._socket.close(linger=_LINGER_MS)
        if self._gate:
            self._gate.stop()
        self._zmq.term()


def try_endpoint(config: PublisherConfig) -> None:
    """Bind it, with its keys, and let go of it.

    Raises:
        ConfigError: see `Publisher`.
    """
    with zmq.Context() as context:
        gate = _gate(context, config)
        try:
            _bind(context, config).close(linger=0)
        finally:
            if gate:
                gate.stop()


def _sender(socket: zmq.Socket[bytes]) -> Callable[[bytes, int], object]:
    """`socket.send`, but with the interpreter's lock held.

    pyzmq gives it up for the microsecond that a send takes, and gets it back behind all threads that wait for it: with
    150 sources 250 messages a second were all that was left. Where libzmq's own call is not found, pyzmq's will do.
    """
    try:
        from zmq.backend.cython import _zmq

        send = ctypes.PyDLL(_zmq.__file__).zmq_send  # found in the library that this one needs
    except (ImportError, AttributeError, OSError):
        return socket.send
    send.argtypes, send.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    handle = socket.underlying

    def put(data: bytes, flags: int) -> None:
        while send(handle, data, len(data), flags) < 0:
            error = zmq.ZMQError()
            if error.errno != errno.EINTR:
                raise error

    return put


def _numbered(message: Status | Metrics, index: int) -> Message:
    return msgspec.structs.replace(message, index=index)


def _boxes(results: Sequence[Result]) -> Iterator[list[Detection]]:
    """The boxes of each frame as they go on the wire; rounded for all frames at once, which costs half as much."""
    for served, group in groupby(results, key=lambda result: result.served):  # another model may take over in between
        yield from _boxes_of([result.detections for result in group], served.labels)


def _boxes_of(found: Sequence[Detections], labels: tuple[str, ...]) -> Iterator[list[Detection]]:
    corners = np.round(np.concatenate([one.xyxy for one in found]).astype(np.float64), 2).tolist()
    confidences = np.round(np.concatenate([one.confidence for one in found]).astype(np.float64), 4).tolist()
    classes = np.concatenate([one.class_id for one in found]).tolist()
    boxes = map(Detection, [labels[class_id] for class_id in classes], classes, confidences, corners)
    for one in found:
        yield list(islice(boxes, len(one)))


def _bind(context: zmq.Context[zmq.Socket[bytes]], config: PublisherConfig) -> zmq.Socket[bytes]:
    if in_use(config.endpoint):
        raise ConfigError(f"publisher.endpoint: {config.endpoint} is in use; {_IN_USE}")
    socket = _socket(context)
    try:
        socket.setsockopt(zmq.XPUB_VERBOSER, 1)  # every subscription and its end, not only the first of a topic
        socket.setsockopt(zmq.SNDHWM, config.high_water_mark)
        socket.setsockopt(zmq.MAXMSGSIZE, _MOST_BYTES)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        if config.curve:
            secret = secret_key(config.curve)
            socket.curve_server = True
            socket.curve_secretkey = secret
            socket.curve_publickey = zmq.curve_public(secret)
        socket.bind(config.endpoint)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise ConfigError(
            f"publisher.endpoint: cannot bind {config.endpoint}: {error.strerror}; {_advice(error)}"
        ) from error
    except BaseException:
        socket.close(linger=0)
        raise
    return socket


def _socket(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    try:
        return context.socket(zmq.XPUB)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"publisher: {error.strerror}") from error


def _gate(context: zmq.Context[zmq.Socket[bytes]], config: PublisherConfig) -> ThreadAuthenticator | None:
    """Lets subscribers in by their keys; None where no list of them is given."""
    if config.curve is None or config.curve.clients is None:
        return None
    keys = _clients(config)
    if not keys:
        reason = _NO_KEYS.format(config.curve.clients)
        raise ConfigError(f"publisher.curve.clients: {reason}, so that nobody could subscribe")
    gate = ThreadAuthenticator(context, log=_SILENT)
    gate.allow_any = False
    gate.certs["*"] = keys
    gate.start()
    return gate


def _clients(config: PublisherConfig) -> dict[bytes, bool]:
    """The public keys that are let in, as Z85.

    Raises:
        ConfigError: the folder cannot be read.
    """
    clients = _folder(config)
    if clients is None:
        return {}
    try:
        return dict(zmq.auth.load_certificates(clients))
    except (OSError, ValueError) as error:
        raise ConfigError(f"publisher.curve.clients: {clients} is not a folder of .key files: {error}") from error


def _folder(config: PublisherConfig) -> Path | None:
    return config.curve.clients if config.curve else None


def _advice(error: zmq.ZMQError) -> str:
    if error.errno == zmq.EADDRINUSE:
        return _IN_USE
    return "choose an address of this machine"
