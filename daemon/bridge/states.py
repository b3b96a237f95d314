"""The newest state of every daemon and source, for targets that retain it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from lookout.messages import Counts, Event, Metrics, Status


@dataclass(frozen=True)
class SourceState:
    """A source now; None for what is not known.

    Attributes:
        last_event: the newest event that was received while the bridge ran.
    """

    daemon: str
    source: str
    status: Status | None = None
    counts: Counts | None = None
    last_event: Event | None = None


@dataclass(frozen=True)
class DaemonState:
    """A daemon now.

    Attributes:
        is_up: its messages come.
        reason: why not.
        metrics: None before the first.
    """

    daemon: str
    is_up: bool = False
    reason: str | None = None
    metrics: Metrics | None = None


@dataclass(frozen=True)
class States:
    """All of them, at one moment.

    Attributes:
        version: grows with each change.
        sources: by the names of daemon and source; a source that was removed is not here.
        is_complete: every daemon is up and has told all its sources, so one that is missing is removed.
    """

    version: int = 0
    daemons: dict[str, DaemonState] = field(default_factory=dict)
    sources: dict[tuple[str, str], SourceState] = field(default_factory=dict)
    is_complete: bool = False

    def knows_all_of(self, daemon: str) -> bool:
        """Whether a source of a daemon that is not here is removed, or belongs to another daemon by now."""
        state = self.daemons.get(daemon)
        return state is not None and state.is_up and state.metrics is not None


class StateBoard:
    """Written by the feeds, read by targets; any thread.

    Args:
        daemons: names of all.
    """

    def __init__(self, daemons: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._states = States(daemons={name: DaemonState(name) for name in daemons})
        self._missed: set[tuple[str, str]] = set()  # sources that the last metrics of their daemon did not have

    def read(self) -> States:
        """All states; they do not change, a change makes new ones."""
        return self._states

    def on_daemon(self, daemon: str, is_up: bool, reason: str | None = None) -> None:
        """Its messages come, or not, and why. A daemon that is back has to tell its sources anew."""
        with self._lock:
            known = self._states.daemons.get(daemon) or DaemonState(daemon)
            metrics = known.metrics if is_up and known.is_up else None
            self._set_daemon(DaemonState(daemon, is_up, reason, metrics))

    def on_message(self, daemon: str, message: object) -> None:
        """A message of the wire; kinds that tell of no state are passed over."""
        with self._lock:
            if isinstance(message, Metrics):
                known = self._states.daemons.get(daemon) or DaemonState(daemon)
                self._set_daemon(replace(known, metrics=message))
                self._remove_missing(daemon, message)
            elif isinstance(message, Status):
                self._change(daemon, message.source, status=message)
            elif isinstance(message, Counts):
                self._change(daemon, message.source, counts=message)
            elif isinstance(message, Event):
                self._change(daemon, message.source, last_event=message)

    def on_answer(self, daemon: str, counts: Counts) -> None:
        """Counts that were asked for. A source that the last metrics of its daemon do not have is left out: its totals
        are kept when it is removed."""
        with self._lock:
            state = self._states.daemons.get(daemon)
            if state is not None and state.metrics is not None and counts.source in state.metrics.sources:
                self._change(daemon, counts.source, counts=counts)

    def _set_daemon(self, state: DaemonState) -> None:
        self._replace(daemons={**self._states.daemons, state.daemon: state})

    def _change(self, daemon: str, source: str, **changed: Any) -> None:
        known = self._states.sources.get((daemon, source)) or SourceState(daemon, source)
        self._missed.discard((daemon, source))
        self._replace(sources={**self._states.sources, (daemon, source): replace(known, **changed)})

    def _remove_missing(self, daemon: str, metrics: Metrics) -> None:
        """Sources that two messages in a row do not have: one may have been made before its source was added."""
        own = [key for key in self._states.sources if key[0] == daemon]
        missing = {key for key in own if key[1] not in metrics.sources}
        gone = missing & self._missed
        self._missed = (self._missed - {*own}) | missing
        if gone:
            self._replace(sources={key: row for key, row in self._states.sources.items() if key not in gone})
        for source in metrics.sources:
            if (daemon, source) not in self._states.sources:
                self._change(daemon, source)

    def _replace(self, **changed: Any) -> None:
        states = replace(self._states, version=self._states.version + 1, **changed)
        up = [row for row in states.daemons.values() if row.is_up]
        whole = bool(states.daemons) and len(up) == len(states.daemons) and all(row.metrics for row in up)
        self._states = replace(states, is_complete=whole)
