"""Frigate's messages over MQTT, as cards and add-ons for it read them (docs.frigate.video/integrations/mqtt).

A message tells what its event alone tells: the zone of its rule and no others, and no score. `start_time` is there
where the object appears, and null in what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from daemon.bridge.formats.port import Formatter
from daemon.bridge.formats.text import part
from daemon.bridge.messages import Notice
from daemon.bridge.records import Encoded, Figure, Record, RecordKind
from lookout.messages import Event

_KINDS: frozenset[RecordKind] = frozenset(("event", "status"))
_TYPES = {("object", "appeared"): "new", ("object", "left"): "end"}  # all others are updates
_SECOND = 1e9


class _Frigate:
    kinds = _KINDS

    def has(self, record: Record) -> bool:
        message = record.message
        if isinstance(message, Event):
            return message.track is not None
        return isinstance(message, Notice) and message.about == "source"

    def record(self, record: Record) -> Sequence[Encoded]:
        message = record.message
        if isinstance(message, Event) and message.track is not None:
            return (_event(message),)
        if isinstance(message, Notice) and message.about == "source":
            state = b"online" if message.condition == "up" else b"offline"
            return (Encoded(state, "text/plain", suffix=f"{part(record.source)}/status/detect"),)
        return ()

    def figure(self, figure: Figure) -> Sequence[Encoded]:  # noqa: ARG002 - counts need those before them
        return ()


def _event(event: Event) -> Encoded:
    kind = _TYPES.get((event.kind, event.phase), "update")
    zones = [event.rule] if event.kind == "zone" and event.rule else []
    is_in = event.phase in ("entered", "dwell")
    box = None if event.box is None else [round(value) for value in event.box]
    attribute = event.attribute
    after: dict[str, Any] = {
        "id": f"{event.instance}-{event.source}-{event.track}",
        "camera": event.source,
        "frame_time": event.confirmed_at / _SECOND,
        "label": event.label,
        "sub_label": None if attribute is None else [attribute.value, attribute.confidence],
        "top_score": None,
        "score": None,
        "false_positive": False,
        "start_time": event.at / _SECOND if kind == "new" else None,
        "end_time": event.at / _SECOND if kind == "end" else None,
        "box": box,
        "area": None if box is None else (box[2] - box[0]) * (box[3] - box[1]),
        "current_zones": zones if is_in else [],
        "entered_zones": zones,
        "has_snapshot": event.snapshot is not None,
        "has_clip": event.clip is not None,
        "thumbnail": None,
    }
    was_in = event.phase in ("left", "dwell")
    before = {**after, "end_time": None, "current_zones": zones if was_in else [],
              "entered_zones": zones if was_in else [], "sub_label": None}  # fmt: skip
    return Encoded(msgspec.json.encode({"type": kind, "before": before, "after": after}), suffix="events")


def formatter(name: str) -> Formatter:  # noqa: ARG001 - it has one form
    """See `daemon.bridge.formats.port.formatter`."""
    return _Frigate()
