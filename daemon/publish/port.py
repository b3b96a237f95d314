"""The port through which messages leave the daemon."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from lookout.messages import Message


class Sink(Protocol):
    """Sends messages that are numbered and accounted for. Only the publisher thread calls it.

    A sink never blocks. A receiver without room loses the message, and sees the gap in `index`.
    """

    def send(self, topic: bytes, message: Message) -> None:
        """Send one message, at the latest at the next `flush`."""
        ...

    def flush(self) -> None:
        """Hand over all messages."""
        ...

    def newcomers(self) -> Collection[bytes]:
        """The topic prefixes of new subscriptions since the last call. The publisher repeats the last status of each of
        these sources."""
        ...

    @property
    def subscriptions(self) -> int:
        """Number of subscriptions."""
        ...

    def close(self) -> None:
        """Send the rest within a time limit. A second call does nothing."""
        ...
