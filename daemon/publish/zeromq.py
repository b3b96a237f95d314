"""The PUB socket.

It is an XPUB, which subscribers cannot tell from a PUB. It shows the daemon each subscription: a late subscriber is
told the state of each source, and a replay can wait until somebody listens.
"""

from __future__ import annotations

import ctypes
import errno
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog
import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from daemon.clock import Clock
from daemon.config.publisher import PublisherConfig
from daemon.errors import ConfigError
from daemon.publish.curve_keys import secret_key
from daemon.publish.subscribers import Subscribers, in_use
from lookout.messages import Message, encoder

log = structlog.get_logger(__name__)
_AT_ONCE = 32  # messages to the socket one after the other: ZeroMQ's thread sleeps between those that come apart
_MORE = int(zmq.SNDMORE)
_MOST_BYTES = 4096  # of a message that comes in; libzmq allocates what a peer announces, before it knows who that is
_LINGER_MS = 1000
_NO_KEYS = "{} holds no .key file"
_IN_USE = "is another Lookout running? Stop it, or choose another endpoint"
_SILENT = logging.getLogger("lookout.gate")  # a peer that is turned away is not for an operator
_SILENT.setLevel(logging.CRITICAL)


class ZeroMqSink:
    """Implements `daemon.publish.port.Sink`.

    Binds in the constructor, so that a port in use is known before anything slow starts.

    Attributes:
        endpoint: where subscribers connect.
        let_in: keys of those that may subscribe, since they were read again; another set each time.

    Raises:
        ConfigError: the endpoint cannot be bound, or its keys cannot be read.
    """

    def __init__(self, config: PublisherConfig, clock: Clock) -> None:
        self._config = config
        self._encode = encoder(config.encoding)
        self._encoded: list[tuple[bytes, bytes]] = []  # topic and message
        self._closed = False
        self._zmq = zmq.Context()
        self._authenticator: ThreadAuthenticator | None = None
        try:
            self._authenticator = _authenticator(self._zmq, config)
            self._socket = _bind(self._zmq, config)
        except BaseException:
            if self._authenticator:
                self._authenticator.stop()
            self._zmq.term()
            raise
        self._put = sender(self._socket)
        self._subscribers = Subscribers(self._socket, clock, config.max_subscribers)
        self.let_in: frozenset[str] | None = None
        self._heeded: frozenset[str] | None = None  # by this socket
        self.endpoint = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def send(self, topic: bytes, message: Message) -> None:
        self._encoded.append((topic, self._encode(message)))
        if len(self._encoded) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """To the socket. XPUB never blocks: at the high-water mark it leaves a message out for that subscriber, who
        sees the gap in `index`."""
        put = self._put
        for name, payload in self._encoded:  # two calls cost half of what send_multipart does
            put(name, _MORE)
            put(payload, 0)
        self._encoded.clear()

    def open_packets(self, high_water_mark: int) -> zmq.Socket[bytes]:
        """A socket of its own for packets, with the keys of this one; whoever uses it closes it before this sink.

        Raises:
            ConfigError: it cannot be bound.
        """
        changed = msgspec.structs.replace(
            self._config, endpoint=packets_endpoint(self._config), high_water_mark=high_water_mark
        )
        return _bind(self._zmq, changed, "publisher.packets")

    def newcomers(self) -> set[bytes]:
        let_in = self.let_in
        if let_in is None or let_in is self._heeded:
            return self._subscribers.poll()
        self._heeded = let_in
        return self._subscribers.cut_off_all_but(let_in)

    @property
    def subscriptions(self) -> int:
        return len(self._subscribers)

    def reload_clients(self) -> Callable[[], None]:
        """Read the keys that are let in again; what comes back lets in these and no others, from any thread.

        The last key may be taken away, too: whoever had it is cut off, and nobody gets in.

        Raises:
            ConfigError: they cannot be read.
        """
        authenticator, config = self._authenticator, self._config
        keys = _clients(config) if authenticator else {}
        if authenticator and not keys:
            log.warning("no subscriber is let in", reason=_NO_KEYS.format(_folder(config)))

        def apply() -> None:
            if authenticator:
                authenticator.certs["*"] = keys
                self.let_in = frozenset([key.decode() for key in keys])

        return apply

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._subscribers.close()
        self._socket.close(linger=_LINGER_MS)
        if self._authenticator:
            self._authenticator.stop()
        self._zmq.term()


def try_endpoint(config: PublisherConfig) -> None:
    """Bind it, with its keys, and let go of it.

    Raises:
        ConfigError: see `ZeroMqSink`.
    """
    with zmq.Context() as context:
        authenticator = _authenticator(context, config)
        try:
            _bind(context, config).close(linger=0)
        finally:
            if authenticator:
                authenticator.stop()


def sender(socket: zmq.Socket[bytes]) -> Callable[[bytes, int], object]:
    """`socket.send`, but with the interpreter's lock held.

    pyzmq gives it up for the microsecond that a send takes, and gets it back behind all threads that wait for it: with
    150 sources 250 messages a second were all that was left. Where libzmq's own call is not found, pyzmq's will do.
    """
    try:
        from zmq.backend.cython import _zmq

        send = ctypes.PyDLL(_zmq.__file__).zmq_send  # found in the library that this one needs
    except (ImportError, AttributeError, OSError):
        return socket.send
    handle, size = ctypes.c_void_p(socket.underlying), ctypes.c_size_t()  # cheaper than `argtypes`

    def put(data: bytes, flags: int) -> None:
        size.value = len(data)
        while send(handle, data, size, flags) < 0:
            error = zmq.ZMQError()
            if error.errno != errno.EINTR:
                raise error

    return put


def packets_endpoint(config: PublisherConfig) -> str:
    """Where packets are published: beside the messages, on a port that the system chooses, unless it is configured."""
    if config.packets != "auto":
        return config.packets
    scheme, _, address = config.endpoint.partition("://")
    return f"{scheme}://{address.rpartition(':')[0]}:*" if scheme == "tcp" else f"{config.endpoint}.packets"


def _bind(
    context: zmq.Context[zmq.Socket[bytes]], config: PublisherConfig, key: str = "publisher.endpoint"
) -> zmq.Socket[bytes]:
    if in_use(config.endpoint):
        raise ConfigError(f"{key}: {config.endpoint} is in use; {_IN_USE}")
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
        raise ConfigError(f"{key}: cannot bind {config.endpoint}: {error.strerror}; {_advice(error)}") from error
    except BaseException:
        socket.close(linger=0)
        raise
    return socket


def _socket(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    try:
        return context.socket(zmq.XPUB)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"publisher: {error.strerror}") from error


def _authenticator(context: zmq.Context[zmq.Socket[bytes]], config: PublisherConfig) -> ThreadAuthenticator | None:
    """Lets subscribers in by their keys; None where no list of them is given."""
    if config.curve is None or config.curve.clients is None:
        return None
    keys = _clients(config)
    if not keys:
        reason = _NO_KEYS.format(config.curve.clients)
        raise ConfigError(f"publisher.curve.clients: {reason}, so that nobody could subscribe")
    authenticator = ThreadAuthenticator(context, log=_SILENT)
    authenticator.allow_any = False
    authenticator.certs["*"] = keys
    authenticator.start()
    return authenticator


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
