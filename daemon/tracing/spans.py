"""Spans of frames, as OTLP has them in JSON: docs/tracing.md lists their names and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from daemon import __version__
from daemon.tracing.record import LostFrame, Record, SentFrame, TraceIds
from lookout.messages import topic

_INTERNAL, _PRODUCER = 1, 4
_ERROR = 2
_FRAME, _PUBLISH, _FIRST_OTHER = 0, 1, 2  # numbers of spans in a trace
_OK_FLAGS = 0x101  # sampled; and no parent is remote
_JSON = msgspec.json.Encoder()
Attributes = Mapping[str, str | int]


class _Stage(NamedTuple):
    """Monotonic times, ns."""

    name: str
    begin: int
    end: int
    attributes: Attributes


def request_of(records: Sequence[Record], resource: Attributes) -> bytes:
    """The body of a request: an `ExportTraceServiceRequest`."""
    spans = [span for record in records for span in spans_of(record)]
    scope = {"name": "lookout", "version": __version__}
    row = {"resource": {"attributes": _pairs(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
    return _JSON.encode({"resourceSpans": [row]})


def spans_of(record: Record) -> list[dict[str, Any]]:
    """The span `frame`, and one for each stage within it."""
    if isinstance(record, SentFrame):
        end, stages = record.captured_ns + record.latency.total, _stages_of_sent(record)
        status: dict[str, object] = {}
    else:
        end, stages = record.captured_ns, _decoding(record.captured_ns, record.decode)
        status = {"status": {"code": _ERROR, "message": f"dropped: {record.cause}"}}
    ids, offset = record.ids, record.offset_ns
    frame = _Stage("frame", record.captured_ns, end, _attributes(record))
    spans = [{**_span(ids, _FRAME, frame, offset), **status}]
    within = {"parentSpanId": spans[0]["spanId"]}
    for number, stage in enumerate(stages, _FIRST_OTHER):
        if stage.name == "publish":
            spans.append({**_span(ids, _PUBLISH, stage, offset), **within, "kind": _PRODUCER})
        else:
            spans.append({**_span(ids, number, stage, offset), **within})
    return spans


def traceparent(ids: TraceIds) -> str:
    """W3C's header of a frame whose message is sent: what a subscriber does for it belongs to its span `publish`."""
    return f"00-{ids.trace}-{ids.span(_PUBLISH)}-01"


def _stages_of_sent(record: SentFrame) -> Iterator[_Stage]:
    latency, times, work = record.latency, record.times, record.work
    yield from _decoding(record.captured_ns, latency.decode)
    yield _Stage("wait", record.captured_ns, record.taken, {})
    at, of_batch = record.taken, {"thread.name": work.lane} if work else {}
    for name, took in (
        ("preprocess", times.preprocess), ("infer", times.infer), ("postprocess", times.postprocess)
    ):  # fmt: skip
        yield _Stage(name, at, at + took, of_batch)
        at += took
    if work:
        yield _Stage("track", work.detected, work.handed_over, of_batch)
        at = work.handed_over
    to = topic("detections", record.source).decode()
    messaging = {"messaging.system": "zeromq", "messaging.operation.name": "publish",
                 "messaging.operation.type": "send", "messaging.destination.name": to}  # fmt: skip
    yield _Stage("publish", at, max(at, record.captured_ns + latency.total), messaging)


def _decoding(captured_ns: int, took: int) -> Iterator[_Stage]:
    if took:
        yield _Stage("decode", captured_ns - took, captured_ns, {})


def _attributes(record: Record) -> dict[str, str | int]:
    found: dict[str, str | int] = {"lookout.source": record.source, "lookout.seq": record.seq}
    if isinstance(record, LostFrame):
        found.update({"lookout.reason": "dropped", "error.type": record.cause})
        if record.model:
            found["lookout.model.id"] = record.model
        return found
    model, work = record.served.model, record.work
    found.update(
        {
            "lookout.reason": record.reason,
            "lookout.session": record.session,
            "lookout.model.name": model.name,
            "lookout.model.backend": model.backend,
            "lookout.model.precision": model.precision,
        }
    )
    if record.served.name:
        found["lookout.model.id"] = record.served.name
    if record.served.device:
        found["lookout.device"] = record.served.device
    if work:
        found["lookout.batch.size"] = work.frames
    return found


def _span(ids: TraceIds, number: int, stage: _Stage, offset: int) -> dict[str, Any]:
    return {
        "traceId": ids.trace,
        "spanId": ids.span(number),
        "flags": _OK_FLAGS,
        "name": stage.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(stage.begin + offset),
        "endTimeUnixNano": str(stage.end + offset),
        "attributes": _pairs(stage.attributes),
    }


def _pairs(attributes: Attributes) -> list[dict[str, object]]:
    """As OTLP has them: integers of 64 bits are texts in JSON."""
    return [
        {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}
        for key, value in attributes.items()
    ]
