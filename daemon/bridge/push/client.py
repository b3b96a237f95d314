"""A client that a configuration can be trusted with: it reaches the public internet, and else what is admitted alone.

The name is looked up for each connection, every address of it is judged, and those that were judged are connected to.
Certificate, SNI and Host are of the name. No redirect is followed, no proxy used, and little of an answer is read.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import TimeoutError as NotFoundYetError
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from daemon.bridge.port import AwayError
from daemon.bridge.push.names import SYSTEM, Names
from daemon.bridge.push.port import RefusedError
from daemon.config.networks import Networks, is_of_this_machine
from daemon.config.targets import PushBase
from daemon.errors import ConfigError
from daemon.redact import printable
from daemon.system.http_client import HttpAnswer, HttpConnection, HttpRequest, Reach, SocketAddress

MAX_BODY = 12 << 20  # bytes: a picture of 5 MiB in base64, and what is around it
_ANSWER_BYTES = 64 << 10
_LOOK_S = 0.1


@dataclass(frozen=True)
class Server:
    """Where requests go.

    Attributes:
        path: with the query, as the configuration has it.
    """

    is_https: bool
    host: str
    port: int
    path: str

    @property
    def shown(self) -> str:
        """Without the path, which may be a secret."""
        return self.host


def server_of(url: str) -> Server:
    """The parts of a URL whose form was checked."""
    parts = urlsplit(url)
    is_https = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Server(is_https, parts.hostname or "", parts.port or (443 if is_https else 80), path)


class PushClient:
    """A kept connection to one server. One thread uses it; any thread may close it.

    Args:
        target: networks, certificates, and whether plaintext is allowed.

    Raises:
        ConfigError: ca_file cannot be read.
    """

    def __init__(self, target: PushBase, server: Server, names: Names = SYSTEM) -> None:
        self.server = server
        self._networks, self._names = Networks(target.allow), names
        self._may_be_read = target.allow_plaintext
        self._is_closed, self._is_used = threading.Event(), threading.Lock()
        tls = _tls(target.name, target.ca_file) if server.is_https else None
        self._http = HttpConnection((server.host, server.port), tls, Reach(self._addresses, _ANSWER_BYTES))

    def reach(self, until: float) -> None:
        """Connect, and close that again: a server that takes one connection at a time is not held up by a silent one.

        Args:
            until: by `time.monotonic`.

        Raises:
            AwayError: there is no connection; says why.
        """
        with self._used():
            self._http.open(until)
            self._http.close()

    def exchange(self, request: HttpRequest, until: float) -> HttpAnswer:
        """The answer, whatever its status. The request is sent once.

        Raises:
            AwayError: there is none.
            RefusedError: the request is too large.
        """
        if len(request.body) > MAX_BODY:
            raise RefusedError(f"a request of {len(request.body)} bytes; at most {MAX_BODY} are sent")
        with self._used():
            self._http.drop_stale()
            return self._http.exchange(request, until, repeats=False)

    def close(self) -> None:
        """End a request that hangs, too."""
        self._is_closed.set()
        self._http.interrupt()
        if self._is_used.acquire(blocking=False):  # otherwise the request closes it at its end
            self._http.close()
            self._is_used.release()

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self._is_used:
            try:
                yield
            except (OSError, HTTPException) as error:
                raise AwayError(f"{self.server.shown}: {_reason(error)}") from error
            finally:
                if self._is_closed.is_set():
                    self._http.close()

    def _addresses(self, host: str, port: int, left_s: float) -> Sequence[SocketAddress]:
        """The addresses of the name, if each may be connected to."""
        found = self._found(host, port, left_s)
        for _, (address, *_) in found:
            refusal = self._networks.refusal(address)
            if refusal is not None:
                raise _NotAdmittedError(
                    f"its address {address} is {refusal}: add its network to `allow` if it is meant"
                )
            if not (self.server.is_https or self._may_be_read or is_of_this_machine(address)):
                raise _NotAdmittedError("http:// to another machine can be read on the way: see allow_plaintext")
        return found

    def _found(self, host: str, port: int, left_s: float) -> Sequence[SocketAddress]:
        until, pending = monotonic() + left_s, self._names.find(host, port)
        while not self._is_closed.is_set():
            try:
                return pending.result(max(0.0, min(_LOOK_S, until - monotonic())))
            except NotFoundYetError:
                if monotonic() >= until:
                    raise _NotAdmittedError("its name is not found in time: is the name server away?") from None
        raise ConnectionAbortedError("the connection was interrupted")


class _NotAdmittedError(OSError):
    """No connection is tried; the text says why."""


def _tls(name: str, ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except OSError as error:  # an SSLError is one
        raise ConfigError(
            f"target {name}: ca_file: {ca_file} has no certificates: {error.strerror or error}"
        ) from error


def _reason(error: OSError | HTTPException) -> str:
    """In words, without anything that the server has said."""
    words: dict[type[Exception], Callable[[Any], str]] = {
        _NotAdmittedError: str,
        TimeoutError: lambda _: "does not answer in time",
        ssl.SSLCertVerificationError: lambda found: f"its certificate is refused: {printable(found.verify_message)}",
        ssl.SSLError: lambda found: f"TLS fails: {found.reason or 'the connection ends'}",
        socket.gaierror: lambda _: "its name is not known",
        ConnectionError: lambda found: found.strerror or "closed the connection without an answer",
        IncompleteRead: lambda _: "the answer ends early",
        OSError: lambda found: found.strerror or "cannot be reached",
        HTTPException: lambda _: f"what answers is no HTTP, or more than {_ANSWER_BYTES >> 10} KiB",
    }
    return next(told(error) for kind, told in words.items() if isinstance(error, kind))
