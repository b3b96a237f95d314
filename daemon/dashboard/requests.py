"""Requests of the page's event loop to daemons."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from anyio import CapacityLimiter, to_thread

from daemon.peers.api import TIMEOUT_S, Answer, DaemonApi

CHANGE_TIMEOUT_S = 65.0  # the daemon itself gives up after a minute


class Requests:
    """Requests from the event loop: so many at once to each daemon. One that does not answer keeps no other waiting."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._limiters: dict[DaemonApi, CapacityLimiter] = {}

    async def send(
        self,
        api: DaemonApi,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """See `DaemonApi.request`."""
        limiter = self._limiters.get(api) or self._limiters.setdefault(api, CapacityLimiter(self._at_once))
        send = partial(api.request, method, path, query=query, headers=headers, body=body, timeout_s=timeout_s)
        return await to_thread.run_sync(send, limiter=limiter)
