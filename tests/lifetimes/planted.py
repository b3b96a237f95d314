"""Defects for the daemon, to check that random histories find them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from daemon.analytics.journal import Journal
from daemon.analytics.process.protocol import Configured
from daemon.analytics.process.remote import RulesProcess
from daemon.analytics.stages import AnalyticsStages
from daemon.capture.processes.worker import CaptureProcess
from daemon.classification.classifier import Classifier
from daemon.config.root import Config
from daemon.control.changes import Changes
from daemon.daemon import Daemon
from daemon.errors import StoppingError
from daemon.pipeline.ledger import Ledger
from daemon.publish.packets import PacketPublisher
from daemon.sources.buffers import RemoteLease


def leaked_lease() -> None:
    """A slot of a capture process is sometimes not returned."""
    numbers, return_buffer = itertools.count(1), RemoteLease.__del__

    def leak(self: RemoteLease) -> None:
        if next(numbers) % 40:
            return_buffer(self)

    RemoteLease.__del__ = leak  # type: ignore[method-assign]


def lost_frame() -> None:
    """A dropped frame is sometimes not counted."""
    numbers, drop = itertools.count(1), Ledger.drop

    def lose(self: Ledger, *args: Any) -> None:
        if next(numbers) % 20:
            drop(self, *args)

    Ledger.drop = lose  # type: ignore[method-assign, assignment]


def wrong_state() -> None:
    """A source whose process died is not reported as down."""
    put_off = CaptureProcess._schedule_restart

    def keep_quiet(self: CaptureProcess, captures: Any, reason: str) -> None:
        states = {capture: capture.state for capture in captures}
        put_off(self, captures, reason)
        for capture, state in states.items():
            capture.state = state if capture.state == "down" else "stalled"

    CaptureProcess._schedule_restart = keep_quiet  # type: ignore[method-assign]


def left_thread() -> None:
    """A model that is opening when the daemon ends is not abandoned."""

    def forget(self: Changes, request: Any, error: Exception) -> None:
        if not isinstance(error, StoppingError):
            give_up(self, request, error)

    give_up = Changes._abandon
    Changes._abandon = forget  # type: ignore[method-assign]


def wrong_exit_code() -> None:
    """A daemon that failed exits with 0."""
    stop = Daemon.stop
    Daemon.stop = lambda self: stop(self) and 0  # type: ignore[method-assign]


def doubled_count() -> None:
    """A reload of rules adds the totals to themselves."""
    configure = AnalyticsStages.configure

    def double(self: AnalyticsStages, config: Config) -> None:
        configure(self, config)
        totals = self._events._totals
        totals.restore(totals.since, dict(totals.items()))

    AnalyticsStages.configure = double  # type: ignore[method-assign]


def stale_rules() -> None:
    """A reload of rules sometimes does not reach their process."""
    numbers, send = itertools.count(1), RulesProcess._send

    def forget(self: RulesProcess, message: Any, *args: Any) -> None:
        if not isinstance(message, Configured) or next(numbers) % 4:
            send(self, message, *args)

    RulesProcess._send = forget  # type: ignore[method-assign, assignment]


def lost_event() -> None:
    """The event that was taken last when the process of rules dies is published, and not kept."""
    tell_end = RulesProcess._tell_end

    def lose(self: RulesProcess, child: Any) -> None:
        journal = self._events.journal
        if journal and journal._waiting:
            journal._waiting.pop()
        tell_end(self, child)

    RulesProcess._tell_end = lose  # type: ignore[method-assign]


def uncounted_loss() -> None:
    """Events that find no room in the journal are not counted as lost."""
    lose = Journal._lose

    def keep_quiet(self: Journal, *args: Any) -> None:
        before = self.lost
        lose(self, *args)
        self.lost = before

    Journal._lose = keep_quiet  # type: ignore[method-assign, assignment]


def waits_for_journal() -> None:
    """An event waits for the journal, while it holds the lock of all events."""
    put = Journal.put

    def wait(self: Journal, event: Any, key: Any) -> None:
        put(self, event, key)
        while self.last_written < event.number and self.is_alive():
            self._clock.wait(self.ending, 0.01)

    Journal.put = wait  # type: ignore[method-assign]


def open_viewer() -> None:
    """The queue of those who watch is not closed at the end."""
    PacketPublisher.request_stop = lambda self: None  # type: ignore[method-assign]  # noqa: ARG005


def waits_for_classifier() -> None:
    """The end waits until a classifier has done its batch."""
    request = Classifier.request_stop

    def wait(self: Classifier) -> None:
        request(self)
        if self.is_alive():
            self._thread.join()

    Classifier.request_stop = wait  # type: ignore[method-assign]


DEFECTS: dict[str, Callable[[], None]] = {
    "leaked-lease": leaked_lease,
    "lost-frame": lost_frame,
    "wrong-state": wrong_state,
    "left-thread": left_thread,
    "wrong-exit-code": wrong_exit_code,
    "doubled-count": doubled_count,
    "stale-rules": stale_rules,
    "lost-event": lost_event,
    "uncounted-loss": uncounted_loss,
    "waits-for-journal": waits_for_journal,
    "open-viewer": open_viewer,
    "waits-for-classifier": waits_for_classifier,
}
