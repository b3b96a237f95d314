"""A running daemon: six verbs, and its parts for those that look into it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from daemon.clock import process_age_s
from daemon.system import systemd
from daemon.system.stop_token import StoppedError, StopToken
from daemon.system.tuning import check_room

if TYPE_CHECKING:
    from daemon.config.root import Config
    from daemon.control.reload import Change
    from daemon.fleet.kit import Fleet
    from daemon.parts import DaemonParts

log = structlog.get_logger(__name__)
CUT_SHORT = 5  # exit code of a lossless replay that was stopped before its recordings ended
_POLL_S = 0.05
_OWN_THREADS = 16  # that begin with the sources, or later: of the API, of a change, of a stop


class Daemon:
    """Made by `daemon.build.build`.

    Args:
        fleet: None for a daemon that shares its sources with no other.
        read: reads the configuration file again.
        stop: ends it when it is set.
        ends_early: a lossless replay that is stopped before its end is no fault.

    Attributes:
        parts: what it is made of.
        fleet: as given.
        ledger, health, sources, changes, events, monitor: of the parts.
        endpoint: where subscribers connect.
    """

    def __init__(
        self, parts: DaemonParts, fleet: Fleet | None, read: Callable[[], Config], stop: StopToken, *, ends_early: bool
    ) -> None:
        self.parts, self.fleet, self._read, self._stop = parts, fleet, read, stop
        self._ends_early = ends_early
        self.ledger, self.health, self.sources = parts.core.ledger, parts.health, parts.sources
        self.changes, self.events, self.monitor = parts.changes, parts.events, parts.monitor
        self.endpoint = parts.endpoint
        self._clock, self._life = parts.core.runtime.clock, parts.core.life
        self._begun, self._finished = threading.Lock(), False
        self._result: int | None = None  # of `stop`
        self._turns = threading.Lock()  # `start` and `stop` in turns

    def run(self) -> int:
        """Start, work until a stop or the end of all recordings, and stop; returns the exit code."""
        try:
            self.start()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self.stop()

    def start(self) -> None:
        """Start all parts, sources last, so that no frame waits for a model that still loads.

        A second call does nothing, nor does a call after `stop`.

        Raises:
            SourceError: no thread can be started for a source; and what another part raises.
        """
        if not self._begun.acquire(blocking=False):
            return
        with self._turns:
            if not self._stop.is_set:
                with suppress(StoppedError):
                    self._begin()

    def wait(self) -> None:
        """Wait for `request_stop`, a failure, or the end of the last recording."""
        seen = False
        while not self._clock.wait(self._stop, _POLL_S):
            if not seen and any(count.published for count in self.ledger.counts().values()):
                seen = True
                log.info("first detections published", **_age())
            if self._has_ended and self.changes.stop_if(lambda: self._has_ended):
                self._finished = True
                log.info("every recording has ended")
                return

    def request_stop(self) -> None:
        """Make `wait` return; any thread may call it."""
        self._stop.set()

    def stop(self) -> int:
        """Stop all parts. Returns the exit code; a second call returns the same.

        A requested stop takes `Limits.stop` at most, and counts unfinished frames as dropped. After the end of all
        recordings there is no time limit: the last message is sent first.
        """
        finished = self._finished or (self.health.is_ready and self._has_ended)
        if not finished:
            self._stop.set()  # so that `start` returns
        with self._turns:
            if self._result is None:
                self._result = self._end(finished=finished)
            return self._result

    def reload(self) -> Future[Change]:
        """Read the configuration file again. Several requests before it begins cause one reload."""
        return self.changes.submit_reload(lambda _: self._read())

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested, or a part has failed."""
        return self._stop.is_set

    @property
    def _has_ended(self) -> bool:
        """Whether all recordings have ended. A member of a fleet waits for the next source."""
        return self.fleet is None and self.sources.finished

    def _begin(self) -> None:
        check_room(_OWN_THREADS + len(self.parts.core.config.active))
        self._life.start(self._stop)
        if self._stop.is_set:
            return
        counts = {"sources": len(self.sources.captures), "lanes": len(self.parts.detecting.threads)}
        log.info("ready", endpoint=self.endpoint, **counts, **_age())
        self.health.begin()
        systemd.notify("READY=1")

    def _end(self, *, finished: bool) -> int:
        systemd.notify("STOPPING=1")
        self.changes.request_stop()
        was_ready = self.health.is_ready
        self.health.end()
        finished = finished and self._drain()
        begun = self._clock.monotonic_ns()
        if overdue := self._life.stop():
            log.warning("left behind: still blocked after the time to stop", threads=overdue)
        log.info("stopped", seconds=round((self._clock.monotonic_ns() - begun) / 1e9, 2))
        if self.health.failure:
            log.error("ended by a failure", reason=self.health.failure)
            return self.health.exit_code
        if self.parts.core.outbox.lossless and was_ready and not finished and not self._ends_early:
            log.error("a replay was cut short: frames that were not published are counted as `shutdown`")
            return CUT_SHORT
        return 0

    def _drain(self) -> bool:
        """After the end of all recordings, wait until all messages are sent; False if a stop is requested meanwhile."""
        while not (self.parts.rules.flush(_POLL_S) and self.parts.core.outbox.flush(_POLL_S)):
            if self._stop.is_set:  # the watchdog finds a publisher that hangs
                return False
        return True


def _age() -> dict[str, float]:
    """The age of the process, for the log."""
    return {"seconds_since_start": round(process_age_s(), 2)}
