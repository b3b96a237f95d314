"""The newest records of the fleet, followed in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from daemon.clock import Clock
from daemon.errors import LookoutError
from daemon.fleet.port import Coordinator, CoordinatorAwayError
from daemon.fleet.records import FleetView
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0
_MAX_PROBLEMS = 10  # lines


class RecordFollower(threading.Thread):
    """Follows the records until it is stopped, and begins again whenever the connection breaks.

    Args:
        coordinator: for this thread alone; closed at its end.
        on_view: called when there are new records, and when there are none any more.
        on_failure: called if the thread cannot go on.
        is_logged: whether what happens to the connection is logged.

    Attributes:
        view: the newest records, None before the first.
        failure: why there are none now; None while they come.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        on_view: Callable[[], None],
        clock: Clock,
        on_failure: Callable[[str], None],
        *,
        is_logged: bool = True,
    ) -> None:
        super().__init__(name="fleet-records", daemon=True)
        self._coordinator, self._on_view, self._clock, self._on_failure = coordinator, on_view, clock, on_failure
        self._is_logged = is_logged
        self.view: FleetView | None = None
        self.failure: str | None = None
        self._stopping = StopToken()
        self._reported: dict[str, str] = {}  # records that cannot be read

    def stop(self) -> None:
        """Soon; does not wait for it."""
        self._stopping.set()
        if self.ident is None:
            self._coordinator.close()

    def run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while not self._stopping.is_set:
                try:
                    for view in self._coordinator.follow(self._stopping):
                        self._accept(view)
                        pause_s = _FIRST_PAUSE_S
                except LookoutError as error:
                    self._fail(error)
                self._clock.wait(self._stopping, pause_s)
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
        except Exception as error:
            log.exception("the fleet's records are followed no more")
            self._on_failure(f"the fleet's records are followed no more: {error}")
        finally:
            self._coordinator.close()

    def _accept(self, view: FleetView) -> None:
        if self.failure and self._is_logged:
            log.info("the coordinator answers again")
        self.view, self.failure = view, None
        if self._is_logged:
            self._report(view)
        self._on_view()

    def _fail(self, error: LookoutError) -> None:
        if self.failure is None and self._is_logged:
            is_away = isinstance(error, CoordinatorAwayError)
            log.warning("the coordinator is away" if is_away else "the coordinator refuses", reason=str(error))
        self.failure = str(error)
        self._on_view()

    def _report(self, view: FleetView) -> None:
        fresh = {key: reason for key, reason in view.problems.items() if self._reported.get(key) != reason}
        for key in list(fresh)[:_MAX_PROBLEMS]:
            log.warning("a record of the fleet cannot be read, and is left out", key=key, reason=fresh[key])
        self._reported = dict(view.problems)
