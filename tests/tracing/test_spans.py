"""What traces say, as OpenTelemetry's own code reads it."""

from __future__ import annotations

import base64
import json
import random
import re
from importlib import import_module
from typing import Any

import pytest

from daemon.pipeline.outbox import Work
from daemon.tracing.record import IdMaker, LostFrame, Record, SentFrame
from daemon.tracing.spans import request_of, spans_of, traceparent
from tests.support.collector import attributes_of, spans_in
from tests.tracing.records import RESOURCE, lost, records, sent

pytestmark = pytest.mark.needs("opentelemetry")
_AT_ONCE = 100


def _read(body: bytes) -> Any:
    """The request, by OpenTelemetry's classes, which refuse a field that they do not know. OTLP writes ids as
    hexadecimal digits, and protobuf's JSON reads bytes in base64."""
    parse = import_module("google.protobuf.json_format").ParseDict
    kind = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2").ExportTraceServiceRequest
    request = json.loads(body)
    for span in spans_in(request):
        for key in {"traceId", "spanId", "parentSpanId"} & span.keys():
            assert re.fullmatch(r"[0-9a-f]{16}([0-9a-f]{16})?", span[key])
            span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return parse(request, kind())


def _check(record: Record, spans: dict[str, Any]) -> None:
    """Each stage has the times of the record, to the nanosecond."""
    frame, at = spans.pop("frame"), record.captured_ns + record.offset_ns
    assert frame.start_time_unix_nano == at
    assert frame.parent_span_id == b""
    assert {row.parent_span_id for row in spans.values()} <= {frame.span_id}
    assert {row.trace_id for row in (frame, *spans.values())} == {bytes.fromhex(record.ids.trace)}
    ids = {frame.span_id, *(row.span_id for row in spans.values())}
    assert len(ids) == len(spans) + 1
    assert bytes(8) not in ids
    took = {name: row.end_time_unix_nano - row.start_time_unix_nano for name, row in spans.items()}
    assert min(took.values(), default=0) >= 0
    attributes = {row.key: row.value for row in frame.attributes}
    assert attributes["lookout.source"].string_value == record.source
    assert attributes["lookout.seq"].int_value == record.seq
    if isinstance(record, LostFrame):
        assert took == ({"decode": record.decode} if record.decode else {})
        assert (frame.status.code, frame.status.message) == (2, f"dropped: {record.cause}")
        assert attributes["error.type"].string_value == record.cause
        return
    assert frame.status.code == 0
    assert frame.end_time_unix_nano - at == record.latency.total
    assert spans["publish"].end_time_unix_nano == frame.end_time_unix_nano
    latency = {name: took.get(name, 0) for name in ("decode", "wait", "preprocess", "infer", "postprocess")}
    assert latency == {name: getattr(record.latency, name) for name in latency}
    if record.work:
        assert took["track"] == record.work.handed_over - record.work.detected
        assert attributes["lookout.batch.size"].int_value == record.work.frames


def _read_and_check(count: int, seed: int) -> None:
    made, traces = records(count, seed), set[bytes]()
    for start in range(0, count, _AT_ONCE):
        some = made[start : start + _AT_ONCE]
        (row,) = _read(request_of(some, RESOURCE)).resource_spans
        assert {one.key: one.value.string_value for one in row.resource.attributes} == RESOURCE
        found: dict[bytes, dict[str, Any]] = {}
        for span in row.scope_spans[0].spans:
            assert span.name not in found.setdefault(span.trace_id, {})
            found[span.trace_id][span.name] = span
        for record in some:
            _check(record, found.pop(bytes.fromhex(record.ids.trace)))
            traces.add(bytes.fromhex(record.ids.trace))
        assert not found
    assert len(traces) == count
    assert bytes(16) not in traces


def test_opentelemetry_reads_random_traces() -> None:
    _read_and_check(1_000, seed=1)


@pytest.mark.long
def test_opentelemetry_reads_10_000_random_traces() -> None:
    _read_and_check(10_000, seed=2)


def test_a_frame_has_one_trace_for_each_fate_and_account() -> None:
    """Two models look at the same frame, one loses it; a source whose name is longer by a digit; another run."""
    ids = IdMaker()
    made = [
        ids.ids(account, seq, captured, is_sent=is_sent)
        for account in ("door", "door/people", "door/plates", "door1")
        for seq in range(300)
        for captured in (0, seq)
        for is_sent in (False, True)
        if captured or not is_sent
    ]
    expected = 4 * (300 + 299 * 2) + 4 - 4  # a captured time of 0 at seq 0 is told once
    assert len({one.trace for one in made}) == expected
    assert IdMaker().ids("door", 1, 1, is_sent=True) not in made
    assert made[0] == ids.ids("door", 0, 0, is_sent=False)


def test_what_is_done_with_a_message_belongs_to_its_publish_span() -> None:
    record = sent(random.Random(1), IdMaker(), 7)
    publish = next(span for span in spans_of(record) if span["name"] == "publish")
    assert traceparent(record.ids) == f"00-{record.ids.trace}-{publish['spanId']}-01"
    assert publish["kind"] == 4  # a producer
    assert attributes_of(publish)["messaging.destination.name"] == f"detections/{record.source}/"


def test_a_frame_that_no_lane_has_seen_has_no_stages_but_decoding() -> None:
    record = lost(random.Random(1), IdMaker(), 7)
    assert [span["name"] for span in spans_of(record)] == ["frame", *(["decode"] if record.decode else [])]


def test_a_stage_never_ends_before_it_begins() -> None:
    """A GPU's times may add up to more than what the clock shows."""
    record = sent(random.Random(2), IdMaker(), 7)
    late = SentFrame(**{name: getattr(record, name) for name in record.__struct_fields__ if name != "work"},
                     work=Work("lane-0", 1, record.taken, record.captured_ns + record.latency.total + 5))  # fmt: skip
    for span in spans_of(late):
        assert int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"])
