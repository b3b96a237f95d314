"""The messages of NVIDIA DeepStream's nvmsgconv, minimal and full (deepstream_schema/dsmeta_payload.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from daemon.bridge.formats.port import Formatter
from daemon.bridge.formats.text import utc
from daemon.bridge.records import Encoded, Figure, Record, RecordKind
from lookout.messages import Detection, Event

_UNTRACKED = (1 << 64) - 1  # as DeepStream has it
_EVENTS: frozenset[RecordKind] = frozenset(("event",))
_NONE: frozenset[RecordKind] = frozenset()
_TYPES = {"entered": "entry", "appeared": "entry", "left": "exit"}  # others keep their name here


class _Minimal:
    """One message a frame, of its objects."""

    kinds = _NONE

    def has(self, record: Record) -> bool:  # noqa: ARG002 - it has none
        return False

    def record(self, record: Record) -> Sequence[Encoded]:  # noqa: ARG002 - it has none
        return ()

    def figure(self, figure: Figure) -> Sequence[Encoded]:
        message = figure.message
        body = {
            "version": "4.0",
            "id": str(message.seq),
            "@timestamp": utc(message.captured_at),
            "sensorId": message.source,
            "objects": [_object(row) for row in message.detections],
        }
        return (Encoded(msgspec.json.encode(body)),)


class _Full:
    """One message an object: of an event, or of each box of a frame."""

    kinds = _EVENTS

    def has(self, record: Record) -> bool:
        event = record.message
        return isinstance(event, Event) and event.box is not None and event.track is not None  # a crowd has no object

    def record(self, record: Record) -> Sequence[Encoded]:
        event = record.message
        if not isinstance(event, Event) or event.box is None or event.track is None:
            return ()
        kind = _TYPES.get(event.phase, f"{event.kind}.{event.phase}")
        return (_full(record.id, event.at, event.source, record.daemon, event.rule, kind, str(event.track),
                      event.label or "object", None, event.box),)  # fmt: skip

    def figure(self, figure: Figure) -> Sequence[Encoded]:
        message = figure.message
        at, daemon = message.captured_at, figure.daemon
        return [
            _full(f"{message.instance}-{message.source}-{message.seq}-{place}", at, message.source, daemon, None,
                  "moving", str(_track(row)), row.label, row.confidence, row.box)
            for place, row in enumerate(message.detections)
        ]  # fmt: skip


def _full(
    id: str, at: int, source: str, daemon: str, rule: str | None, kind: str, track: str, label: str,
    confidence: float | None, box: tuple[float, float, float, float],
) -> Encoded:  # fmt: skip
    left, top, right, bottom = box
    attributes: dict[str, Any] = {} if confidence is None else {"confidence": confidence}
    body = {
        "messageid": id,
        "mdsversion": "1.0",
        "@timestamp": utc(at),
        "place": {"id": daemon, "name": daemon, "type": "lookout"},
        "sensor": {"id": source, "type": "Camera", "description": source},
        "analyticsModule": {"id": rule or "lookout", "description": rule or "", "source": "Lookout", "version": "1.0"},
        "object": {
            label: attributes,
            "id": track,
            "bbox": {"topleftx": left, "toplefty": top, "bottomrightx": right, "bottomrighty": bottom},
        },
        "event": {"id": id, "type": kind},
        "videoPath": "",
    }
    return Encoded(msgspec.json.encode(body))


def _object(row: Detection) -> str:
    """id|left|top|right|bottom|label, where nothing but the signs between them is a |."""
    left, top, right, bottom = (f"{value:g}" for value in row.box)
    return f"{_track(row)}|{left}|{top}|{right}|{bottom}|{row.label.replace('|', '/')}"


def _track(row: Detection) -> int:
    return _UNTRACKED if row.track_id is None else row.track_id


def formatter(name: str) -> Formatter:
    """See `daemon.bridge.formats.port.formatter`."""
    return _Minimal() if name == "deepstream-minimal" else _Full()
