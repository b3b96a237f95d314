"""Connections that push: a request for each record, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from daemon.bridge.port import AwayError, GoneError
from daemon.bridge.push.port import Pusher, RefusedError
from daemon.bridge.records import Delivery, Figure
from daemon.bridge.states import StateBoard

_TURN_S = 1.0  # after which the rest of a batch comes in another call
MOST_S = 10.0  # of a call


class PushConnection:
    """Gives records to a `Pusher`, in order. A record that is refused costs that record alone.

    Args:
        timeout_s: of a record, with all its requests.
    """

    def __init__(self, pusher: Pusher, timeout_s: float) -> None:
        self._pusher, self._timeout_s = pusher, timeout_s

    def deliver(self, batch: Sequence[Delivery]) -> Sequence[str | None]:
        """See `daemon.bridge.port.Connection.deliver`; the results of the first ones, after a second or so."""
        begun, results = monotonic(), list[str | None]()
        for delivery in batch:
            now = monotonic()
            if now - begun > _TURN_S:
                break
            try:
                self._pusher.push(delivery, min(now + self._timeout_s, begun + MOST_S))
            except RefusedError as error:
                results.append(str(error))
            except AwayError as error:
                raise AwayError(str(error), settled=results, retry_in_s=error.retry_in_s) from error
            except GoneError as error:
                raise GoneError(str(error), settled=results) from error
            else:
                results.append(None)
        return results

    def show(self, figures: Sequence[Figure]) -> int:  # noqa: ARG002 - nobody is told of every frame
        return 0

    def tend(self, states: StateBoard) -> None:
        """Nothing is retained, and a connection that was lost is found by the next record."""

    def close(self) -> None:
        """From any thread: a request that hangs ends."""
        self._pusher.close()
