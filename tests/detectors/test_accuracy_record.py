"""Notes on the accuracy of a model, and files of version 1 without intervals."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from detectors.accuracy_record import AccuracyRecord, find, note, path_of, rounded, write


def _record(model: Path, ruling: str = "undecided", more: int | None = 338) -> AccuracyRecord:
    return AccuracyRecord(
        onnx_sha256=sha256(model.read_bytes()).hexdigest(),
        precision="int8",
        accepted=ruling == "accepted",
        measure="AP",
        reference=0.3361,
        value=0.3324,
        least=0.3261,
        backend="cpu",
        frames=32,
        at="2026-01-02T03:04:05Z",
        ruling=ruling,
        drop=0.0037,
        low=-0.009,
        high=0.023,
        units=32,
        unit="photos",
        budget=0.01,
        more=more,
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.int8.onnx"
    path.write_bytes(b"a model")
    return path


_SEEN = "drop +0.0037 (95 %: -0.0090 to +0.0230) over 32 photos, 0.0100 allowed"


@pytest.mark.parametrize(
    ("ruling", "more", "text"),
    [
        ("accepted", None, "accepted"),
        ("refused", None, "refused"),
        ("undecided", 338, "undecided, about 340 more photos would decide"),
        ("undecided", None, "undecided, too close to the budget for more data to decide"),
    ],
)
def test_a_finding_has_the_drop_its_interval_and_the_ruling(
    model: Path, ruling: str, more: int | None, text: str
) -> None:
    record = _record(model, ruling, more)
    assert record.finding == f"{_SEEN}: {text}"
    assert record.line == f"AP 0.3324, {_SEEN}: {text}; cpu, 2026-01-02T03:04:05Z"


def test_users_of_a_file_get_a_note_unless_it_was_accepted(model: Path) -> None:
    assert note(model, "int8") == (
        "model.int8.onnx is INT8 and has no accuracy record: run `lookout calibrate` to measure it",
    )
    write(model, _record(model))
    assert find(model) == _record(model)
    assert note(model, "int8") == (f"model.int8.onnx: {_record(model).line}",)
    write(model, _record(model, "accepted"))
    assert note(model, "int8") == ()


@pytest.mark.parametrize("accepted", [True, False])
def test_files_of_version_1_are_read(model: Path, accepted: bool) -> None:
    """They have no interval and no ruling."""
    old = {
        "onnx_sha256": sha256(b"a model").hexdigest(),
        "precision": "int8",
        "accepted": accepted,
        "measure": "AP",
        "reference": 0.3361,
        "value": 0.3338,
        "least": 0.3261,
        "backend": "trt",
        "frames": 64,
        "at": "2025-11-01T12:00:00Z",
        "schema": "lookout.verdict/1",
    }
    path_of(model).write_text(json.dumps(old))
    record = find(model)
    assert record is not None
    word = "accepted" if accepted else "refused"
    assert record.line == (
        f"{word}: AP 0.3338, 0.3361 in float, at least 0.3261 required; 64 frames, trt, 2025-11-01T12:00:00Z"
    )
    assert note(model, "int8") == (() if accepted else (f"model.int8.onnx: {record.line}",))
    assert (record.schema, record.drop) == ("lookout.verdict/1", None)
    assert msgspec.json.decode(msgspec.json.encode(record), type=AccuracyRecord) == record


@pytest.mark.parametrize(
    ("count", "expected"), [(1, 1), (99, 99), (100, 100), (344, 340), (346, 350), (12_345, 12_000), (0, 0)]
)
def test_an_estimate_has_two_digits(count: int, expected: int) -> None:
    assert rounded(count) == expected
