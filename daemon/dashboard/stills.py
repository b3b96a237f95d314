"""Stills: the next frame of a source as a JPEG, fetched once for all who look."""

from __future__ import annotations

import asyncio

import msgspec

from daemon.clock import Clock
from daemon.dashboard.requests import Requests
from daemon.dashboard.watched import WatchedDaemon
from daemon.peers.api import Answer, AwayError

_FRESH_NS = 150_000_000  # a still this young is given to others as well
_AT_ONCE = 6  # requests to a daemon, which encodes four at once
_MAX_WAITING = 200  # of a daemon
_TIMEOUT_S = 8.0


class Still(msgspec.Struct, frozen=True):
    """A JPEG, or the reason why there is none.

    Attributes:
        status: HTTP status.
        seq, pts, captured_at: of the frame; empty if unknown.
    """

    status: int
    jpeg: bytes = b""
    reason: str = ""
    seq: str = ""
    pts: str = ""
    captured_at: str = ""


class Stills:
    """The event loop's thread alone uses it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests = Requests(_AT_ONCE)
        self._latest: dict[tuple[str, str], tuple[int, Still]] = {}
        self._asked: dict[tuple[str, str], asyncio.Task[Still]] = {}

    async def get(self, daemon: WatchedDaemon, source: str) -> Still:
        """A frame that is at most a moment old."""
        key = (daemon.name, source)
        at, still = self._latest.get(key, (0, None))
        if still is not None and self._clock.monotonic_ns() - at < _FRESH_NS:
            return still
        task = self._asked.get(key)
        if task is None:
            if sum(name == daemon.name for name, _ in self._asked) >= _MAX_WAITING:
                return Still(503, reason="too many stills are waited for already")
            task = self._asked[key] = asyncio.ensure_future(self._fetch(daemon, source, key))
        return await asyncio.shield(task)

    async def _fetch(self, daemon: WatchedDaemon, source: str, key: tuple[str, str]) -> Still:
        path = f"sources/{source}/snapshot.jpg"
        try:
            found = _still_of(await self._requests.send(daemon.api, "GET", path, timeout_s=_TIMEOUT_S))
        except AwayError as error:
            found = Still(503, reason=str(error))
        finally:
            self._asked.pop(key, None)
        now = self._clock.monotonic_ns()
        self._latest = {other: row for other, row in self._latest.items() if now - row[0] < _FRESH_NS}
        self._latest[key] = (now, found)
        return found


def _still_of(answer: Answer) -> Still:
    if answer.status != 200:
        return Still(answer.status if answer.status in (404, 409, 503, 504) else 502, reason=answer.error)
    names = ("x-seq", "x-pts", "x-captured-at")
    return Still(200, answer.body, "", *(answer.headers.get(name, "") for name in names))
