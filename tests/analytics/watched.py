"""One source with a tracker and rules: boxes in, events out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from daemon.analytics.event import Event
from daemon.analytics.loops import Loops
from daemon.analytics.rules import RuleBook, RulesStage
from daemon.analytics.source_rules import RuleSet
from daemon.analytics.track_stage import Tracker, TrackerStage
from daemon.config.load import parse
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from detectors.detections import Tracks
from lookout.messages import FrameClock
from tests.analytics.feed import SECOND, Box, rules_of, short
from tests.analytics.walks import boxes

Boxes = Callable[[float], Sequence[Box]]


class Watched:
    """Frames of 1000 x 1000 pixels.

    Args:
        rules: their configuration.
        loops: of the tracker and of the rules.
        tracking: its configuration.

    Attributes:
        events: so far.
        ids: of all tracks so far.
        newest: the tracks of the newest frame's boxes.
    """

    def __init__(
        self,
        *rules: Mapping[str, object],
        loops: Loops,
        tracking: str = "{enabled: true}",
        kind: str = "arrival",
    ) -> None:
        config = parse(f"model: {{path: x}}\nsources: [{{id: cam, type: synthetic}}]\ntracking: {tracking}\n")
        own = config.tracking
        self.events: list[Event] = []
        self.ids: set[int] = set()
        self.newest: Tracks
        tracker = Tracker(config, Ledger(), compile=lambda _: loops)
        self.book = RuleBook(self.events.append, search=lambda: loops.search)
        self._limits = round(own.timeout_s * SECOND), own.confirm_hits
        self.rules(*rules)
        self._stages = TrackerStage(tracker, ("person",)), RulesStage(self.book, ("person",))
        self._clock = FrameClock(kind)  # type: ignore[arg-type]
        self._seq = -1

    def rules(self, *rules: Mapping[str, object]) -> None:
        """Replace the rules."""
        self.book.configure({"cam": RuleSet(rules_of(*rules), *self._limits)})

    def show(
        self, seconds: float, *rows: Box, size: tuple[int, int] = (1000, 1000), lost: int = 0, **changes: Any
    ) -> Tracks:
        """The next frame.

        Args:
            rows: boxes in pixels of 1000 x 1000.
            lost: frames that were lost before it.
            changes: of the frame's fields.
        """
        self._seq += 1 + lost
        ns, scale = round(seconds * SECOND), np.array([*size, *size]) / 1000
        frame = FrameInfo("cam", "one", self._seq, ns, ns, ns, self._clock, 0, *size)
        found = boxes(*(tuple(np.array(row) * scale) for row in rows))
        for stage in self._stages:
            (found,) = stage([msgspec.structs.replace(frame, **changes)], [found])
        assert found.tracks is not None
        self.newest = found.tracks
        self.ids |= set(found.tracks.id.tolist()) - {0}
        return found.tracks

    def play(self, seconds: Iterable[float], boxes_at: Boxes, **changes: Any) -> None:
        for at in seconds:
            self.show(at, *boxes_at(at), **changes)

    @property
    def told(self) -> list[str]:
        return [short(event) for event in self.events]


def times(fps: float, seconds: float, begin: float = 0.0) -> list[float]:
    return [begin + number / fps for number in range(round(seconds * fps))]


def standing(x: float, y: float, begin: float = 0.0, end: float = 1e9) -> Boxes:
    """An object that is there for a while; (x, y) is the middle of its lower edge."""
    return lambda at: [(x - 30, y - 150, x + 30, y)] if begin <= at < end else []


def walking(start: float, speed: float, y: float = 600.0, begin: float = 0.0, end: float = 1e9) -> Boxes:
    """An object that goes to the right, pixels a second."""
    return lambda at: standing(start + speed * (at - begin), y, begin, end)(at)
