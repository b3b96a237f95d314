"""The rules of all sources, and the stage that gives them each frame's tracks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from daemon.analytics.broad_phase import Search
from daemon.analytics.rule_context import OnEvent
from daemon.analytics.source_rules import RuleSet, SourceRules
from daemon.analytics.track import SeenTracks
from daemon.pipeline.frames import FrameInfo
from detectors.detections import Detections
from lookout.messages import State


class Rules(Protocol):
    """The rules of all sources, with their state. They outlive models and lanes.

    Attributes:
        has_rules: any source has some.
        pids: of processes that evaluate them.
    """

    @property
    def has_rules(self) -> bool: ...
    @property
    def pids(self) -> list[int]: ...

    def prepare(self, rules: Mapping[str, RuleSet]) -> None:
        """Make ready for these rules.

        Raises:
            LookoutError: there is no process for them.
        """
        ...

    def configure(self, rules: Mapping[str, RuleSet]) -> None:
        """Replace the rules of all sources, and forget the other sources.

        A rule that is equal to one of before keeps the state of its tracks. All events of before are delivered.
        """
        ...

    def forget(self, source: str) -> None:
        """Remove a source. Its last frames may still be in a lane: they count no more. Its events are delivered."""
        ...

    def on_state(self, source: str, state: State, now_ns: int) -> None:
        """A source has another state.

        A source that has ended is down. One that is disconnected or stalled may come back before its tracks are lost,
        so `tick` decides.
        """
        ...

    def tick(self, now_ns: int) -> None:
        """End the events of sources that give no frames for longer than a track may be unseen; call it every second."""
        ...

    def observe(
        self, frames: Sequence[FrameInfo], tracks: Iterable[SeenTracks | None], labels: tuple[str, ...]
    ) -> None:
        """The next frames of some sources, and the tracks of each; None for a source without."""
        ...

    def after(self, call: Callable[[], None]) -> None:
        """Call a function, from any thread, when all events of before are delivered."""
        ...

    def flush(self, seconds: float) -> bool:
        """Wait until all events of before are delivered; returns whether they are."""
        ...


class RuleBook:
    """Implements `Rules` in the caller's thread. Any thread may change it.

    Args:
        on_event: called with each event, in a source's order, by a lane or by the thread that changes rules. It must
            return soon, and must not call this object.
        deliver: called by the same thread when the events of a batch, or of a change, are given; it may work on them.
        search: gives the search of the broad phase, or None while it is not compiled.
    """

    def __init__(
        self,
        on_event: OnEvent,
        deliver: Callable[[], None] | None = None,
        search: Callable[[], Search | None] | None = None,
    ) -> None:
        self._on_event, self._deliver, self._search = on_event, deliver, search
        self._sources: dict[str, SourceRules] = {}
        self._down: dict[str, int] = {}  # monotonic ns since when sources give no frames
        self._lock = threading.Lock()  # of changes

    def _deliver_found(self) -> None:
        if self._deliver is not None:
            self._deliver()

    @property
    def pids(self) -> list[int]:
        return []

    def prepare(self, rules: Mapping[str, RuleSet]) -> None:
        """Needs nothing."""

    def configure(self, rules: Mapping[str, RuleSet]) -> None:
        self.update(rules)
        for source in [source for source in self._sources if source not in rules]:
            self.forget(source)

    def update(self, rules: Mapping[str, RuleSet]) -> None:
        """Replace the rules of these sources."""
        with self._lock:
            for source, own in rules.items():
                there = self._sources.get(source)
                if there is None and own.rules:
                    there = SourceRules(source, self._on_event)
                if there is not None:
                    there.update(own)
                    self._sources[source] = there
                if there is not None and not own.rules:
                    del self._sources[source]
        self._deliver_found()

    def source_down(self, source: str) -> None:
        """End the events of a source that gives no more frames, for now or for ever."""
        if there := self._sources.get(source):
            there.end("source_down")
            self._deliver_found()

    def on_state(self, source: str, state: State, now_ns: int) -> None:
        if state == "ended":
            self._down.pop(source, None)
            self.source_down(source)
        elif state in ("down", "stalled"):
            self._down.setdefault(source, now_ns)
        elif state == "up":
            since, there = self._down.pop(source, None), self._sources.get(source)
            if since is not None and there is not None and now_ns - since > there.timeout_ns:
                self.source_down(source)  # whether a tick came meanwhile makes no difference

    def tick(self, now_ns: int) -> None:
        for source, since in list(self._down.items()):
            there = self._sources.get(source)
            if there is None or now_ns - since > there.timeout_ns:
                self._down.pop(source, None)
                self.source_down(source)

    def forget(self, source: str) -> None:
        with self._lock:
            if there := self._sources.pop(source, None):
                there.end("source_down", close=True)
        self._deliver_found()

    @property
    def has_rules(self) -> bool:
        return bool(self._sources)

    def rules_of(self, source: str) -> SourceRules | None:
        """The rules of a source; None if it has none."""
        return self._sources.get(source)

    def observe(
        self, frames: Sequence[FrameInfo], tracks: Iterable[SeenTracks | None], labels: tuple[str, ...]
    ) -> None:
        search = self._search() if self._search else None
        try:
            for frame, seen in zip(frames, tracks):
                there = self._sources.get(frame.source)
                if there is not None and seen is not None:
                    there.observe(frame, seen, labels, search)
        finally:
            self._deliver_found()

    def after(self, call: Callable[[], None]) -> None:
        call()

    def flush(self, seconds: float) -> bool:  # noqa: ARG002 - they are
        return True


class RulesStage:
    """Implements `Stage`, behind the tracker, for one model: it changes nothing, and gives each frame to the rules.

    Args:
        labels: of the model.
    """

    def __init__(self, rules: Rules, labels: tuple[str, ...]) -> None:
        self._rules, self._labels = rules, labels

    def __call__(self, frames: Sequence[FrameInfo], found: Sequence[Detections]) -> Sequence[Detections]:
        if self._rules.has_rules:
            self._rules.observe(frames, (one.tracks for one in found), self._labels)
        return found
