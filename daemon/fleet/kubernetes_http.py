"""One HTTP connection to the Kubernetes API, with a deadline for each request. One thread uses it at a time."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from time import monotonic

_CHUNK = 1 << 20
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 3), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3))


class ApiConnection:
    """Made at the first request, and kept.

    Raises (all methods but close):
        OSError, HTTPException: the caller closes it then.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._address, self._tls = (host, port), tls
        self._http: HTTPConnection | None = None
        self._end: socket.socket | None = None  # the response takes it over where the server closes

    @property
    def is_open(self) -> bool:
        return self._http is not None

    def exchange(self, method: str, path: str, body: bytes, headers: dict[str, str], until: float) -> tuple[int, bytes]:
        """Status and content of the answer.

        Args:
            until: by `time.monotonic`.
        """
        answer, end = self.request(method, path, body, headers, until)
        parts = []
        while part := answer.read1(_CHUNK):
            parts.append(part)
            end.settimeout(_left(until))
        answer.close()  # or the connection takes no other request
        if answer.will_close:
            self.close()
        return answer.status, b"".join(parts)

    def request(
        self, method: str, path: str, body: bytes, headers: dict[str, str], until: float
    ) -> tuple[HTTPResponse, socket.socket]:
        """The answer as far as its headers, and the socket that has the rest."""
        http = self._http = self._http or self._made(_left(until))
        if self._end is None:
            http.connect()
            self._end = _tuned(http)
        self._end.settimeout(_left(until))
        http.request(method, path, body=body or None, headers=headers)
        return http.getresponse(), self._end

    def close(self) -> None:
        http, self._http, self._end = self._http, None, None
        if http is not None:
            http.close()

    def _made(self, limit_s: float) -> HTTPConnection:
        host, port = self._address
        if self._tls is None:
            return HTTPConnection(host, port, timeout=limit_s)
        return HTTPSConnection(host, port, timeout=limit_s, context=self._tls)


def _tuned(http: HTTPConnection) -> socket.socket:
    """A dead peer of a quiet connection is found by the kernel."""
    end: socket.socket = http.sock
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        end.setsockopt(socket.IPPROTO_TCP, option, value)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
