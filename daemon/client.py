"""A subscriber: typed messages from a running Lookout, and counts of the messages lost on the way.

from daemon.client import Subscriber

with Subscriber("tcp://127.0.0.1:5556") as subscriber:
    for message in subscriber:
        print(message.source, message.seq, [d.label for d in message.detections])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import zmq
import zmq.auth

from daemon.clock import SystemClock
from daemon.epochs import Epochs
from daemon.errors import ConfigError
from daemon.messages import Message, Metrics, Packets, decode, is_port, topic

_POLL_MS = 500
_now_ns = SystemClock.monotonic_ns
_NO_ENDPOINT = "cannot subscribe to {}: {}; it looks like tcp://127.0.0.1:5556"


class Subscriber:
    """One subscription; use it from one thread.

    Iteration yields every message and waits without limit; `receive` has a time limit. Connecting never fails: ZeroMQ
    keeps trying, and connects again when the daemon restarts.

    Args:
        endpoint: such as tcp://127.0.0.1:5556.
        sources: ids to receive; all if empty.
        kinds: of "detections", "status", "events", "counts" and "metrics".
        server_key: the daemon's public CURVE key, 40 characters of Z85, or the file that holds it.
        secret_key: file of this subscriber's own key, for a daemon with a list of clients.
        high_water_mark: messages that may wait here; ZeroMQ drops more.

    Attributes:
        received: number of messages.
        lost: published messages that did not arrive, by topic, from gaps in their `index`.
        fenced: messages of owners that other owners have followed, by source; they are left out.

    Raises:
        ConfigError: the endpoint or key is not one.
    """

    def __init__(
        self,
        endpoint: str = "tcp://127.0.0.1:5556",
        *,
        sources: Sequence[str] = (),
        kinds: Sequence[str] = ("detections",),
        server_key: str | Path | None = None,
        secret_key: Path | None = None,
        high_water_mark: int = 1000,
    ) -> None:
        self.received = 0
        self.lost: dict[str, int] = {}
        self._next: dict[bytes, tuple[str, int]] = {}
        self._epochs = Epochs()
        self.fenced = self._epochs.fenced
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        try:
            self._socket.setsockopt(zmq.RCVHWM, high_water_mark)
            self._socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
            use_curve(self._socket, server_key, secret_key)
            for kind in kinds:
                # Metrics are the daemon's, not a source's.
                for source in ("",) if kind == "metrics" or not sources else sources:
                    self._socket.setsockopt(zmq.SUBSCRIBE, topic(kind, source))
            port = endpoint.rpartition(":")[2]
            if endpoint.startswith("tcp://") and not (is_port(port) and int(port)):
                raise ConfigError(_NO_ENDPOINT.format(endpoint, "no port from 1 to 65535"))
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(_NO_ENDPOINT.format(endpoint, error.strerror)) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        while True:
            message = self.receive(_POLL_MS / 1000)
            if message is not None:
                yield message

    def receive(self, timeout_s: float) -> Message | None:
        """The next message, or None when the time is over.

        Raises:
            ValueError: what came is not of the wire's version 1.
        """
        until = _now_ns() + round(timeout_s * 1e9)
        while self._socket.poll(max(0, (until - _now_ns()) // 1_000_000)):
            name, payload = self._socket.recv_multipart()
            message = decode(name, payload)
            self._count(name, message)
            if isinstance(message, (Metrics, Packets)) or self._epochs.admits(message.source, message.owner):
                return message
        return None

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()

    def _count(self, name: bytes, message: Message) -> None:
        self.received += 1
        instance, expected = self._next.get(name, (message.instance, message.index))
        if instance == message.instance and message.index > expected:
            key = name.decode()
            self.lost[key] = self.lost.get(key, 0) + message.index - expected
        self._next[name] = (message.instance, message.index + 1)


def use_curve(socket: zmq.Socket[bytes], server_key: str | Path | None, secret_key: Path | None) -> None:
    """Set the CURVE keys of a socket before it connects; nothing without a server's key.

    Raises:
        ConfigError: a key cannot be read.
    """
    if server_key is not None:
        socket.curve_publickey, socket.curve_secretkey = _own_keys(secret_key)
        socket.curve_serverkey = public_key(server_key)


def _own_keys(file: Path | None) -> tuple[bytes, bytes]:
    """From a file; made up where who we are does not matter."""
    if file is None:
        return zmq.curve_keypair()
    try:
        public, secret = zmq.auth.load_certificate(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"secret key {file} cannot be read: make a pair with `lookout keys new`") from error
    if secret is None:
        raise ConfigError(f"secret key {file} holds no secret: take the .key_secret of the pair")
    return public, secret


def public_key(key: str | Path) -> bytes:
    """A public CURVE key from its text or from a file that `lookout keys new` wrote.

    Raises:
        ConfigError: it is neither.
    """
    text = str(key)
    if len(text) == 40 and not Path(text).exists():
        return text.encode()
    try:
        public, _ = zmq.auth.load_certificate(text)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"server key {text}: neither 40 characters of Z85 nor a .key file: take the daemon's"
        ) from error
    return public
