"""HTTP with one deadline for a whole call: for connection, TLS, request, and each byte of the answer.

A server that sends a byte now and then gets no more time than one that is silent. Only the lookup of a name has no
limit, unless the caller looks it up. Nothing here follows a redirect or uses a proxy.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from io import BufferedReader, RawIOBase
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_CHUNK = 1 << 20
_MAX_ANSWER = 1 << 28  # bytes
# A dead peer of a quiet connection is found by the kernel: seconds until the first probe, between probes, probes.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 3), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3))


class HttpRequest(NamedTuple):
    """Attributes:
    path: with the query, percent-encoded.
    """

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = {}


class HttpAnswer(NamedTuple):
    """Attributes:
    headers: names in lower case.
    is_whole: False: the content did not come, or was too much; see `Reach.answer_bytes`.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    is_whole: bool = True


_Limit = Callable[[socket.socket], None]
SocketAddress = tuple[socket.AddressFamily, tuple[Any, ...]]  # as `socket.connect` takes it


def system_lookup(host: str, port: int, left_s: float) -> Sequence[SocketAddress]:  # noqa: ARG001 - it has no limit
    """The addresses of a name, in the system's order.

    Raises:
        OSError: it is unknown, or nobody can say.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, *_, address in found]


class Reach(NamedTuple):
    """How a server is reached, and how much it may say.

    Attributes:
        lookup: the addresses of host and port, in so many seconds; those are connected to, one after the other.
        answer_bytes: of an answer with its head, about. A content that is longer, or does not come, is left out: the
            status says enough. None: 256 MiB, and an answer without its content is none.
    """

    lookup: Callable[[str, int, float], Sequence[SocketAddress]] = system_lookup
    answer_bytes: int | None = None


class HttpConnection:
    """Made at the first request, and kept. One thread uses it at a time; any thread may interrupt it.

    Args:
        address: host and port.

    Raises (all but interrupt and close):
        OSError, HTTPException: the connection is closed then.
    """

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None, reach: Reach | None = None) -> None:
        self.address, self._tls, self._reach = address, tls, reach or Reach()
        self._http: _Http | None = None
        self._stream: HTTPResponse | None = None
        self._is_interrupted = False

    def open(self, until: float) -> None:
        """Connect, if it is not."""
        with self._closed_by_faults():
            self._made(lambda: _left(until))

    def drop_stale(self) -> None:
        """Close a kept connection that the server has closed, or that has something which nobody asked for."""
        with suppress(OSError):
            poll = select.poll()
            poll.register(self.raw_socket, select.POLLIN)
            if poll.poll(0):
                self.close()

    def exchange(self, request: HttpRequest, until: float, *, repeats: bool = True) -> HttpAnswer:
        """The answer, whatever its status. Where the server has closed the kept connection, the request is sent again
        over another one.

        Args:
            until: by `time.monotonic`.
            repeats: False: the request is sent once at most, because the server may have taken it before it closed.
        """
        if self._http is not None and repeats:
            with suppress(ConnectionError, HTTPException, ssl.SSLError):
                return self._exchanged(request, until)
        return self._exchanged(request, until)

    def stream(self, request: HttpRequest, until: float, silence_s: float, *, chunks: bool = True) -> HTTPResponse:
        """An answer whose content comes without an end.

        Args:
            until: of its head.
            silence_s: limit of each read of its content.
            chunks: False: `read1` keeps nothing back, so that a poll of `raw_socket` tells whether it has something.
        """
        with self._closed_by_faults():
            http = self._made(lambda: _left(until))
            if not chunks:
                http._http_vsn, http._http_vsn_str = 10, "HTTP/1.0"  # type: ignore[attr-defined]
            self._stream = http.answer(request)
            http.limit(lambda: silence_s)
            return self._stream

    @property
    def raw_socket(self) -> socket.socket:
        if self._http is None or self._http.end is None:
            raise ConnectionAbortedError("the connection is closed")
        return self._http.end

    def interrupt(self) -> None:
        """End a call that hangs; it takes no time. One that still looks up a name goes on until its limit."""
        self._is_interrupted = True
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(self.raw_socket, socket.SHUT_RDWR)  # below TLS, whose reader has the rest

    def close(self) -> None:
        for part in (self._stream, self._http):
            if part is not None:
                part.close()
        self._stream = self._http = None

    def _exchanged(self, request: HttpRequest, until: float) -> HttpAnswer:
        with self._closed_by_faults():
            answer = self._made(lambda: _left(until)).answer(request)
            head = answer.status, {name.lower(): value for name, value in answer.getheaders()}
            try:
                content = _content(answer)
            except (OSError, HTTPException):
                if self._reach.answer_bytes is None:
                    raise
                self.close()
                return HttpAnswer(*head, b"", is_whole=False)
            answer.close()  # or the connection takes no other request
            if answer.will_close:
                self.close()
            return HttpAnswer(*head, content)

    def _made(self, left: Callable[[], float]) -> _Http:
        http = self._http = self._http or _Http(self.address, self._tls, self._reach)
        http.limit(left)
        if http.sock is None and not self._is_interrupted:
            http.connect()
        if self._is_interrupted:
            raise ConnectionAbortedError("the connection was interrupted")
        return http

    @contextmanager
    def _closed_by_faults(self) -> Iterator[None]:
        try:
            yield
        except (OSError, HTTPException):
            self.close()
            raise


class HttpClient:
    """Connections to some servers, kept. Any thread may call it."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._lock = threading.Lock()
        self._idle: list[HttpConnection] = []
        self._lent: set[HttpConnection] = set()
        self._is_closed = False

    def exchange(self, address: tuple[str, int], request: HttpRequest, until: float) -> HttpAnswer:
        """See `HttpConnection.exchange`."""
        with self._lock:
            place = next((n for n, idle in enumerate(self._idle) if idle.address == address), None)
            connection = self.connection(address) if place is None else self._idle.pop(place)
            self._lent.add(connection)
        try:
            return connection.exchange(request, until)
        finally:
            with self._lock:
                self._lent.discard(connection)
                is_kept = not self._is_closed
                if is_kept:
                    self._idle.append(connection)
            if not is_kept:
                connection.close()

    def connection(self, address: tuple[str, int]) -> HttpConnection:
        """One that the caller closes."""
        return HttpConnection(address, self._tls)

    def close(self) -> None:
        """End the calls of other threads, too. A later call has a connection of its own."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for connection in self._lent:
                connection.interrupt()
        for connection in idle:
            connection.close()


def fetch(url: str, request: HttpRequest, limit_s: float, tls: ssl.SSLContext | None) -> HttpAnswer:
    """The answer to one request, over a connection of its own.

    Args:
        url: of the server; the request has the path.
        tls: for https.

    Raises:
        OSError, HTTPException.
    """
    parts, is_https = urlsplit(url), url.startswith("https:")
    address = (parts.hostname or "", parts.port or (443 if is_https else 80))
    connection = HttpConnection(address, tls if is_https else None)
    try:
        return connection.exchange(request, monotonic() + limit_s)
    finally:
        connection.close()


def unverified_tls() -> ssl.SSLContext:
    """For a daemon of this machine, whose certificate names the machine and not localhost."""
    return ssl._create_unverified_context()  # noqa: S323


class _Http(HTTPConnection):
    """Limits each read and write of the socket by what is left at that moment.

    Attributes:
        end: the socket; a response may take it over.
    """

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None, reach: Reach) -> None:
        self.default_port = 443 if tls else 80  # which the header Host leaves out
        super().__init__(*address)
        self._tls, self._lookup = tls, reach.lookup
        self.end: socket.socket | None = None
        self.response_class = partial(_Response, self._set_limit, reach.answer_bytes)  # type: ignore[assignment]

    def limit(self, left: Callable[[], float]) -> None:
        self._left = left

    def connect(self) -> None:
        self.sock = self._connected()
        for option, value in _KEEPALIVE:
            self.sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            self._set_limit(self.sock)
            # It is known before the handshake, which an interruption ends as well.
            self.sock = self.end = self._tls.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock.do_handshake()

    def answer(self, request: HttpRequest) -> HTTPResponse:
        """As far as its head."""
        try:
            self.request(request.method, request.path, request.body or None, dict(request.headers))
        except (ssl.SSLError, ConnectionError) as error:
            return self._early_answer(error)
        return self.getresponse()

    def _early_answer(self, error: OSError) -> HTTPResponse:
        """The answer of a server that did not wait for the whole request, such as 413."""
        try:
            answer = self.getresponse()
        except ssl.SSLError:
            raise  # the server said why: TLS 1.3 does after the handshake
        except (OSError, HTTPException):
            raise error from None
        answer.will_close = True
        return answer

    def send(self, data: Any) -> None:
        rest = memoryview(data)
        while rest:
            self._set_limit(self.sock)
            rest = rest[self.sock.send(rest) :]

    def _connected(self) -> socket.socket:
        """Each address of the name gets an equal share of the time."""
        found = self._lookup(self.host, self.port, self._left())
        for others, (family, address) in zip(reversed(range(len(found))), found):
            end = self.end = socket.socket(family, socket.SOCK_STREAM)  # an interruption ends a connection that hangs
            try:
                end.settimeout(self._left() / (others + 1))
                end.connect(address)
            except OSError:
                end.close()
                if not others:
                    raise
            else:
                return end
        raise OSError(f"{self.host} has no address")

    def _set_limit(self, end: socket.socket) -> None:
        end.settimeout(self._left())


class _Response(HTTPResponse):
    def __init__(self, limit: _Limit, most: int | None, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = BufferedReader(_LimitedReader(limit, most, sock, self.fp.detach()))


class _LimitedReader(RawIOBase):
    def __init__(self, limit: _Limit, most: int | None, end: socket.socket, source: RawIOBase) -> None:
        self._limit, self._most, self._end, self._source = limit, most, end, source
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._limit(self._end)
        count = self._source.readinto(buffer)
        self._size += count or 0
        if self._most is not None and self._size > self._most:
            raise HTTPException(f"an answer of more than {self._most} bytes")
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


def _content(answer: HTTPResponse) -> bytes:
    parts, size = [], 0
    while part := answer.read1(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > _MAX_ANSWER:
            raise HTTPException(f"an answer of more than {_MAX_ANSWER} bytes")
    if answer.length:
        raise IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
