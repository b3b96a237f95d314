"""A subscriber: typed messages from a running Lookout, and counts of the messages lost on the way.

from lookout.client import Subscriber

with Subscriber("tcp://127.0.0.1:5556") as subscriber:
    for message in subscriber:
        print(message.source, message.seq, [d.label for d in message.detections])

Where several daemons share sources, `Subscriber(fleet="etcd://192.0.2.5:2379/lookout")` follows all of them. That
needs the package `lookoutd` beside this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns as _now_ns
from types import TracebackType
from typing import TypeVar

import zmq
import zmq.auth

from lookout.epochs import Epochs
from lookout.errors import ConfigError
from lookout.members import MemberEndpoints, follow
from lookout.messages import Message, Metrics, Owner, Packets, Store, decode, is_port, topic

_POLL_MS = 500
_LINGER_NS = 10_000_000_000  # the socket of a member that is gone stays for so long: messages may be on their way
_MAX_RUNS = 8  # runs of daemons that are remembered for a topic
_NO_ENDPOINT = "cannot subscribe to {}: {}; it looks like tcp://127.0.0.1:5556"


class Connection:
    """The socket for one daemon.

    Attributes:
        gone_ns: monotonic time since when its member is gone; None while it lives.

    Raises:
        ConfigError: the endpoint or key is not one.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        keys: tuple[str | Path | None, Path | None],
        topics: Sequence[bytes],
        high_water_mark: int,
    ) -> None:
        self.gone_ns: int | None = None
        self.socket = context.socket(zmq.SUB)
        try:
            self.socket.setsockopt(zmq.RCVHWM, high_water_mark)
            self.socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
            use_curve(self.socket, *keys)
            for name in topics:
                self.socket.setsockopt(zmq.SUBSCRIBE, name)
            port = endpoint.rpartition(":")[2]
            if endpoint.startswith("tcp://") and not (is_port(port) and int(port)):
                raise ConfigError(_NO_ENDPOINT.format(endpoint, "no port from 1 to 65535"))
            self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.socket.close(linger=0)
            raise ConfigError(_NO_ENDPOINT.format(endpoint, error.strerror)) from error
        except BaseException:
            self.socket.close(linger=0)
            raise


SubscriberT = TypeVar("SubscriberT", bound="Subscriber")


