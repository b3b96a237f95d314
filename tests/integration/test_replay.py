"""Lossless replay: every frame, in order, the same every time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import av
import msgspec
import pytest

from lookout.messages import Detections
from tests.support import clips
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout, all_of, is_state, receive_until

_REAL = "one-by-one-person-detection.mp4"
_TIMES = ("instance", "session", "captured_at", "latency", "dropped")


def _replay(folder: Path, clip: Path, model: dict[str, object], encoding: str = "json") -> list[Detections]:
    """All detections messages of one lossless run, seen by a subscriber that was there first."""
    folder.mkdir(exist_ok=True)
    config: dict[str, object] = {
        "model": model,
        "sources": [{"id": "clip", "type": "av", "url": str(clip), "pace": "fast"}],
        "board": {"mode": "lossless"},
        "publisher": {"wait_for_subscriber_s": 20, "encoding": encoding, "high_water_mark": 100_000},
    }
    with Lookout(folder, config) as lookout, lookout.subscribe("detections", "status") as subscriber:
        messages = receive_until(subscriber, is_state("clip", "ended"), timeout_s=500)
        assert lookout.process.wait(PATIENCE_S) == 0
        while (message := subscriber.receive(1.0)) is not None:  # where the last batch took seconds
            messages.append(message)
        assert subscriber.lost == {}
    return [message for message in messages if isinstance(message, Detections)]


def _records(messages: list[Detections]) -> list[dict[str, Any]]:
    """Without what differs from run to run."""
    records: list[dict[str, Any]] = [msgspec.to_builtins(message) for message in messages]
    return [{key: value for key, value in record.items() if key not in _TIMES} for record in records]


def _twice(clip: Path, data: Path, folder: Path) -> list[Detections]:
    """What the first of two runs with a real model found, which is what the second found."""
    model: dict[str, object] = {"path": str(data / "models" / "yolox_nano.onnx"), "labels": "coco", "threads": 1}
    first, second = (_replay(folder / name, clip, model, name) for name in ("json", "msgpack"))
    assert [message.seq for message in first] == [message.index for message in first] == list(range(len(first)))
    assert _records(first) == _records(second)
    return first


@pytest.mark.needs("data")
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_real_clip_twice(data: Path, tmp_path: Path) -> None:
    """1,394 frames give 1,394 messages, in order, without gap, and identical records in the second run."""
    found = _twice(data / "videos" / _REAL, data, tmp_path)
    assert len(found) == 1394
    assert sum(len(message.detections) for message in found) > 1000


@pytest.mark.needs("ffmpeg")
@pytest.mark.parametrize("processes", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_recording_played_fast_waits_for_lanes(processes: int, tmp_path: Path) -> None:
    """Where newer frames replace older ones, too: beside a camera, which is not held up."""
    clip = clips.pattern(tmp_path / "clip.mp4", seconds=4)
    config: dict[str, object] = {
        "sources": [
            {"id": "clip", "type": "av", "url": str(clip), "pace": "fast"},
            {"id": "drawn", "type": "synthetic", "pace": "fast", "frames": 30},
            {"id": "street", "type": "synthetic", "fps": 5, "frames": 10},
        ],
        "capture_processes": processes,
        "publisher": {"wait_for_subscriber_s": PATIENCE_S, "high_water_mark": 100_000},
    }
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("detections", "status") as subscriber:
        ended = all_of(*(is_state(name, "ended") for name in ("clip", "drawn", "street")))
        messages = receive_until(subscriber, ended, timeout_s=2 * PATIENCE_S)
        assert lookout.process.wait(PATIENCE_S) == 0
    of_each = Counter(message.source for message in messages if isinstance(message, Detections))
    assert (of_each["clip"], of_each["drawn"]) == (60, 30)
    assert of_each["street"] > 0


@pytest.mark.long
@pytest.mark.needs("data", "ffmpeg")
@pytest.mark.slow
def test_the_beginning_of_a_real_clip_twice(data: Path, tmp_path: Path) -> None:
    """The same for some seconds of it."""
    clip = tmp_path / "clip.mp4"
    clips.ffmpeg("-i", data / "videos" / _REAL, "-t", "3", "-an", "-c", "copy", clip)
    with av.open(str(clip)) as container:
        count = sum(1 for _ in container.decode(video=0))
    found = _twice(clip, data, tmp_path)
    assert len(found) == count
    assert sum(len(message.detections) for message in found) > 10


@pytest.mark.needs("ffmpeg")
def test_a_short_clip(clip: Path, tmp_path: Path) -> None:
    """The same on a machine without the real clip; times follow the file's."""
    found = _replay(tmp_path, clip, {"path": str(DEMO_MODEL), "threads": 1})
    assert [message.seq for message in found] == list(range(45))
    assert [round((message.pts or 0) * 15 / 1e9) for message in found] == list(range(45))
    assert {message.clock.kind for message in found} == {"file"}
