"""An event, as rules find it: before it has its id, its number and its place in the journal."""

from __future__ import annotations

import msgspec

from daemon.pipeline.frames import FrameInfo
from daemon.rule_config import RuleBase
from lookout import messages

Kind = messages.EventKind
Phase = messages.EventPhase
EndReason = messages.EndReason
Unseen = messages.Unseen


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event about one track, about all tracks in a zone, or about an attribute.

    Attributes:
        rule: name of the rule; None for an attribute.
        began: the frame in which it began, such as the first one inside a zone.
        confirmed: the frame that confirmed it, after debouncing.
        track: id; None for a crowd.
        label: the track's label when the event is confirmed.
        box: (x1, y1, x2, y2) of the track in the confirming frame, source pixels; None for a crowd.
        direction: of a line or gate; "forward" goes from the left to the right of the line, as seen from its first
            point towards its second, or from the first line of a gate to the second.
        dwell_ns: source time in the zone so far.
        reason: why a stay ended.
        config: the rule, as it was when the event was confirmed; None for an attribute.
        count: tracks in the zone, of a crowd.
        attribute: the one that has settled or changed.
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
    reason: EndReason | None = None
    unseen: Unseen = Unseen()
    config: RuleBase | None = None
    count: int | None = None
    attribute: messages.EventAttribute | None = None
