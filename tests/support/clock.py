"""A clock that moves only when a test moves it, or when a thread waits on it."""

from __future__ import annotations

from collections.abc import Callable

from daemon.clock import Awaited


class ManualClock:
    """Attributes:
    waits: seconds of each `wait`, in order.
    on_wait: called when the time of a wait has passed, before the waiter goes on.
    """

    def __init__(self, now_ns: int = 1_000_000_000) -> None:
        self._now, self._utc = now_ns, 1_700_000_000_000_000_000
        self.waits: list[float] = []
        self.on_wait: Callable[[], None] = lambda: None

    def monotonic_ns(self) -> int:
        return self._now

    def utc_ns(self) -> int:
        return self._utc + self._now

    def wait(self, event: Awaited, seconds: float) -> bool:
        self.waits.append(seconds)
        self.advance(seconds)
        self.on_wait()
        return event.wait(0)

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * 1e9)

    def step(self, seconds: float) -> None:
        """Set the time of day, as NTP does; monotonic time goes on."""
        self._utc += round(seconds * 1e9)
