"""The newest state of every daemon and source, for targets that retain it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from lookoutd.messages import Counts, Event, Metrics, Status


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
        is_complete: every daemon that is up has told all its sources, so one that is missing is removed.
    """

    version: int = 0
    daemons: dict[str, DaemonState] = field(default_factory=dict)
    sources: dict[tuple[str, str], SourceState] = field(default_factory=dict)
    is_complete: bool = False


class StateBoard:
    """Written by the feeds, read by targets; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states = States()

    def read(self) -> States:
        """All states; they do not change, a change makes new ones."""
        return self._states
