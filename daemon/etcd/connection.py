"""One HTTP connection to an endpoint of etcd, with a deadline for each request. One thread uses it at a time."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from time import monotonic

from daemon.etcd.settings import Endpoint

_CHUNK = 1 << 20
_MAX_ANSWER = 1 << 28  # bytes
# A dead peer of a quiet connection is found by the kernel: seconds until the first probe, between probes, probes.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 3), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3))


class Connection:
    """Made at the first request, and kept.

    Raises (all methods but close):
        OSError, HTTPException: see `faults.connection_fault`. The connection is closed then.
    """

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self._context = context
        self._http: HTTPConnection | None = None

    def post(self, path: str, body: bytes, headers: dict[str, str], until: float) -> tuple[int, bytes]:
        """Status and content of the answer.

        Args:
            until: by `time.monotonic`.
        """
        kept = self._http is not None
        try:
            return self._exchange(path, body, headers, until)
        except (ConnectionError, HTTPException):
            self.close()
            if not kept:
                raise
        except OSError:
            self.close()
            raise
        try:  # etcd was restarted, or has closed the kept connection: once more over another
            return self._exchange(path, body, headers, until)
        except (OSError, HTTPException):
            self.close()
            raise

    def stream(
        self, path: str, body: bytes, headers: dict[str, str], until: float
    ) -> tuple[HTTPResponse, socket.socket]:
        """An answer whose content comes without an end, and its socket. `close` ends both."""
        try:
            http = self._connected(until)
            http._http_vsn, http._http_vsn_str = 10, "HTTP/1.0"  # type: ignore[attr-defined]  # lines, not chunks
            end = http.sock  # the response takes it over
            return self._request(path, body, headers, until), end
        except (OSError, HTTPException):
            self.close()
            raise

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _exchange(self, path: str, body: bytes, headers: dict[str, str], until: float) -> tuple[int, bytes]:
        answer = self._request(path, body, headers, until)
        parts, size = [], 0
        while part := answer.read1(_CHUNK):
            parts.append(part)
            size += len(part)
            if size > _MAX_ANSWER:
                raise HTTPException(f"an answer of more than {_MAX_ANSWER} bytes")
            self._set_limit(until)
        answer.close()  # or the connection takes no other request
        if answer.will_close:
            self.close()
        return answer.status, b"".join(parts)

    def _request(self, path: str, body: bytes, headers: dict[str, str], until: float) -> HTTPResponse:
        http = self._connected(until)
        self._set_limit(until)
        try:
            http.request("POST", path, body=body, headers={"Content-Type": "application/json", **headers})
        except (ssl.SSLError, ConnectionError):
            _read_alert(http)
            raise
        self._set_limit(until)
        return http.getresponse()

    def _connected(self, until: float) -> HTTPConnection:
        if self._http is None:
            self._http = self._made(_left(until))
            self._http.connect()
            for option, value in _KEEPALIVE:
                self._http.sock.setsockopt(socket.IPPROTO_TCP, option, value)
            self._http.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._http

    def _made(self, limit_s: float) -> HTTPConnection:
        host, port = self.endpoint.host, self.endpoint.port
        if self._context is None:
            return HTTPConnection(host, port, timeout=limit_s)
        return HTTPSConnection(host, port, timeout=limit_s, context=self._context)

    def _set_limit(self, until: float) -> None:
        if self._http is not None and self._http.sock is not None:
            self._http.sock.settimeout(_left(until))


def _read_alert(http: HTTPConnection) -> None:
    """Raise the reason that a server gives before it closes a connection of TLS; TLS 1.3 has it after the handshake."""
    if isinstance(http.sock, ssl.SSLSocket):
        http.sock.recv(1)


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
