"""From one configuration to the next while everything runs: one change at a time, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from daemon import systemd
from daemon.clock import Clock
from daemon.config import Config
from daemon.errors import LookoutError
from daemon.lanes import Lanes
from daemon.plan import options_of
from daemon.reload import Change, difference, least_confidence
from daemon.roster import MakeSource, Roster
from daemon.sources.decoding import NoHardware
from detectors.factory import Backend
from detectors.port import Detector, DetectorError, Options

log = structlog.get_logger(__name__)
OpenDetector = Callable[[Backend, Options], Detector]
_TRIED = NoHardware("this is only to see whether it can be made")


class Changes:
    """Asked from any thread; a thread of its own does what is asked, in order.

    Attributes:
        config: as it is now.
    """

    def __init__(
        self,
        config: Config,
        roster: Roster,
        lanes: Lanes,
        open_detector: OpenDetector,
        make_source: MakeSource,
        clock: Clock,
    ) -> None:
        self.config = config
        self._roster, self._lanes, self._clock = roster, lanes, clock
        self._open_detector, self._make_source = open_detector, make_source
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="changes")

    def ask(self, read: Callable[[Config], Config]) -> Future[Change]:
        """Go over to another configuration: sources that are the same do not notice.

        Args:
            read: makes the new one from the one that is.

        Returns:
            What has changed. If it cannot be done nothing has, and the error is a LookoutError or DetectorError.
        """
        return self._thread.submit(self._go_over, read)

    def stop(self) -> None:
        """What waits is not done any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _go_over(self, read: Callable[[Config], Config]) -> Change:
        systemd.notify(f"RELOADING=1\nMONOTONIC_USEC={self._clock.monotonic_ns() // 1000}")
        try:
            new = read(self.config)
            change = difference(self.config, new)
            self._prepare(new, change)
            self._roster.remove([*change.removed, *(source.id for source in change.changed)])
            for id in change.removed:
                self._lanes.forget(id)
            for source in (*change.changed, *change.added):
                self._roster.add(source)
            self.config = new
            log.info("reloaded", **change.words)
            return change
        except (LookoutError, DetectorError) as error:
            log.error("reload refused: all stays as it is", reason=str(error))
            raise
        except Exception:  # of a signal's asking nobody takes the result
            log.exception("reload failed in a way that is not foreseen")
            raise
        finally:
            systemd.notify("READY=1")

    def _prepare(self, new: Config, change: Change) -> None:
        """Whatever may be refused, before anything is touched that is not put back."""
        for source in change.added:
            self._make_source(source, _TRIED)
        if change.model:
            self._swap(new)
        else:
            self._lanes.wish([*change.added, *change.changed, *change.wishes])

    def _swap(self, new: Config) -> None:
        """Another model, opened and warmed up beside the one that works."""
        began = self._clock.monotonic_ns()
        detector = self._open_detector(new.model.backend, options_of(new))
        try:
            self._lanes.swap(detector, new.active, new.model.confidence, least_confidence(new))
        except BaseException:
            detector.close()
            raise
        info = detector.info
        seconds = round((self._clock.monotonic_ns() - began) / 1e9, 2)
        log.info("model swapped", name=info.name, digest=info.digest, precision=info.precision, seconds=seconds)
        for note in info.notes:
            log.warning(note)
