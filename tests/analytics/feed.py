"""Frames and tracks for rules, without a detector and a tracker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from daemon.analytics.broad_phase import Search
from daemon.analytics.event import Event
from daemon.analytics.rules import RuleBook, RulesStage
from daemon.analytics.source_rules import RuleSet
from daemon.pipeline.frames import FrameInfo
from daemon.rule_config import RuleConfig
from detectors.detections import Detections, TrackNews, Tracks
from lookout.messages import FrameClock

LABELS = ("person", "car", "truck")
SECOND = 1_000_000_000
Box = tuple[float, float, float, float]


def frame_at(
    seconds: float, seq: int, size: tuple[int, int] = (1000, 1000), source: str = "cam", utc: float = 0.0
) -> FrameInfo:
    at_ns = round(seconds * SECOND)
    captured_at = round((utc + seconds) * SECOND)
    return FrameInfo(source, "session", seq, at_ns, at_ns, captured_at, FrameClock("arrival"), 0, *size)


def tracks_of(
    boxes: Mapping[int, Box], labels: Mapping[int, str] | None = None, news: TrackNews | None = None
) -> Detections:
    """Boxes by the ids of their tracks; 0 is no id."""
    count = len(boxes)
    xyxy = np.array(list(boxes.values()), np.float32).reshape(count, 4)
    classes = np.array([LABELS.index((labels or {}).get(id, "person")) for id in boxes], np.int32)
    ids, zeros = np.array(list(boxes), np.int64), np.zeros((count, 2), np.float32)
    tracks = Tracks(ids, classes, xyxy, zeros, np.zeros(count, np.int64), news)
    return Detections(xyxy, np.full(count, 0.9, np.float32), classes, tracks=tracks)


def rules_of(*rules: Mapping[str, object]) -> list[RuleConfig]:
    return [msgspec.convert(rule, RuleConfig) for rule in rules]


def standing_at(x: float, y: float, height: float = 100.0, width: float = 40.0) -> Box:
    """A box whose lower edge has its middle there."""
    return (x - width / 2, y - height, x + width / 2, y)


def search_of(loops: str) -> Search | None:
    """The search of the broad phase, if the loops are compiled."""
    from daemon.analytics import compiled_broad_phase

    return compiled_broad_phase.search if loops == "compiled" else None


class Feed:
    """Gives one source's frames to its rules, in place of a tracker, and keeps the events.

    A track is confirmed by so many boxes. It is forgotten when it was not shown for longer than the time.
    """

    search: Search | None = None

    def __init__(
        self,
        rules: Sequence[RuleConfig],
        size: tuple[int, int] = (1000, 1000),
        lost_after_s: float = 1.0,
        confirm_hits: int = 1,
    ) -> None:
        self.events: list[Event] = []
        self.book = RuleBook(self.events.append, search=lambda: self.search)
        self.size, self.utc = size, 0.0
        self._stage = RulesStage(self.book, LABELS)
        self._lost_after_s, self._hits = lost_after_s, confirm_hits
        self._shown: dict[int, int] = {}  # ns when each track was last shown
        self._young: dict[int, list[Box]] = {}  # boxes before a track is confirmed
        self.seq = -1
        self.set_rules(rules)

    def set_rules(self, rules: Sequence[RuleConfig]) -> None:
        self.book.update({"cam": RuleSet(rules, round(self._lost_after_s * SECOND), self._hits)})

    def show(
        self, seconds: float, boxes: Mapping[int, Box], labels: Mapping[int, str] | None = None, lost: int = 0
    ) -> None:
        """The next frame; `lost` frames before it were lost."""
        self.seq += 1 + lost
        frame = frame_at(seconds, self.seq, self.size, utc=self.utc)
        now = round(seconds * SECOND)
        self._shown |= dict.fromkeys(boxes, now)
        gone = [id for id, last in self._shown.items() if now - last > self._lost_after_s * SECOND]
        for id in gone:
            del self._shown[id], self._young[id]
        shown, earlier = {}, {}
        for id, box in boxes.items():
            before = self._young.setdefault(id, [])
            if len(before) == self._hits - 1:
                earlier[id] = np.array(before, np.float32).reshape(-1, 4)
            if len(before) >= self._hits - 1:
                shown[id] = box
            before.append(box)
        news = TrackNews(earlier, forgotten=gone) if earlier or gone else None
        self._stage([frame], [tracks_of(shown, labels, news)])

    def walk(self, path: Iterable[tuple[float, float, float]], id: int = 1) -> None:
        """One object at (seconds, x, y), one frame each."""
        for seconds, x, y in path:
            self.show(seconds, {id: standing_at(x, y)})

    def rest(self, begin: float, seconds: float, fps: float = 10.0) -> None:
        """Frames of nothing."""
        for number in range(round(seconds * fps)):
            self.show(begin + number / fps, {})

    @property
    def told(self) -> list[str]:
        """The events, short."""
        return [short(event) for event in self.events]


def short(event: Event) -> str:
    return " ".join(part for part in (event.kind, event.phase, event.direction, event.reason) if part)


def line_of(*points: tuple[float, float], begin: float = 0.0, fps: float = 10.0) -> list[tuple[float, float, float]]:
    """Points of a path, one a frame."""
    return [(begin + number / fps, x, y) for number, (x, y) in enumerate(points)]


def straight(
    start: tuple[float, float], end: tuple[float, float], seconds: float, begin: float = 0.0, fps: float = 10.0
) -> list[tuple[float, float, float]]:
    """A walk at one speed, from the first frame to the last."""
    steps = round(seconds * fps)
    share = [number / steps for number in range(steps + 1)]
    return [
        (begin + seconds * part, start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1]))
        for part in share
    ]
