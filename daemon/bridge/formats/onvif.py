"""ONVIF Profile M over MQTT: events as onvif-ej (Core Specification), scenes as onvif-mj (Analytics Service
Specification).

Their topics are the suffix. Coordinates are from -1 to 1, and y points up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from daemon.bridge.formats.port import Formatter
from daemon.bridge.formats.text import part, utc
from daemon.bridge.messages import Notice
from daemon.bridge.records import Encoded, Figure, Record, RecordKind
from lookout.messages import Detection, Event, ImageSize

_MODULE = "lookout"  # of all analytics, and their configuration
_KINDS: frozenset[RecordKind] = frozenset(("event", "status"))
_NONE: frozenset[RecordKind] = frozenset()
_TOPICS = {
    ("line", "crossed"): "LineDetector/Crossed",
    ("zone", "entered"): "FieldDetector/ObjectsInside",
    ("zone", "left"): "FieldDetector/ObjectsInside",
    ("zone", "dwell"): "LoiteringDetector/ObjectIsLoitering",
}  # what ONVIF has no topic for has one in a namespace of its own
_TYPES = {"person": "Human", "face": "HumanFace", "license plate": "LicensePlate", "bicycle": "Bicycle"}
_TYPES |= dict.fromkeys(("car", "truck", "bus", "motorcycle", "train"), "Vehicle")
_TYPES |= dict.fromkeys(
    ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe"), "Animal"
)


class _Events:
    kinds = _KINDS

    def has(self, record: Record) -> bool:
        message = record.message
        return isinstance(message, Event) or (isinstance(message, Notice) and message.about == "source")

    def record(self, record: Record) -> Sequence[Encoded]:
        message = record.message
        if isinstance(message, Event):
            return (_event(message),)
        if isinstance(message, Notice) and message.about == "source":
            body = {"UtcTime": utc(message.at), "Source": {"Source": record.source},
                    "Data": {"State": message.condition == "down"}}  # fmt: skip
            topic = f"onvif-ej/VideoSource/SignalLoss/&{part(record.source)}"
            return (Encoded(msgspec.json.encode(body), suffix=topic),)
        return ()

    def figure(self, figure: Figure) -> Sequence[Encoded]:  # noqa: ARG002 - onvif-mj has them
        return ()


class _Scenes:
    kinds = _NONE

    def has(self, record: Record) -> bool:  # noqa: ARG002 - onvif-ej has them
        return False

    def record(self, record: Record) -> Sequence[Encoded]:  # noqa: ARG002 - onvif-ej has them
        return ()

    def figure(self, figure: Figure) -> Sequence[Encoded]:
        message = figure.message
        frame: dict[str, Any] = {
            "@UtcTime": utc(message.captured_at),
            "@Source": message.source,
            "Object": [_object(row, message.image) for row in message.detections],
        }
        topic = f"onvif-mj/VideoAnalytics/{part(message.source)}/{_MODULE}"
        return (Encoded(msgspec.json.encode({"Frame": [frame]}), suffix=topic),)


def _event(event: Event) -> Encoded:
    own = f"lookout:{event.kind.capitalize()}/{event.phase.capitalize()}"
    topic = _TOPICS.get((event.kind, event.phase), own)
    rule = event.rule or "_"
    data: dict[str, Any] = {} if event.attribute is None else {event.attribute.name: event.attribute.value}
    if event.track is not None:
        data["ObjectId"] = event.track
    if topic == "FieldDetector/ObjectsInside":
        data["IsInside"] = event.phase == "entered"
    elif event.kind == "zone":
        data["State"] = True
    if event.count is not None:
        data["Count"] = event.count
    if event.direction is not None:
        data["Direction"] = "Right" if event.direction == "forward" else "Left"
    if event.label is not None:
        data["ClassTypes"] = _types(event.label)[0]
    body: dict[str, Any] = {
        "UtcTime": utc(event.at),
        "Source": {
            "VideoSourceConfigurationToken": event.source,
            "VideoAnalyticsConfigurationToken": _MODULE,
            "Rule": rule,
        },
        "Data": data,
    }
    if topic == own:
        body["@context"] = {"lookout": "urn:lookout"}
    suffix = f"onvif-ej/RuleEngine/{topic}/&{part(event.source)}/{_MODULE}/{part(rule)}"
    return Encoded(msgspec.json.encode(body), suffix=suffix)


def _object(row: Detection, image: ImageSize) -> dict[str, Any]:
    left, top, right, bottom = row.box
    left, right = (_scaled(x, image.width) for x in (left, right))
    top, bottom = (-_scaled(y, image.height) for y in (top, bottom))
    shape = {
        "BoundingBox": {"@left": left, "@top": top, "@right": right, "@bottom": bottom},
        "CenterOfGravity": {"@x": round((left + right) / 2, 6), "@y": round((top + bottom) / 2, 6)},
    }
    types = [{"@Likelihood": row.confidence, "#text": text} for text in _types(row.label)]
    found: dict[str, Any] = {} if row.track_id is None else {"@ObjectId": row.track_id}
    return {**found, "Appearance": {"Shape": shape, "Class": {"Type": types}}}


def _types(label: str) -> list[str]:
    """ONVIF's type first, if it has one, and the label as it is."""
    known = _TYPES.get(label)
    return [label] if known is None else [known, label]


def _scaled(pixels: float, size: int) -> float:
    """From -1 to 1."""
    return round(2 * pixels / size - 1, 6) if size else 0.0


def formatter(name: str) -> Formatter:
    """See `daemon.bridge.formats.port.formatter`."""
    return _Scenes() if name == "onvif-mj" else _Events()
