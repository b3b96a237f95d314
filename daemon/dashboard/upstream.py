"""One request to a daemon whose answer is passed on as it comes. The event loop's thread alone uses it."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import h11

from daemon.errors import LookoutError
from daemon.peers.api import AwayError

_BUFFER: Final = 64 << 10  # bytes; asyncio holds up to twice as many, and then the daemon waits
_CONNECT_S: Final = 10.0


class Wanted(NamedTuple):
    """A request.

    Attributes:
        target: path and query, percent-encoded.
        silence_s: limit for the head of the answer, and again for each piece of its content.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    silence_s: float


class CutOffError(LookoutError):
    """An answer that has begun cannot be finished: the connection is closed, and the browser sees that bytes lack."""


class Upstream:
    """An answer, as far as its head; `open` makes it.

    Attributes:
        headers: names in lower case.
    """

    def __init__(self, link: _Link, response: h11.Response) -> None:
        self._link = link
        self.status = response.status_code
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}

    @staticmethod
    async def open(at: tuple[str, int], tls: ssl.SSLContext | None, wanted: Wanted) -> Upstream:
        """Send a request over a connection of its own.

        Args:
            at: host and port.

        Raises:
            AwayError: there is no answer.
        """
        link: _Link | None = None
        try:
            link = await _Link.open(at, tls, wanted.silence_s)
            return Upstream(link, await link.ask(at, wanted))
        except BaseException as error:
            if link is not None:
                link.close()
            if isinstance(error, asyncio.TimeoutError):
                raise AwayError("it did not answer in time") from error
            if isinstance(error, (OSError, h11.ProtocolError, ValueError)):
                raise AwayError(_reason(error)) from error
            raise

    async def pieces(self) -> AsyncIterator[bytes]:
        """The content. No more of it is read than is taken.

        Raises:
            CutOffError: it breaks off.
        """
        try:
            while (piece := await self._link.piece()) is not None:
                yield piece
        except asyncio.TimeoutError as error:
            raise CutOffError("it sent nothing more in time") from error
        except (OSError, h11.ProtocolError) as error:
            raise CutOffError(_reason(error)) from error

    def close(self) -> None:
        """End the request, and drop what comes of it. A second call does nothing."""
        self._link.close()


class _Link:
    """A connection for one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_s: float) -> None:
        self._reader, self._writer, self._silence_s = reader, writer, silence_s
        self._http = h11.Connection(h11.CLIENT)

    @staticmethod
    async def open(at: tuple[str, int], tls: ssl.SSLContext | None, silence_s: float) -> _Link:
        opening = asyncio.open_connection(*at, ssl=tls, limit=_BUFFER)
        return _Link(*await asyncio.wait_for(opening, _CONNECT_S), silence_s)

    async def ask(self, at: tuple[str, int], wanted: Wanted) -> h11.Response:
        """Send the request, and wait for the head of the answer."""
        host = f"[{at[0]}]" if ":" in at[0] else at[0]
        headers = {"Host": f"{host}:{at[1]}", "Connection": "close", **wanted.headers}
        if wanted.body:
            headers["Content-Length"] = str(len(wanted.body))
        request = h11.Request(method=wanted.method, target=wanted.target, headers=[*headers.items()])
        self._send(request)
        if wanted.body:
            self._send(h11.Data(data=wanted.body))
        self._send(h11.EndOfMessage())
        await asyncio.wait_for(self._writer.drain(), self._silence_s)
        while not isinstance(event := await self._event(), h11.Response):
            pass  # that it goes on
        return event

    async def piece(self) -> bytes | None:
        """The next piece of the content; None at its end."""
        while True:
            event = await self._event()
            if isinstance(event, h11.EndOfMessage):
                return None
            if event.data:
                return bytes(event.data)

    def close(self) -> None:
        with suppress(OSError, RuntimeError):
            self._writer.transport.abort()

    def _send(self, event: Any) -> None:
        self._writer.write(self._http.send(event) or b"")

    async def _event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await asyncio.wait_for(self._reader.read(_BUFFER), self._silence_s)
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise ConnectionError("it closed the connection without an answer")
            self._http.receive_data(data)
        return event


def _reason(error: BaseException) -> str:
    """One line."""
    text = str(error)
    if isinstance(error, ConnectionError) and error.errno:
        text = os.strerror(error.errno)
    return (text.splitlines() or [type(error).__name__])[0][:200]
