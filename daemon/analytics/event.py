"""An event, as rules find it: before it has its id, its number and its place in the journal."""

from __future__ import annotations

from dataclasses import dataclass

from daemon import messages
from daemon.pipeline.frames import FrameInfo
from daemon.rule_config import RuleBase

Kind = messages.EventKind
Phase = messages.EventPhase
EndReason = messages.EndReason


@dataclass(frozen=True)
class Unseen:
    """Frames of the source that were lost while an event was decided.

    Attributes:
        frames: their number, from gaps in `seq`.
        longest_ns: the longest gap between two analysed frames, in source time.
    """

    frames: int = 0
    longest_ns: int = 0


@dataclass(frozen=True)
class Event:
    """One event about one track, about all tracks in a zone, or about an attribute.

    Attributes:
        rule: name of the rule; None for an object without a rule.
        began: the frame in which it began, such as the first one inside a zone.
        confirmed: the frame that confirmed it, after debouncing.
        track: id; None for a crowd.
        label: the track's label when the event is confirmed.
        box: (x1, y1, x2, y2) of the track in the confirming frame, source pixels; None for a crowd.
        direction: of a line or gate; "forward" goes from the left to the right of the line, as seen from its first
            point towards its second, or from the first line of a gate to the second.
        dwell_ns: source time in the zone so far.
        count: tracks in the zone, of a crowd.
        reason: why a stay ended.
        attribute: the one that has settled or changed.
        config: the rule, as it was when the event was confirmed; None for an object without a rule.
    """

    kind: Kind
    phase: Phase
    source: str
    rule: str | None
    began: FrameInfo
    confirmed: FrameInfo
    track: int | None = None
    label: str | None = None
    box: tuple[float, float, float, float] | None = None
    direction: messages.Direction | None = None
    dwell_ns: int | None = None
    count: int | None = None
    reason: EndReason | None = None
    unseen: Unseen = Unseen()
    attribute: messages.EventAttribute | None = None
    config: RuleBase | None = None
