"""Pictures of events: which frame, what is drawn, and the bounds of their folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from daemon.analytics.snapshots import EventSnapshots
from daemon.config.events import SnapshotsConfig
from daemon.errors import ConfigError
from daemon.pipeline.frames import Frame
from detectors.detections import Detections
from detectors.fake.detector import FakeLane
from detectors.port import HostImage
from tests.analytics.feed import rules_of
from tests.support.clock import ManualClock
from tests.support.events import Rig, crossing, frame, logged, runtime

NOTHING = Detections(np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty(0, np.int32))
CAR = Detections(np.array([[100, 200, 300, 400]], np.float32), np.array([0.9], np.float32), np.array([0], np.int32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


def _config(folder: Path, **more: Any) -> SnapshotsConfig:
    return SnapshotsConfig(folder=folder, **{"min_free_mib": 0, **more})


def _show(rig: Rig, seq: int, found: Detections = CAR, source: str = "street") -> None:
    """What a lane does with a frame after its stages."""
    assert rig.snapshots is not None
    image = HostImage(np.full((480, 640, 3), seq % 200, np.uint8))
    rig.snapshots.on_result(Frame(frame(seq, source), image), found, FakeLane(0.0, 0.0, lambda _: None), ("car",))


def _event(rig: Rig, seq: int, **more: Any) -> Any:
    rig.events.on_event(crossing(seq, **more))
    return rig.reports()[0]


def _picture(rig: Rig, id: str) -> Any:
    assert rig.snapshots is not None
    content = rig.snapshots.read(id)
    return None if content is None else cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)


def test_the_picture_is_the_confirming_frame_with_box_and_rule(folder: Path, clock: ManualClock) -> None:
    with Rig(None, clock, snapshots=_config(folder)) as rig:
        assert rig.snapshots is not None
        event = _event(rig, 10, box=(100.0, 200.0, 300.0, 400.0))
        assert event.snapshot == f"/api/v1/events/{event.id}/snapshot.jpg"
        _show(rig, 12, source="yard")
        _show(rig, 12)
        _show(rig, 13)
        rig.snapshots.run_once()
        picture = _picture(rig, event.id)
        assert picture.shape == (480, 640, 3)
        assert abs(int(picture[300, 200, 0]) - 12) < 5
        assert int(picture[300, 100, 2]) > 150  # the box's edge
        assert [path.name for path in folder.iterdir()] == [f"{event.id}.jpg"]
        assert rig.snapshots.lost == 0


_POINTS = [[0.5, 0.5], [0.9, 0.5], [0.9, 0.9], [0.5, 0.9]]
_PLACES: list[tuple[dict[str, object], list[tuple[int, int]]]] = [
    ({"type": "zone", "points": _POINTS}, [(320, 300), (450, 240), (576, 300), (450, 432)]),
    ({"type": "line", "points": _POINTS[:2]}, [(330, 240), (570, 240)]),
    ({"type": "gate", "lines": [_POINTS[:2], _POINTS[2:]]}, [(500, 240), (500, 432)]),
]


@pytest.mark.parametrize(("place", "edge"), _PLACES, ids=["zone", "line", "gate"])
def test_the_picture_shows_where_the_rule_is(
    folder: Path, clock: ManualClock, place: dict[str, object], edge: list[tuple[int, int]]
) -> None:
    """The colour of the outline is far from that of the frame, a grey."""
    (rule,) = rules_of({"name": "door", **place})
    with Rig(None, clock, snapshots=_config(folder)) as rig:
        assert rig.snapshots is not None
        event = _event(rig, 10, box=None, config=rule)
        _show(rig, 12, NOTHING)
        rig.snapshots.run_once()
        picture = _picture(rig, event.id).astype(int)
    for x, y in edge:
        assert picture[y, x, 0] > 150
    assert np.abs(picture[60:200, 400:] - 12).max() < 20  # a part of the frame without the rule


def test_an_object_has_no_place(folder: Path, clock: ManualClock) -> None:
    (rule,) = rules_of({"type": "object", "name": "any"})
    with Rig(None, clock, snapshots=_config(folder)) as rig:
        assert rig.snapshots is not None
        event = _event(rig, 10, kind="object", phase="appeared", direction=None, box=None, config=rule)
        _show(rig, 12, NOTHING)
        rig.snapshots.run_once()
        assert abs(_picture(rig, event.id)[100:].mean() - 12) < 5


def test_a_batch_may_have_several_frames_of_a_source(folder: Path, clock: ManualClock) -> None:
    """All of them pass the stages before the first is shown."""
    with Rig(None, clock, snapshots=_config(folder)) as rig:
        assert rig.snapshots is not None
        ids = [_event(rig, seq).id for seq in (0, 2, 2)]
        for seq in range(2, 5):
            _show(rig, seq)
        rig.snapshots.run_once()
        assert rig.snapshots.lost == 0
        assert {path.stem for path in folder.iterdir()} == {*ids}


def test_an_event_without_a_frame_in_hand_has_no_picture(folder: Path, clock: ManualClock) -> None:
    with Rig(None, clock, snapshots=_config(folder)) as rig:
        event = _event(rig, 10, kind="zone", phase="left", reason="source_down", direction=None)
        assert event.snapshot is None


def test_a_frame_that_never_comes_is_counted(folder: Path, clock: ManualClock) -> None:
    with logged() as lines, Rig(None, clock, snapshots=_config(folder)) as rig:
        assert rig.snapshots is not None
        event = _event(rig, 10)
        _show(rig, 20)
        rig.snapshots.run_once()
        assert (rig.snapshots.lost, rig.snapshots.trouble) == (1, None)  # nothing is wrong with the folder
        assert _picture(rig, event.id) is None
    assert [line["event"] for line in lines] == ["pictures of events cannot be written"]


@pytest.mark.parametrize("id", ["", "..", "../x-1", "run-1-1/../../x", "run-1-1.jpg", "x" * 99 + "-1", "run-1-\n1"])
def test_no_other_file_is_read(folder: Path, clock: ManualClock, id: str) -> None:
    with Rig(None, clock, snapshots=_config(folder)) as rig:
        (folder.parent / "x-1.jpg").write_bytes(b"secret")
        assert rig.snapshots is not None
        assert rig.snapshots.read(id) is None


def _fill(rig: Rig, count: int, found: Detections = NOTHING) -> list[str]:
    assert rig.snapshots is not None
    ids = []
    for seq in range(count):
        ids.append(_event(rig, seq).id)
        _show(rig, seq + 2, found)
        rig.snapshots.run_once()
    return ids


def test_the_oldest_go_beyond_the_bytes(folder: Path, clock: ManualClock) -> None:
    """Those of an earlier run as well."""
    folder.mkdir()
    old = folder / "run-0-1.jpg"
    old.write_bytes(b"x" * (1 << 20))
    (folder / ".run-0-2").write_bytes(b"half")
    (folder / "README").write_text("not ours")
    os.utime(old, (0, 0))
    with Rig(None, clock, snapshots=_config(folder, max_mib=1, max_age_days=36_500)) as rig:
        ids = _fill(rig, 3)
    assert {path.name for path in folder.iterdir()} == {"README", *(f"{id}.jpg" for id in ids)}


def test_old_pictures_go(folder: Path, clock: ManualClock) -> None:
    with Rig(None, clock, snapshots=_config(folder, max_age_days=1)) as rig:
        first, second = _fill(rig, 2)
        now = clock.utc_ns() / 1e9
        os.utime(folder / f"{first}.jpg", (now - 90_000,) * 2)
        os.utime(folder / f"{second}.jpg", (now - 80_000,) * 2)
        (third,) = _fill(rig, 1)
    assert {path.stem for path in folder.iterdir()} == {second, third}


def test_a_full_disk_costs_pictures_and_nothing_else(folder: Path, clock: ManualClock) -> None:
    with logged() as lines, Rig(None, clock, snapshots=_config(folder, min_free_mib=1 << 24)) as rig:
        assert rig.snapshots is not None
        ids = _fill(rig, 3)
        assert [_picture(rig, id) for id in ids] == [None] * 3
        assert rig.snapshots.lost == 3
        assert "MiB of the disk are free; so far 3 are lost" in str(rig.snapshots.trouble)
        assert rig.events.counts()[0].totals[0].count == 3
    (line,) = lines
    assert "MiB of the disk are free" in line["reason"]
    assert list(folder.iterdir()) == []


def test_a_folder_that_comes_back_is_no_trouble_any_more(folder: Path, clock: ManualClock) -> None:
    """Before the next event, which may be days away."""
    with logged() as lines, Rig(None, clock, snapshots=_config(folder)) as rig:
        assert rig.snapshots is not None
        folder.rename(folder.with_name("away"))
        _fill(rig, 2)
        assert "No such file or directory; so far 2 are lost" in str(rig.snapshots.trouble)
        folder.with_name("away").rename(folder)
        clock.advance(10)
        rig.snapshots.run_once()
        assert rig.snapshots.trouble is None
        assert [*folder.iterdir()] == []
    assert [line["log_level"] for line in lines] == ["error", "warning"]


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "none" / "x", tmp_path / "file"):
        with pytest.raises(ConfigError, match=r"^events\.snapshots\.folder: .* cannot be used: ") as caught:
            EventSnapshots(_config(folder), runtime(clock))
        assert "\n" not in str(caught.value)
