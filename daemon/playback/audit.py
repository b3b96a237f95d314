"""A line of the log for each thing that somebody has seen, taken or kept."""

from __future__ import annotations

from collections import OrderedDict

import structlog
from starlette.requests import Request

from daemon.clock import Clock
from daemon.http.access import caller_of

log = structlog.get_logger(__name__)
_AGAIN_NS = 600_000_000_000
_KEPT = 4096


class Audit:
    """The event loop's thread alone uses it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def tell(self, request: Request, what: str, **facts: object) -> None:
        """A line with the name of the token."""
        caller = caller_of(request)
        log.info(what, token=caller.name, peer=caller.peer, **facts)

    def tell_once(self, request: Request, what: str, key: str, **facts: object) -> None:
        """One line for all that the same token does with the same thing within ten minutes: a player reads a file in
        many pieces."""
        caller, now = caller_of(request), self._clock.monotonic_ns()
        row = (caller.name, caller.peer, what, key)
        told = self._told.get(row)
        if told is not None and now - told < _AGAIN_NS:
            return
        self._told[row] = now
        self._told.move_to_end(row)
        while len(self._told) > _KEPT:
            self._told.popitem(last=False)
        self.tell(request, what, **facts)
