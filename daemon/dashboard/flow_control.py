"""How much may be under way to one viewer, so that what arrives there is fresh.

Kernels, proxies and networks hold megabytes on the way, which a slow link carries in minutes, and a server sees none of
it. So a viewer says how many messages have come, and no more is under way than its link carries in about a second.
"""

from __future__ import annotations

from collections import deque

from daemon.clock import Clock

_TARGET_NS = 1_000_000_000  # from the server to the viewer, and the answer
_FIRST, _LEAST, _MOST = 64 << 10, 16 << 10, 8 << 20  # bytes under way


class FlowControl:
    """The messages of one WebSocket that have been sent, and have not come."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way: deque[tuple[int, int]] = deque()  # bytes, and when they were sent, ns
        self._bytes = 0  # of these
        self._acknowledged = 0  # messages
        self._limit = _FIRST
        self._limited_ns = 0  # since then the limit is what it is

    @property
    def room(self) -> int:
        """Bytes that may be sent now; one message may be larger if nothing is under way."""
        return self._limit if not self._under_way else max(0, self._limit - self._bytes)

    def sent(self, size: int) -> None:
        self._under_way.append((size, self._clock.monotonic_ns()))
        self._bytes += size

    def acknowledge(self, count: int) -> None:
        """So many messages have come since the start, as the viewer says; what cannot be is no news."""
        now, size, at = self._clock.monotonic_ns(), 0, 0
        while self._acknowledged < count and self._under_way:
            part, at = self._under_way.popleft()
            size += part
            self._acknowledged += 1
        if not size:
            return
        was_used, took = self._bytes > self._limit // 2, now - at
        self._bytes -= size
        if took > _TARGET_NS and at >= self._limited_ns:  # what was sent before the last change says nothing about it
            self._limit = max(_LEAST, self._limit * _TARGET_NS // took)
            self._limited_ns = now
        elif was_used and took < _TARGET_NS // 2:
            self._limit = min(_MOST, self._limit + size)