class Subscriber:
    """One subscription; use it from one thread.

    Iteration yields every message and waits without limit; `receive` has a time limit. Connecting never fails: ZeroMQ
    keeps trying, and connects again when the daemon restarts.

    Args:
        endpoint: such as tcp://127.0.0.1:5556, or several.
        fleet: follows the members of a fleet instead, as they come and go: etcd://HOST:2379/NAME, or what follows them
            already, which is closed with this subscriber.
        sources: ids to receive; all if empty.
        kinds: of "detections", "status", "events", "counts" and "metrics".
        server_key: the daemon's public CURVE key, 40 characters of Z85, or the file that holds it. Members of a fleet
            tell theirs.
        secret_key: file of this subscriber's own key, for a daemon with a list of clients.
        high_water_mark: messages that may wait here for each daemon; ZeroMQ drops more.

    Attributes:
        received: number of messages.
        lost: published messages that did not arrive, by topic, from gaps in their `index`.
        fenced: messages of owners that other owners have followed, by source; they are left out.

    Raises:
        ConfigError: the endpoint or key is not one, or nobody here can follow a fleet.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str] = "tcp://127.0.0.1:5556",
        *,
        fleet: str | MemberEndpoints | None = None,
        sources: Sequence[str] = (),
        kinds: Sequence[str] = ("detections",),
        server_key: str | Path | None = None,
        secret_key: Path | None = None,
        high_water_mark: int = 1000,
    ) -> None:
        self.received = 0
        self.lost: dict[str, int] = {}
        self._next: dict[bytes, dict[str, int]] = {}  # index by topic and run of a daemon
        self._epochs = Epochs()
        self.fenced = self._epochs.fenced
        # Metrics are the daemon's, not a source's.
        self._topics = [
            topic(kind, source) for kind in kinds for source in (("",) if kind == "metrics" or not sources else sources)
        ]
        self._secret_key, self._high_water_mark = secret_key, high_water_mark
        self._connections: dict[str, Connection] = {}
        # The owner of each source of each fleet, and where its messages come from.
        self._owners: dict[tuple[str, str], tuple[Owner, Connection]] = {}
        self._takeover: _Takeover | None = None
        self._members: MemberEndpoints | None = None
        self._context, self._poller = zmq.Context(), zmq.Poller()
        try:
            if fleet is not None:
                self._members = follow(fleet) if isinstance(fleet, str) else fleet
                self._poller.register(self._members.fd, zmq.POLLIN)
            else:
                for each in [endpoint] if isinstance(endpoint, str) else endpoint:
                    self._connect(each, server_key)
        except BaseException:
            self.close()
            raise

    def __enter__(self: SubscriberT) -> SubscriberT:
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

    @property
    def failure(self) -> str | None:
        """Why the members of the fleet are not known now; known ones are still heard. None if they are."""
        return self._members.failure if self._members else None

    def receive(self, timeout_s: float) -> Message | None:
        """The next message, or None when the time is over and nothing has come.

        Raises:
            ValueError: what came is not of the wire's version 1.
        """
        until = _now_ns() + round(timeout_s * 1e9)
        while True:
            before = self.received, self._takeover
            message = self._next_message(max(0, (until - _now_ns()) // 1_000_000))
            if message is not None:
                return message
            if _now_ns() >= until and before == (self.received, self._takeover):  # none was left out just now
                return None

    @property
    def descriptors(self) -> list[int]:
        """For an event loop: when one of these is readable, something may have come: call `receive(0)` until it gives
        None, and ask for the descriptors again. A fleet wants that twice a second, readable or not.
        """
        own = [connection.socket.fileno() for connection in self._connections.values()]
        return own if self._members is None else [*own, self._members.fd]

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close(linger=0)
        self._connections.clear()
        if self._members:
            self._members.close()
        self._context.term()

    # ---------------------------------------------------------------------------------------------------------------

    def _next_message(self, wait_ms: int) -> Message | None:
        """A message, if one comes in time and is to be given out."""
        if self._takeover is not None:
            return self._next_before(self._takeover)
        if self._members is None and len(self._connections) == 1:
            (connection,) = self._connections.values()
            return self._read(connection) if connection.socket.poll(wait_ms) else None
        ready = dict(self._poller.poll(min(wait_ms, _POLL_MS)))
        if self._members is not None:
            self._follow(self._members, changed=self._members.fd in ready)
        for endpoint, connection in [*self._connections.items()]:
            if connection.socket in ready:
                self._connections[endpoint] = self._connections.pop(endpoint)  # the others come first next time
                return self._read(connection)
        return None

    def _read(self, connection: Connection) -> Message | None:
        name, payload = connection.socket.recv_multipart()
        message = decode(name, payload)
        self._count(name, message)
        if isinstance(message, (Metrics, Packets, Store)) or message.owner is None:
            return message
        known = self._owners.get((message.owner.fleet, message.source))
        if known is not None and known[0].epoch < message.owner.epoch and known[1] is not connection:
            self._takeover = _Takeover(message, connection, known[1], self._high_water_mark)
            return None
        return self._admitted(message, message.owner, connection)

    def _next_before(self, takeover: _Takeover) -> Message | None:
        """The messages that wait from a source's former owner, which came first, and then those of the new one."""
        if not takeover.before.socket.closed and takeover.left > 0 and takeover.before.socket.poll(0):
            takeover.left -= 1
            name, payload = takeover.before.socket.recv_multipart()
            message = decode(name, payload)
            self._count(name, message)
            if isinstance(message, (Metrics, Packets, Store)) or message.owner is None:
                return message
            return self._admitted(message, message.owner, takeover.before)
        self._takeover = None
        message = takeover.message
        assert not isinstance(message, (Metrics, Packets, Store))  # noqa: S101 - of a source
        assert message.owner is not None  # noqa: S101 - likewise
        return self._admitted(message, message.owner, takeover.connection)

    def _admitted(self, message: Message, owner: Owner, connection: Connection) -> Message | None:
        source: str = message.source  # type: ignore[union-attr]
        if not self._epochs.admits(source, owner):
            return None
        self._owners[owner.fleet, source] = owner, connection
        return message

    def _count(self, name: bytes, message: Message) -> None:
        self.received += 1
        runs = self._next.setdefault(name, {})
        expected = runs.pop(message.instance, message.index)
        if message.index > expected:
            key = name.decode()
            self.lost[key] = self.lost.get(key, 0) + message.index - expected
        runs[message.instance] = message.index + 1
        if len(runs) > _MAX_RUNS:
            del runs[next(iter(runs))]

    # --- members of a fleet ----------------------------------------------------------------------------------------

    def _connect(self, endpoint: str, server_key: str | Path | None) -> None:
        keys = server_key, self._secret_key
        connection = Connection(self._context, endpoint, keys, self._topics, self._high_water_mark)
        self._connections[endpoint] = connection
        self._poller.register(connection.socket, zmq.POLLIN)

    def _follow(self, members: MemberEndpoints, *, changed: bool) -> None:
        """Connect to new members, and leave those that are gone when nothing more can come from them."""
        now = _now_ns()
        if changed:
            known = {row.messages: row for row in members.read().values()}
            for endpoint, row in known.items():
                if endpoint not in self._connections:
                    with suppress(ConfigError):  # it makes no sense; the others are heard
                        self._connect(endpoint, row.server_key)
            for endpoint, connection in self._connections.items():
                connection.gone_ns = None if endpoint in known else connection.gone_ns or now
        for endpoint, connection in [*self._connections.items()]:
            if connection.gone_ns and now - connection.gone_ns > _LINGER_NS and not connection.socket.poll(0):
                self._poller.unregister(connection.socket)
                connection.socket.close(linger=0)
                del self._connections[endpoint]


class _Takeover:
    """The first message of a source's new owner, which waits until those of the former one are given out.

    Attributes:
        connection, before: of the new and of the former owner.
        left: messages of the former owner that may come first.
    """

    def __init__(self, message: Message, connection: Connection, before: Connection, limit: int) -> None:
        self.message, self.connection, self.before, self.left = message, connection, before, limit


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
