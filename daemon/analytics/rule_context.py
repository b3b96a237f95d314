"""One source as its rules see it: time, labels, the picture's size, and a place for events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from daemon.analytics.event import EndReason, Event, Kind, Phase
from daemon.analytics.timeline import Moment, Stamp, Timeline
from daemon.analytics.track import Box, Track
from daemon.geometry import Edge, Trace
from daemon.pipeline.frames import FrameInfo
from daemon.rule_config import RuleBase

OnEvent = Callable[[Event], None]
Direction = Literal["forward", "backward"]
NEVER = 1 << 62  # ns
ABSENT, FREE = range(2)
"""Kinds of a state. The rule does not know the track; or nothing changes before `due` unless the anchor crosses an
edge. To FREE comes 1 if the anchor is in the band of the first line, and 2 if it is in that of the second. Then
something changes as well when it is outside of the band."""
_GONE: tuple[EndReason, ...] = ("left", "lost", "source_down")  # otherwise the rule has ended, and not the object
RETRY_NS = 500_000_000  # a track that a rule does not want may change its label, or its size


class State:
    """A track as one rule sees it.

    Attributes:
        x, y: the anchor when the rule last looked at it.
        clearance: while the anchor stays closer than this to (x, y), nothing changes for the rule before `due`.
            Negative: the rule looks in each frame.
        due: time at which something may change though the anchor does not move, ns.
    """

    __slots__ = ("clearance", "due", "x", "y")

    def __init__(self) -> None:
        self.x = self.y = 0.0
        self.clearance = -1.0
        self.due = NEVER

    @property
    def kind(self) -> int:
        return FREE


class RuleContext:
    """Attributes:
    labels: of the model that found the newest frame's boxes.
    now: time of the newest frame, or of the one that is looked back at, ns.
    width, height: of the newest frame, pixels.
    """

    def __init__(self, source: str, on_event: OnEvent, timeline: Timeline, labels: tuple[str, ...]) -> None:
        self.source, self.timeline, self.labels = source, timeline, labels
        self.now = timeline.stamp.at
        self.width = self.height = 1
        self._on_event = on_event
        self._back, self._box = 0, None  # type: int, Box | None

    def advance(self, frame: FrameInfo, labels: tuple[str, ...]) -> None:
        """Go on to the source's next analysed frame."""
        self.now, self.labels = self.timeline.advance(frame), labels

    def resize(self, width: int, height: int) -> None:
        """The pictures have this size from now on."""
        self.width, self.height = width, height

    def look_back(self, frames: int, stamp: Stamp, box: Box | None) -> None:
        """Look at a frame before the newest one, or again at the newest. Events found there are reported in the newest.

        Args:
            frames: that lie between.
            box: of the track in the newest frame; None for the newest.
        """
        self.now, self._back, self._box = stamp.at, frames, box

    def moment(self) -> Moment:
        """Mark the frame that is looked at as the one in which something began."""
        return self.timeline.moment(self._back)

    @property
    def half_ns(self) -> int:
        """Half of the usual time between two frames. In the mean, an object appeared so long before the first frame
        that shows it, and was gone so long after the last one."""
        return self.timeline.clock.interval_ns // 2

    def end_of(self, track: Track, reason: EndReason) -> int:
        """The time at which the stay of a track ended that is where it was last seen, ns."""
        return track.stamp.at + (self.half_ns if reason in _GONE else 0)

    def wanted(self, rule: RuleBase, track: Track) -> str | None:
        """The track's label, if the rule is for an object with this label and size; otherwise None."""
        label = self.labels[track.class_id] if track.class_id < len(self.labels) else str(track.class_id)
        x0, y0, x1, y1 = self._box or track.box
        area = (x1 - x0) * (y1 - y0) / (self.width * self.height)
        return label if rule.wants(label, min(1.0, max(0.0, area))) else None

    def report(
        self,
        kind: Kind,
        phase: Phase,
        rule: RuleBase,
        began: Moment,
        track: Track,
        label: str,
        *,
        direction: Direction | None = None,
        dwell_ns: int | None = None,
        reason: EndReason | None = None,
    ) -> None:
        """Report an event about a track."""
        x0, y0, x1, y1 = self._box or track.box
        began_in, before = began
        timeline = self.timeline
        event = Event(  # by position: by name it takes three times as long
            kind,
            phase,
            self.source,
            rule.name,
            began_in,
            timeline.stamp.frame,
            track.id,
            label,
            (x0, y0, x1, y1),
            direction,
            dwell_ns,
            reason,
            timeline.unseen(before),
            rule,
        )
        self._on_event(event)

    def report_crowd(
        self, phase: Phase, rule: RuleBase, began: Moment, count: int, reason: EndReason | None = None
    ) -> None:
        """Report an event about all tracks in a zone."""
        event = Event(
            "crowd",
            phase,
            self.source,
            rule.name,
            began=began.frame,
            confirmed=self.timeline.stamp.frame,
            count=count,
            reason=reason,
            unseen=self.timeline.unseen(began.before),
            config=rule,
        )
        self._on_event(event)


class Evaluator(Protocol):
    """One rule of one source, and its tracks' states.

    The anchor is in the horizontal middle of the box. `weight` is the share of the lower edge in its height, and the
    upper edge has the rest. `band` is the share of an object's height up to which it is on no side of a line.
    """

    @property
    def outlasts_loss(self) -> bool:
        """Whether a track that was lost goes on where it was last seen, if its object comes back."""
        ...

    @property
    def config(self) -> RuleBase: ...
    @property
    def weight(self) -> float: ...
    @property
    def band(self) -> float: ...
    @property
    def outlines(self) -> Sequence[Sequence[Edge]]:
        """The edges of each polygon or line, in pixels."""
        ...

    def fit(self, width: int, height: int) -> None:
        """Place the rule in a picture of this size."""
        ...

    def start(self, x: float, y: float, since: int, scene: RuleContext) -> State:
        """A track whose anchor is seen for the first time, at (x, y), where it is since a time, ns."""
        ...

    def step(self, state: State, track: Track, traces: Sequence[Trace], scene: RuleContext) -> None:
        """The anchor's path from the frame in which the track was last seen to the newest frame: to the state's (x, y).

        Args:
            traces: one for each outline, in order.
        """
        ...

    def wait(self, state: State, track: Track, scene: RuleContext) -> None:
        """The time `due` is over, and the anchor has crossed no edge since the last step."""
        ...

    def end(self, state: State, track: Track, scene: RuleContext, reason: EndReason) -> None:
        """The track, the source, the rule, or its time is over."""
        ...

    def settle(self, scene: RuleContext) -> None:
        """All tracks of a frame have been seen."""
        ...

    def close(self, scene: RuleContext, reason: EndReason) -> None:
        """All states have ended, because the source, the rule, or its time is over."""
        ...
