"""What formats write, to the byte, and whether others can read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest
from cloudevents.core.formats.json import JSONFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.bridge.formats.port import Formatter, formatter
from daemon.bridge.messages import Loss, Notice
from daemon.bridge.records import Encoded, Figure, Record, RecordKind
from daemon.config.targets import Format
from lookout import messages as wire

_FOLDER = Path(__file__).parent
_AT = 1_795_183_201_473_912_004
_COMMON: dict[str, Any] = {
    "instance": "5f0c2d1e", "source": "door", "session": "a90b44c7", "index": 3, "seq": 128, "pts": 5_120_000_000,
    "at": _AT, "confirmed_seq": 130, "confirmed_at": _AT + 80_000_000,
}  # fmt: skip
_BOX = (174.25, 14.8, 316.1, 63.4)


def _event(number: int, kind: wire.EventKind, phase: wire.EventPhase, **fields: Any) -> wire.Event:
    known = {"track": 7, "label": "person", "box": _BOX}
    return wire.Event(id=f"5f0c2d1e-{number}", number=number, kind=kind, phase=phase, **{**_COMMON, **known, **fields})


EVENTS = [
    _event(1, "object", "appeared", snapshot="/api/v1/events/5f0c2d1e-1/snapshot.jpg"),
    _event(2, "zone", "entered", rule="porch", clip="/api/v1/clips/5f0c2d1e-2/video.mp4"),
    _event(3, "zone", "dwell", rule="porch", dwell=5_000_000_000),
    _event(4, "zone", "left", rule="porch", dwell=9_000_000_000, reason="left"),
    _event(5, "line", "crossed", rule="gate|1", direction="forward", label="truck", track=9),
    _event(6, "crowd", "over", rule="yard/all", track=None, label=None, box=None, count=12),
    _event(7, "attribute", "settled", attribute=wire.EventAttribute("colour", "red", 0.93), label="car"),
    _event(8, "object", "left", reason="lost"),
]
_CLIP = wire.Clip(
    instance="5f0c2d1e", source="door", index=1, id="5f0c2d1e-2", store="disk", events=["5f0c2d1e-2"], begin=_AT,
    end=_AT + 10_000_000_000, covered=10_000_000_000, state="ready", path="/api/v1/clips/5f0c2d1e-2/video.mp4",
)  # fmt: skip
OTHERS: list[tuple[RecordKind, str, Any]] = [
    ("status", "door", Notice(id="n-1", daemon="hall", about="source", name="door", condition="down", since=_AT,
                              at=_AT + 60_000_000_000, reason="no route to host")),
    ("status", "door", Notice(id="n-2", daemon="hall", about="source", name="door", condition="up", since=_AT,
                              at=_AT + 90_000_000_000, reason="no route to host")),
    ("status", "", Notice(id="n-3", daemon="hall", about="store", name="disk", condition="down", since=_AT, at=_AT,
                          reason="no space left")),
    ("clip", "door", _CLIP),
    ("loss", "", Loss(id="l-1", daemon="hall", count=3, first=9, last=11, at=_AT, cause="journal")),
]  # fmt: skip
_DETECTION = wire.Detection("person", 0, 0.9713, _BOX, track_id=7)
FIGURE = wire.Detections(
    instance="5f0c2d1e", source="door", session="a90b44c7", seq=128, index=128, pts=8_533_333_333, captured_at=_AT,
    clock=wire.FrameClock("arrival"), image=wire.ImageSize(640, 360),
    model=wire.Model("demo", "8a80488ecc08", "fp32", "cpu"),
    detections=[_DETECTION, wire.Detection("traffic light", 9, 0.5, (0.0, 0.0, 640.0, 360.0))],
    latency=wire.Latency(1, 2, 3, 4, 5, 6), dropped=wire.Dropped(),
)  # fmt: skip


def _record(kind: RecordKind, source: str, id: str, at: int, message: Any) -> Record:
    body = msgspec.json.encode(message)
    return Record(run=1, position=1, kind=kind, daemon="hall", source=source, id=id, at=at, body=body)


def _of_event(event: wire.Event) -> Record:
    return _record("event", event.source, event.id, event.at, event)


def _figure(message: wire.Detections, encoding: wire.Encoding = "json") -> Figure:
    return Figure("hall", message.source, message, wire.encoder(encoding)(message))


RECORDS = [
    *(_of_event(event) for event in EVENTS),
    *(_record(kind, source, message.id, getattr(message, "at", _AT), message) for kind, source, message in OTHERS),
]


def _written(form: Formatter) -> list[Encoded]:
    rows = [part for record in RECORDS if record.kind in form.kinds for part in form.record(record)]
    return [*rows, *form.figure(_figure(FIGURE))]


def _line(part: Encoded) -> str:
    return " ".join([part.content_type, part.suffix or "-", part.body.decode()])


@pytest.mark.parametrize("name", get_args(Format))
def test_each_format_writes_what_it_wrote(name: Format) -> None:
    """The files are written anew by `python -m tests.bridge.test_formats`, and read by whoever changes them."""
    golden = (_FOLDER / "golden" / f"{name}.txt").read_text().splitlines()
    assert [_line(part) for part in _written(formatter(name))] == golden


@pytest.mark.parametrize("name", get_args(Format))
def test_a_format_says_what_it_has_nothing_for(name: Format) -> None:
    form = formatter(name)
    for record in RECORDS:
        if record.kind in form.kinds:
            assert form.has(record) == bool(form.record(record))


def _validator(name: str) -> Callable[[Any], None]:
    schema = json.loads((_FOLDER / "schemas" / f"{name}.json").read_text())
    found: Callable[[Any], None] = jsonschema.Draft202012Validator(schema).validate
    return found


def _check_cloudevent(body: bytes) -> None:
    event = JSONFormat().read(None, body)
    assert event.get_specversion() == "1.0"
    assert event.get_time() is not None
    assert isinstance(event.get_data(), dict)


def _check_json(name: str) -> Callable[[bytes], None]:
    validate = _validator(name)
    return lambda body: validate(json.loads(body))


CHECKS: dict[Format, Callable[[bytes], None]] = {
    "cloudevents": _check_cloudevent,
    "deepstream-minimal": _check_json("deepstream-minimal"),
    "deepstream-full": _check_json("deepstream-full"),
    "frigate": _check_json("frigate-events"),
    "onvif-ej": _check_json("onvif-ej"),
    "onvif-mj": _check_json("onvif-mj"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_others_can_read_it(name: Format) -> None:
    bodies = [part.body for part in _written(formatter(name)) if "json" in part.content_type]
    assert bodies
    for body in bodies:
        CHECKS[name](body)


def test_a_cloudevent_says_beside_it_what_it_has_within() -> None:
    for part in _written(formatter("cloudevents")):
        event = json.loads(part.body)
        assert dict(part.attributes) == {name: value for name, value in event.items() if name != "data"}


def test_onvif_points_up() -> None:
    (part,) = formatter("onvif-mj").figure(_figure(FIGURE))
    person, whole = json.loads(part.body)["Frame"][0]["Object"]
    assert whole["Appearance"]["Shape"]["BoundingBox"] == {"@left": -1, "@top": 1, "@right": 1, "@bottom": -1}
    shape = person["Appearance"]["Shape"]
    assert shape["BoundingBox"]["@top"] > shape["CenterOfGravity"]["@y"] > shape["BoundingBox"]["@bottom"]
    assert shape["CenterOfGravity"]["@y"] > 0, "it is in the upper half"


_numbers = st.integers(-(1 << 63), (1 << 63) - 1)
_floats = st.floats(allow_nan=False, allow_infinity=False)


def _wire(cls: type[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Messages that the wire can carry: what a reader of it gets."""
    return st.builds(cls, **fields).map(lambda row: msgspec.json.decode(msgspec.json.encode(row), type=cls))


