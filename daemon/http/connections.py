"""Connections of the HTTP server: how many there may be, and how long each may take for what it does.

uvicorn closes a connection that rests between two requests. It waits for ever for the rest of a header, and for a
client that does not read its answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0  # from the connection, or the last answer, to the end of the next request's header
ANSWER_S = 75.0  # from there to the end of the answer; a change of the sources may take a minute


def bounded(most: int) -> type[H11Protocol]:
    """The protocol of a server that has so many connections at most: beyond, the one that asks for nothing and is
    longest there goes, so that there is always room for the next request."""
    there: dict[Any, None] = {}  # the longest there first

    class Bounded(H11Protocol):
        """One connection."""

        _limit: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            there[self] = None
            self._restart()
            if len(there) > most:
                loser = next((other for other in there if not other.is_busy), self)
                there.pop(loser)
                loser.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            there.pop(self, None)
            if self._limit:
                self._limit.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            was_busy = self.is_busy
            super().data_received(data)
            if self.is_busy and not was_busy:
                self._restart()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._restart()

        @property
        def is_busy(self) -> bool:
            """A request is being answered."""
            return self.cycle is not None and not self.cycle.response_complete

        def _restart(self) -> None:
            if self._limit:
                self._limit.cancel()
            self._limit = self.loop.call_later(ANSWER_S if self.is_busy else REQUEST_S, self.transport.abort)

    return Bounded
