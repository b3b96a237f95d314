"""Where messages leave the daemon."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from daemon.messages import Message


class Sink(Protocol):
    """Takes messages that are numbered and accounted for. The publisher's thread alone calls it.

    A sink never blocks: a message that a slow receiver has no room for is lost to that receiver, which sees the gap in
    `index`.
    """

    def send(self, topic: bytes, message: Message) -> None:
        """Take one message; it may stay here until `flush`."""
        ...

    def flush(self) -> None:
        """Hand over what was sent."""
        ...

    def newcomers(self) -> Collection[bytes]:
        """Return the topic prefixes that were subscribed to since the last call: the last status of each such source
        is sent again."""
        ...

    @property
    def subscriptions(self) -> int:
        """How many are held now."""
        ...

    def close(self) -> None:
        """Send what is left, within a time limit. Also where nothing was ever sent; a second call does nothing."""
        ...
