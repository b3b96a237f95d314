"""Limits of the HTTP server's connections: their number, and the time for a request and for an answer.

uvicorn closes a connection that idles between two requests. It waits for ever for the rest of a header, and for a
client that does not read its answer, or what a WebSocket sends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

REQUEST_S = 10.0  # from the connection, or the last answer, to the end of a request's header
ANSWER_S = 75.0  # from the header to the end of the answer; a change of sources may take a minute
READ_S = 20.0  # that a client may leave what it was sent unread


def limited_protocol(max_connections: int, answer_s: float = ANSWER_S) -> type[H11Protocol]:
    """A protocol class with a limit of connections. A further connection closes the oldest one that is idle, or whose
    request is not complete, so that there is always room for the next request.

    Args:
        answer_s: from the header to the end of the answer.
    """
    connections: dict[Any, None] = {}  # the oldest first

    class Limited(H11Protocol):
        """One connection."""

        _timer: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            connections[self] = None
            self._restart()
            if len(connections) > max_connections:
                loser = next((other for other in connections if other.is_spare), self)
                connections.pop(loser)
                loser.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.pop(self, None)
            for timer in (self._timer, self._unread):
                if timer:
                    timer.cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread = self.loop.call_later(READ_S, self.transport.abort)

        def resume_writing(self) -> None:
            if self._unread:
                self._unread.cancel()
            super().resume_writing()

        def data_received(self, data: bytes) -> None:
            was_busy = self.is_busy
            super().data_received(data)
            if self.is_busy and not was_busy:
                self._restart()

        def handle_websocket_upgrade(self, event: h11.Request) -> None:
            """The connection is a WebSocket from now on, which has limits of its own."""
            connections.pop(self, None)
            if self._timer:
                self._timer.cancel()
            super().handle_websocket_upgrade(event)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._restart()

        @property
        def is_busy(self) -> bool:
            """Whether a request is being answered."""
            return self.cycle is not None and not self.cycle.response_complete

        @property
        def is_spare(self) -> bool:
            """Whether nothing is lost if it is closed: a request whose body does not come keeps nobody else out."""
            return not self.is_busy or self.conn.their_state is h11.SEND_BODY

        def _restart(self) -> None:
            if self._timer:
                self._timer.cancel()
            self._timer = self.loop.call_later(answer_s if self.is_busy else REQUEST_S, self.transport.abort)

    return Limited


def limited_websockets() -> type[WSProtocol]:
    """A protocol class for WebSockets that cuts off a client which does not read."""
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

    class Limited(WSProtocol):
        """One WebSocket. Its queue of what the client has sent is one message: uvicorn then pauses reading."""

        _timer: asyncio.TimerHandle | None = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self._cancel()
            self._timer = self.loop.call_later(READ_S, self.transport.abort)

        def resume_writing(self) -> None:
            self._cancel()
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)
            self.writable.set()  # early versions of uvicorn leave `send` waiting

        def _cancel(self) -> None:
            if self._timer:
                self._timer.cancel()

    return Limited
