"""Tracks through the whole daemon."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from lookout.messages import Detection, Detections, Message
from tests.support import street_clips
from tests.support.daemon import (
    DEMO_MODEL,
    PATIENCE_S,
    Lookout,
    all_of,
    has_seen,
    is_state,
    receive_until,
    wait_until,
)

_SOURCES = ("street", "yard")
_FRAMES = 45  # of each


def _streets() -> list[dict[str, object]]:
    """Two drawn streets."""
    return [
        {"id": source, "type": "synthetic", "pace": "fast", "frames": _FRAMES, "fps": 15, "objects": 4, "seed": seed}
        for seed, source in enumerate(_SOURCES)
    ]


def _replay(folder: Path, confidence: float, **keys: Any) -> list[Detections]:
    """All detections of one lossless run over two sources."""
    folder.mkdir()
    config: dict[str, object] = {
        "model": {"path": str(DEMO_MODEL), "confidence": confidence, "threads": 1, "max_batch": keys.pop("batch", 8)},
        "sources": _streets(),
        "tracking": {"enabled": True},
        "board": {"mode": "lossless"},
        "publisher": {"wait_for_subscriber_s": PATIENCE_S, "high_water_mark": 100_000},
        **keys,
    }
    with Lookout(folder, config) as lookout, lookout.subscribe("detections", "status") as subscriber:
        ended = all_of(*(is_state(source, "ended") for source in _SOURCES))
        messages = receive_until(subscriber, ended, timeout_s=4 * PATIENCE_S)
        assert lookout.process.wait(PATIENCE_S) == 0
    return [message for message in messages if isinstance(message, Detections)]


def _boxes(messages: list[Detections]) -> dict[tuple[str, int], list[Detection]]:
    return {(message.source, message.seq): message.detections for message in messages}


@pytest.mark.long
def test_a_replay_gives_the_same_tracks_twice(tmp_path: Path) -> None:
    """With other batches and lanes, too. Each drawn object keeps its id, and none has two."""
    first = _replay(tmp_path / "first", 0.25)
    second = _replay(tmp_path / "second", 0.25, batch=3, lanes=2)
    boxes = _boxes(first)
    assert len(first) == 2 * _FRAMES
    assert boxes == _boxes(second)
    for source in _SOURCES:
        last = boxes[source, _FRAMES - 1]
        assert {box.track_id for box in last} <= {1, 2, 3, 4}
        assert len({box.track_id for box in last}) == len(last) > 0


@pytest.mark.needs("ffmpeg")
@pytest.mark.long
def test_capture_processes_do_not_change_tracks(tmp_path: Path) -> None:
    clip = street_clips.street(tmp_path / "street.mkv", seconds=_FRAMES / street_clips.FPS)
    sources = [{"id": source, "type": "av", "url": str(clip), "pace": "fast"} for source in _SOURCES]
    runs = [_replay(tmp_path / str(count), 0.25, sources=sources, capture_processes=count) for count in (0, 2)]
    first, second = map(_boxes, runs)
    assert len(first) == 2 * _FRAMES
    assert first == second
    assert any(box.track_id for boxes in first.values() for box in boxes)


def test_a_message_has_the_track_of_each_box(tmp_path: Path) -> None:
    """A box without a confirmed track has a null id and nothing else. Weak boxes are of confirmed tracks."""
    messages = _replay(tmp_path / "one", 0.9)
    rows = [box for message in messages for box in message.detections]
    tracked = [box for box in rows if box.track_id is not None]
    assert [box.track_id for box in messages[0].detections] == [None] * len(messages[0].detections)
    assert tracked
    assert all(isinstance(box.age, int) and box.track_label for box in tracked)
    assert all(isinstance(box.velocity, tuple) and len(box.velocity) == 2 for box in tracked)
    assert all(box.track_id is not None for box in rows if box.confidence < 0.9)
    assert any(box.confidence < 0.9 for box in tracked)
    plain = next(box for box in rows if box.track_id is None)
    assert msgspec.to_builtins(plain).keys() == {"label", "class_id", "confidence", "box", "track_id"}


def _tracked(condition: Callable[[Detection], bool]) -> Callable[[Message], bool]:
    """Whether the first box of a picture satisfies a condition."""
    return lambda message: (
        isinstance(message, Detections) and bool(message.detections) and condition(message.detections[0])
    )


def test_tracks_survive_changes_while_the_daemon_runs(tmp_path: Path) -> None:
    """First of the settings, then of the model; in the end the source is not tracked any more."""
    street = {"id": "street", "type": "synthetic", "width": 160, "height": 96, "fps": 10}
    tracking: dict[str, object] = {"enabled": True, "timeout_s": 600, "groups": [["dark", "bright"]]}
    config: dict[str, object] = {
        "sources": [street],
        "model": {"path": str(DEMO_MODEL), "backend": "fake"},
        "tracking": tracking,
        "monitor": {"stall_after_s": 600},
    }

    def change(lookout: Lookout, count: int, **sections: object) -> Callable[[Message], bool]:
        """Whether the log says that so many changes were made."""
        lookout.config.write_text(yaml.safe_dump(yaml.safe_load(lookout.config.read_text()) | sections))
        lookout.process.send_signal(signal.SIGHUP)
        return lambda _: lookout.log().count('"reloaded"') == count

    with Lookout(tmp_path, config) as lookout, lookout.subscribe("detections") as subscriber:
        messages = receive_until(subscriber, _tracked(lambda box: box.track_id == 1))
        messages += receive_until(subscriber, change(lookout, 1, tracking={**tracking, "confirm_hits": 5}))
        model = {"path": str(DEMO_MODEL), "backend": "fake", "confidence": 0.2}
        messages += receive_until(subscriber, change(lookout, 2, model=model))
        messages += [message for _ in range(5) if (message := subscriber.receive(60)) is not None]
        rows = [message for message in messages if isinstance(message, Detections)]
        ages = [box.age for row in rows for box in row.detections if isinstance(box.age, int)]
        assert {box.track_id for row in rows[3:] for box in row.detections} == {1}
        assert ages == sorted(ages)
        assert len({row.session for row in rows}) == 1
        receive_until(subscriber, change(lookout, 3, sources=[{**street, "tracking": False}]))
        receive_until(subscriber, _tracked(lambda box: box.track_id is None))
        assert lookout.stop() == 0


def test_a_stop_while_the_tracker_compiles(tmp_path: Path) -> None:
    """The first tracked source comes with a reload. Frames go on while numba works, and a stop ends it."""
    street = {"id": "street", "type": "synthetic", "fps": 25}
    nowhere = {"NUMBA_CACHE_DIR": str(tmp_path / "empty")}
    with Lookout(tmp_path, {"sources": [street]}, environment=nowhere) as lookout:
        with lookout.subscribe("detections") as subscriber:
            next(iter(subscriber))
            config = yaml.safe_load(lookout.config.read_text())
            config["sources"][0]["tracking"] = True
            lookout.config.write_text(yaml.safe_dump(config))
            lookout.process.send_signal(signal.SIGHUP)
            maps = Path(f"/proc/{lookout.process.pid}/maps")
            wait_until(lambda: "llvmlite" in maps.read_text(), "numba is at work")
            receive_until(subscriber, has_seen(5, "street"))
        assert lookout.stop() == 0
        assert "tracking is compiled" not in lookout.log()
        assert "Traceback" not in lookout.log()