_texts = st.text(max_size=20)
_boxes = st.tuples(_floats, _floats, _floats, _floats)
_events = _wire(
    wire.Event, id=_texts, number=_numbers, instance=_texts, source=_texts, session=_texts, index=_numbers,
    kind=st.sampled_from(get_args(wire.EventKind)), phase=st.sampled_from(get_args(wire.EventPhase)), seq=_numbers,
    pts=st.none() | _numbers, at=_numbers, confirmed_seq=_numbers, confirmed_at=_numbers, rule=st.none() | _texts,
    direction=st.none() | st.sampled_from(get_args(wire.Direction)), track=st.none() | _numbers,
    label=st.none() | _texts, box=st.none() | _boxes, dwell=st.none() | _numbers, count=st.none() | _numbers,
    snapshot=st.none() | _texts, clip=st.none() | _texts,
    attribute=st.none() | st.builds(wire.EventAttribute, name=_texts, value=_texts, confidence=st.floats(0, 1)),
)  # fmt: skip
_detections = st.builds(
    wire.Detection, label=_texts, class_id=st.integers(0, 1 << 31), confidence=st.floats(0, 1), box=_boxes,
    track_id=st.none() | _numbers,
)  # fmt: skip
_frames = st.builds(
    lambda source, at, seq, rows, size: msgspec.structs.replace(
        FIGURE, source=source, captured_at=at, seq=seq, detections=rows, image=wire.ImageSize(*size)
    ),
    _texts, _numbers, _numbers, st.lists(_detections, max_size=3), st.tuples(_numbers, _numbers),
)  # fmt: skip


def _check_any(parts: Sequence[Encoded], again: Sequence[Encoded]) -> None:
    assert list(parts) == list(again)
    for part in parts:
        json.loads(part.body)
        assert part.suffix.isprintable()
        assert not set(part.suffix) & set("+#")


@settings(max_examples=20)
@given(_events)
def test_any_event_can_be_written(event: wire.Event) -> None:
    for name in get_args(Format):
        form = formatter(name)
        assert form.has(_of_event(event)) == bool(form.record(_of_event(event)))
        if "event" in form.kinds:
            _check_any(form.record(_of_event(event)), formatter(name).record(_of_event(event)))


@settings(max_examples=30)
@given(_frames, st.sampled_from(["json", "msgpack"]))
def test_any_frame_can_be_written(frame: wire.Detections, encoding: wire.Encoding) -> None:
    for name in get_args(Format):
        if name != "lookout":  # as on the wire, MessagePack stays MessagePack
            figure = _figure(frame, encoding)
            _check_any(formatter(name).figure(figure), formatter(name).figure(figure))


def main() -> None:
    for name in get_args(Format):
        lines = [_line(part) for part in _written(formatter(name))]
        (_FOLDER / "golden" / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
