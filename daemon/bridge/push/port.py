"""Ports of what is pushed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from daemon.bridge.records import Delivery
from daemon.errors import LookoutError


class RefusedError(LookoutError):
    """The server refuses this record for good, and would take another one."""


@runtime_checkable
class Digests(Protocol):
    """A connection to people: many records that waited may be told as one message."""

    def digest(self, batch: Sequence[Delivery]) -> str | None:
        """Tell all of these records at once, whatever their number, with the newest picture among them.

        Returns:
            None if that is confirmed, or why it is refused for good: for all of them.

        Raises:
            AwayError, GoneError: nothing was told.
        """
        ...


class Pusher(Protocol):
    """Sends one record, over a client of its own."""

    def push(self, delivery: Delivery, until: float) -> None:
        """Return when it is confirmed.

        Args:
            until: by `time.monotonic`.

        Raises:
            RefusedError, AwayError, GoneError.
        """
        ...

    def close(self) -> None:
        """End a request that hangs; any thread."""
        ...
