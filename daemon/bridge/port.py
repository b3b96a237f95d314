"""The port of a target: one connection to a broker, a server or a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from daemon.bridge.records import Delivery, Figure
from daemon.errors import LookoutError

if TYPE_CHECKING:
    from daemon.bridge.states import StateBoard


class AwayError(LookoutError):
    """Nothing can be delivered now. The connection is closed, and another one is made later.

    Args:
        settled: the results of the first deliveries of the batch, as `deliver` returns them.
        retry_in_s: as the server asks for; the usual pause is kept as well. None if it asks for none.
        longest_s: the pause grows no longer, where nobody is there whom many tries could trouble.
    """

    def __init__(
        self,
        reason: str,
        *,
        settled: Sequence[str | None] = (),
        retry_in_s: float | None = None,
        longest_s: float = 60.0,
    ) -> None:
        super().__init__(reason)
        self.settled, self.retry_in_s, self.longest_s = settled, retry_in_s, longest_s


class GoneError(LookoutError):
    """The server says that the target is gone for good (410): nothing is sent until the bridge starts again."""

    def __init__(self, reason: str, *, settled: Sequence[str | None] = ()) -> None:
        super().__init__(reason)
        self.settled = settled


class Connection(Protocol):
    """One connection. Its target's thread alone uses it; each method has a time limit of its own.

    A connection is made by `open_target`, and again after each `AwayError`: secrets in files are read each time.
    """

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[str | None]:
        """Send records in their order, and wait until each is confirmed.

        Returns:
            For each, None if it is confirmed, or why it is refused for good: it is dropped then. A result that is
            missing means that the rest comes again.

        Raises:
            AwayError, GoneError: with the results so far.
        """
        ...

    def show(self, figures: Sequence[Figure]) -> int:
        """Send detections, once at most; the number that was sent, which no broker may have confirmed.

        Raises:
            AwayError: the connection is lost.
        """
        ...

    def tend(self, states: StateBoard) -> None:
        """Keep what the connection needs: states that are retained, signs of life. Called several times a second.

        Raises:
            AwayError: the connection is lost.
        """
        ...

    def close(self) -> None:
        """Give it up within a second or so. A second call does nothing."""
        ...


@runtime_checkable
class Farewell(Protocol):
    """A connection that says something when the bridge ends, such as `offline`."""

    def say_farewell(self) -> None:
        """Before `close`, at an orderly stop."""
        ...
