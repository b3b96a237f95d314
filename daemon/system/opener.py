"""Opens what may take minutes or never return, a model or a driver, so that a stop interrupts the wait."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from daemon.errors import LookoutError
from daemon.system.background import BackgroundTask
from daemon.system.stop_token import StoppedError, StopToken
from detectors.port import DetectorError, DetectorUnavailableError

if TYPE_CHECKING:
    from daemon.clock import Clock
    from daemon.system.time_limits import Limits

log = structlog.get_logger(__name__)
T = TypeVar("T")
_SERVER_POLL_S = 1.0  # while the server of a model is away


class Model(Protocol):
    """A detector or a classifier."""

    def close(self) -> None: ...


ModelT = TypeVar("ModelT", bound=Model)


class Opener:
    """
    Args:
        stop: of the daemon.
        timeout_s: of each wait.
        on_hang: called when work is given up that still goes on: what is open is not to be closed under it.
    """

    def __init__(
        self, stop: StopToken, timeout_s: float, limits: Limits, clock: Clock, on_hang: Callable[[], object]
    ) -> None:
        self._stop, self._timeout_s, self._limits, self._clock = stop, timeout_s, limits, clock
        self._on_hang = on_hang

    def open(self, what: str, work: Callable[[], T]) -> T:
        """The result of work that a stop may leave.

        Args:
            what: such as "starting MPS".

        Raises:
            StoppedError: the daemon is stopping.
            LookoutError: it takes too long; and whatever the work raises.
        """
        return self._open(what, lambda _: work())

    def open_models(self, what: str, work: Callable[[], T]) -> T:
        """Likewise; if the server of a model is away, when it is back."""
        return self._open(what, partial(_patiently, work))

    def compute(self, what: str, work: Callable[[], T]) -> T:
        """The result of work that holds nothing open: a stop leaves it at once.

        Raises:
            StoppedError, LookoutError: as of `open`; and whatever the work raises.
        """
        task = BackgroundTask(what, lambda _: work(), lambda _: None, self._clock).start()
        return task.wait(self._stop, self._timeout_s, lambda: LookoutError(f"{what} takes too long"))

    def _open(self, what: str, work: Callable[[StopToken], T]) -> T:
        task = BackgroundTask(what, work, lambda _: None, self._clock).start()
        try:
            return task.wait(self._stop, self._timeout_s, lambda: LookoutError(f"{what} takes too long"))
        except (StoppedError, LookoutError):
            if not task.done.wait(self._limits.close):
                self._on_hang()
            raise

    def open_model(self, work: Callable[[], ModelT], path: object) -> ModelT:
        """Likewise, for the first model, which is closed if it comes too late."""
        late = DetectorError(f"model {path} did not open within {self._timeout_s:g} s; see model.open_timeout_s")
        task = BackgroundTask(
            "opening the model", partial(_patiently, work), lambda overdue: overdue.close(), self._clock
        )
        return task.start().wait(self._stop, self._timeout_s, lambda: late)


def _patiently(work: Callable[[], T], given_up: StopToken) -> T:
    reported = False
    while True:
        try:
            return work()
        except DetectorUnavailableError as error:
            if not reported:
                log.warning("waiting for the server of the model", reason=str(error))
            reported = True
            if given_up.wait(_SERVER_POLL_S):
                raise
