"""The wire: what it says is what its schemas say, in both encodings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from lookout import messages
from lookout.messages import Detection, Detections, Dropped, FrameClock, ImageSize, Latency, Model

DOCS = Path(__file__).resolve().parents[2] / "docs"
MESSAGE = Detections(
    instance="i",
    source="cam1",
    session="s",
    seq=7,
    index=5,
    pts=None,
    captured_at=1_700_000_000_000_000_000,
    clock=FrameClock("arrival"),
    image=ImageSize(640, 480),
    model=Model("m", "0123", "fp32", "cpu"),
    detections=[Detection("person", 0, 0.5, (1.0, 2.0, 3.0, 4.0))],
    latency=Latency(1, 2, 3, 4, 5, 15),
    dropped=Dropped(superseded=2),
)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_there_and_back(encoding: messages.Encoding) -> None:
    payload = messages.encoder(encoding)(MESSAGE)
    assert messages.decode(b"detections/cam1/", payload) == MESSAGE


def test_the_first_byte_tells_the_encodings_apart() -> None:
    assert messages.encoder("json")(MESSAGE)[:1] == b"{"
    assert messages.encoder("msgpack")(MESSAGE)[:1] != b"{"


def test_a_field_of_a_later_version_is_ignored() -> None:
    """So that fields can be added without breaking readers."""
    body: dict[str, Any] = {**msgspec.to_builtins(MESSAGE), "weather": "fog"}
    assert messages.decode(b"detections/cam1/", msgspec.json.encode(body)) == MESSAGE


@pytest.mark.parametrize(
    ("topic", "payload"), [(b"gossip/x/", b"{}"), (b"detections/x/", b"{}"), (b"status/x/", b"\xff\xfe"), (b"", b"")]
)
def test_what_is_not_of_the_wire_is_refused(topic: bytes, payload: bytes) -> None:
    with pytest.raises(ValueError, match="wire"):
        messages.decode(topic, payload)


def test_topics_do_not_match_each_others_prefixes() -> None:
    assert not messages.topic("detections", "cam10").startswith(messages.topic("detections", "cam1"))


def test_schemas_in_docs_are_current() -> None:
    """`make schemas` writes them."""
    for name, text in messages.schemas().items():
        assert (DOCS / "schema" / name).read_bytes() == text, f"{name} is out of date: run `make schemas`"


def test_a_message_fits_its_schema() -> None:
    schema = json.loads((DOCS / "schema" / "detections.schema.json").read_text())
    jsonschema.validate(json.loads(msgspec.json.encode(MESSAGE)), schema)
    broken = msgspec.to_builtins(MESSAGE)
    del broken["seq"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)
