"""One HTTP connection to a server, with a deadline for each request."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from time import monotonic
from typing import Any

from detectors.triton.address import Address

UNAVAILABLE = (0, 503)  # statuses of a server that is not there, or not yet; others are refusals
_CHUNK = 1 << 20
_MAX_ANSWER = 1 << 31  # bytes
_MAX_ERROR = 300  # characters of a server's error text that are shown
_LOST = (ConnectionError, HTTPException)  # also what a kept connection gives that the server has closed meanwhile


class ServerError(Exception):
    """The server cannot be reached, is late, or answers with an error.

    Attributes:
        status: of the HTTP answer; 0 without one.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Connection:
    """A connection that is made when it is needed, and kept. One thread uses it.

    Args:
        limit_s: for each request, from its beginning to the end of its answer.
    """

    def __init__(self, address: Address, limit_s: float) -> None:
        self._address, self._limit_s = address, limit_s
        self._http: HTTPConnection | None = None
        self._sent: tuple[str, str, bytes, Mapping[str, str]] = ("", "", b"", {})
        self._until = 0.0
        self._is_kept = False  # the connection has given an answer before

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a request. Its answer must be received before the next one.

        Raises:
            ServerError: the server cannot be reached, or is late.
        """
        self._until = monotonic() + self._limit_s
        self._sent = (method, path, body, headers or {})
        try:
            self._write()
        except (OSError, HTTPException) as error:
            if not (self._is_kept and isinstance(error, _LOST)):
                self.close()
                raise self._failure(error) from error
            self._again()

    def receive(self) -> tuple[bytearray, Mapping[str, str]]:
        """The answer: content and headers.

        Raises:
            ServerError: the server is late, goes away, or answers with an error.
        """
        try:
            answer, content = self._read()
        except (OSError, HTTPException) as error:
            if not (self._is_kept and isinstance(error, _LOST)):
                self.close()
                raise self._failure(error) from error
            self._again()
            return self.receive()
        self._is_kept = True
        if answer.status != 200:
            raise ServerError(_error_text(content) or f"HTTP status {answer.status}", answer.status)
        return content, dict(answer.headers)

    def query(self, path: str, body: object = None) -> Any:
        """The answer to a GET, or to a POST of `body` as JSON; None if it is empty.

        Raises:
            ServerError: likewise.
        """
        self.send(*(("GET", path) if body is None else ("POST", path, json.dumps(body).encode())))
        content, _ = self.receive()
        try:
            return json.loads(content) if content.strip() else None
        except ValueError as error:
            raise ServerError(f"the server's answer to {path} is no JSON") from error

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        self._is_kept = False
        if self._http is not None:
            self._http.close()
            self._http = None

    def _again(self) -> None:
        """Send the request over a new connection: the server has closed the kept one, or was restarted."""
        self.close()
        try:
            self._write()
        except (OSError, HTTPException) as error:
            self.close()
            raise self._failure(error) from error

    def _write(self) -> None:
        if self._http is None:
            self._http = HTTPConnection(self._address.host, self._address.port, timeout=self._left())
            self._http.connect()
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(self._left())
        method, path, body, headers = self._sent
        self._http.request(method, path, body=body or None, headers=dict(headers))

    def _read(self) -> tuple[HTTPResponse, bytearray]:
        if self._http is None:
            raise ConnectionResetError("the connection is closed")
        self._socket.settimeout(self._left())
        answer = self._http.getresponse()
        stated = answer.headers.get("Content-Length")
        if stated is None:
            return answer, bytearray(answer.read())
        if not stated.isdecimal() or int(stated) > _MAX_ANSWER:
            self.close()
            raise ServerError(f"{self._address.server} states an answer of {stated[:40]} bytes")
        size, place = int(stated), 0
        content = bytearray(size)
        while place < size:
            if self._http.sock is not None:
                self._http.sock.settimeout(self._left())
            part = answer.read1(min(_CHUNK, size - place))  # one read of the socket, whose limit is set each time
            if not part:
                raise ConnectionResetError("the server closed the connection within its answer")
            content[place : place + len(part)] = part
            place += len(part)
        answer.close()
        return answer, content

    @property
    def _socket(self) -> socket.socket:
        if self._http is None or self._http.sock is None:
            raise ConnectionResetError("the connection is closed")
        found: socket.socket = self._http.sock
        return found

    def _left(self) -> float:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _failure(self, error: Exception) -> ServerError:
        if isinstance(error, TimeoutError):
            return ServerError(f"{self._address.server} gives no answer within {self._limit_s:g} s")
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return ServerError(f"{self._address.server} cannot be reached: {_line(reason)}")


def _error_text(content: bytes | bytearray) -> str:
    """The server's own words, in one line."""
    text = ""
    with suppress(ValueError, AttributeError):
        text = str(json.loads(content).get("error", ""))
    return _line(text)


def _line(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))[:_MAX_ERROR]
