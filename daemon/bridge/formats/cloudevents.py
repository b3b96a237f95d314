"""CloudEvents 1.0 (https://github.com/cloudevents/spec).

One rule for all targets: the body is the whole event in structured mode, so that it can be stored as it is. Its
attributes are told beside it as well, for brokers with headers; the content type says that the body has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from daemon.bridge.formats.port import Formatter
from daemon.bridge.formats.text import part, utc
from daemon.bridge.messages import Loss, Notice
from daemon.bridge.records import Encoded, Figure, Record, RecordKind
from lookout.messages import Clip, Event

_CONTENT_TYPE = "application/cloudevents+json"
_ALL: frozenset[RecordKind] = frozenset(("event", "status", "clip", "loss"))
_MICROSECONDS = 6


class _CloudEvents:
    kinds = _ALL

    def has(self, record: Record) -> bool:  # noqa: ARG002 - it has something for all
        return True

    def record(self, record: Record) -> Sequence[Encoded]:
        return (_encoded(
            record.id, record.daemon, record.source, _type(record.message), record.at, msgspec.Raw(record.body)
        ),)  # fmt: skip

    def figure(self, figure: Figure) -> Sequence[Encoded]:
        message = figure.message
        model = message.model.id or "" if isinstance(message.model.id, str) else ""
        id = f"{message.instance}-{message.source}-{message.seq}{f'-{model}' if model else ''}"
        at = message.captured_at
        return (_encoded(id, figure.daemon, figure.source, "lookout.detections", at, message),)


def _encoded(id: str, daemon: str, source: str, type: str, at: int, data: object) -> Encoded:
    attributes = {
        "specversion": "1.0",
        "id": id,
        "source": f"/lookout/{part(daemon)}/{part(source)}",
        "type": type,
        "time": utc(at, _MICROSECONDS),
        "datacontenttype": "application/json",
        **({"subject": source} if source else {}),
    }
    body: dict[str, Any] = {**attributes, "data": data}
    return Encoded(msgspec.json.encode(body), _CONTENT_TYPE, tuple(attributes.items()))


def _type(message: Event | Notice | Clip | Loss) -> str:
    if isinstance(message, Event):
        return f"lookout.event.{message.kind}.{message.phase}"
    if isinstance(message, Notice):
        return f"lookout.status.{message.about}.{message.condition}"
    return f"lookout.clip.{message.state}" if isinstance(message, Clip) else f"lookout.loss.{message.cause}"


def formatter(name: str) -> Formatter:  # noqa: ARG001 - it has one form
    """See `daemon.bridge.formats.port.formatter`."""
    return _CloudEvents()
