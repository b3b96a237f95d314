"""What the model sees of each source: regions of interest and tiles, from the configuration to the boxes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.commands.drawn_rules import with_view
from daemon.config.load import parse
from daemon.config.root import Config
from daemon.config.sources import SyntheticConfig
from daemon.errors import ConfigError
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.views import SourceViews, check_views, placed, view_of
from detectors.fake.detector import FakeDetector
from detectors.port import HostImage, Options, Region, Size
from lookout.messages import FrameClock
from tests.support.pictures import picture

_L_SHAPE = [[0, 0], [1, 0], [1, 0.5], [0.5, 0.5], [0.5, 1], [0, 1]]


def _config(**views: Any) -> Config:
    rows = ", ".join(f"{{id: {id}, type: synthetic, {view}}}" for id, view in views.items())
    return parse(f"model: {{path: none, backend: fake}}\nsources: [{rows}]\n")


def _frame(source: str, grey: int = 0, size: tuple[int, int] = (64, 36)) -> Frame:
    info = FrameInfo(source, "s", 0, None, 0, 0, FrameClock("file"), 0, *size)
    return Frame(info, HostImage(np.full((size[1], size[0], 3), grey, np.uint8)))


def test_a_plain_source_has_no_view() -> None:
    views = SourceViews(_config(plain="max_fps: 5"))
    assert not views.active
    assert views.pictures == {}


def test_pictures_of_a_frame() -> None:
    """Listeners have them at once, and after each change."""
    views = SourceViews(_config(a="tiles: 2x2", b="tiles: {columns: 3, rows: 1, whole: false}", c="max_fps: 1"))
    heard: list[Mapping[str, int]] = []
    views.add_listener(heard.append)
    views.configure(_config(a="roi: [[0, 0], [1, 0], [1, 1]]", c="tiles: 1x2"))
    assert heard == [{"a": 5, "b": 3}, {"c": 3}]
    assert set(views.active) == {"a", "c"}


def test_input_sizes_beside_the_models_own() -> None:
    """Listeners have them at once, and after each change, which may come with another model."""
    sized = _config(a="input_size: 640", b="input_size: [1280, 736]", c="max_fps: 1")
    views = SourceViews(sized, (640, 640))
    heard: list[Mapping[str, Size]] = []
    views.add_size_listener(heard.append)
    views.configure(sized, (1280, 736))
    views.configure(_config(c="max_fps: 1"), (640, 640))
    assert heard == [{"b": (1280, 736)}, {"a": (640, 640)}, {}]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=3),
    st.integers(1, 4000),
    st.integers(1, 3000),
)
def test_the_hull_of_a_polygon_is_in_the_picture(points: list[tuple[float, float]], width: int, height: int) -> None:
    source = SyntheticConfig(id="a", roi=points)
    view = view_of(source)
    assert view is not None
    (hull,) = placed(view, width, height).regions
    assert 0 <= hull.left < width
    assert 0 <= hull.top < height
    assert 1 <= hull.width <= width - hull.left
    assert 1 <= hull.height <= height - hull.top
    for x, y in points:
        assert hull.left <= x * width <= hull.left + hull.width
        assert hull.top <= y * height <= hull.top + hull.height


def test_pixels_are_of_a_picture_whose_size_is_named() -> None:
    config = _config(a="roi: {points: [[320, 0], [640, 0], [640, 360], [320, 360]], frame_size: [640, 360]}")
    view = view_of(config.sources[0])
    assert view is not None
    assert placed(view, 1280, 720).regions == (Region(640, 0, 640, 720),)


@pytest.mark.parametrize(
    ("anchor", "kept"),
    [("center", 0), ("top", 1), ("bottom", 0)],
)
def test_boxes_with_their_anchor_outside_are_left_out(anchor: str, kept: int) -> None:
    """The one box is in the middle of the hull, whose centre is outside of this polygon."""
    polygon = [[0, 0], [1, 0], [1, 0.4], [0.4, 0.4], [0.4, 1], [0, 1]]
    views = SourceViews(_config(a=f"roi: {{points: {polygon}, anchor: {anchor}}}", b="max_fps: 5"))
    with closing(FakeDetector(Options(Path("none")))) as detector:
        found, _ = views.detect(detector.lane(), [_frame("a"), _frame("b")], detector.info)
        assert [len(one) for one in found] == [kept, 1]
        classifier = replace(detector.info, head="classify")
        found, _ = views.detect(detector.lane(), [_frame("a"), _frame("b")], classifier)
        assert [len(one) for one in found] == [1, 1]


def test_the_model_sees_the_hull_alone() -> None:
    """A picture whose right half is bright; the region is there."""
    frame = _frame("a")
    frame.image.bgr[:, 32:] = 255  # type: ignore[union-attr]
    views = SourceViews(_config(a="roi: [[0.5, 0], [1, 0], [1, 1], [0.5, 1]]"))
    with closing(FakeDetector(Options(Path("none")))) as detector:
        (found,), _ = views.detect(detector.lane(), [frame], detector.info)
    assert found.class_id.tolist() == [1]
    np.testing.assert_array_equal(found.xyxy, [[40, 9, 56, 27]])


def test_a_frame_with_more_views_than_a_batch_has_room() -> None:
    batches: list[float] = []
    views = SourceViews(_config(a="tiles: 3x3", b="tiles: 2x1"))
    with closing(FakeDetector(Options(Path("none"), max_batch=4), 0.25, batches.append)) as detector:
        found, times = views.detect(detector.lane(), [_frame("a"), _frame("b", 255)], detector.info)
    assert len(batches) == 4  # 13 pictures
    assert times.infer == 1_000_000_000
    assert [set(one.class_id.tolist()) for one in found] == [{0}, {1}]


def test_results_that_cannot_be_merged_are_refused() -> None:
    with closing(FakeDetector(Options(Path("none")))) as detector:
        info = detector.info
    tiled, whole = _config(a="tiles: 2x2"), _config(a="roi: [[0, 0], [1, 0], [1, 1]]")
    for head in ("yolov8", "yolov8-pose", "end2end-obb", "rfdetr"):
        check_views(tiled, replace(info, head=head))
    for head in ("classify", "yolov8-segment"):
        check_views(whole, replace(info, head=head))
        with pytest.raises(ConfigError, match="sources, id a, tiles: the model fake gives"):
            check_views(tiled, replace(info, head=head))


def test_views_are_drawn() -> None:
    """Dark where the model sees nothing, lines at the tiles, on a copy."""
    pixels = np.full((360, 640, 3), 200, np.uint8)
    config = _config(a=f"tiles: 2x2, roi: {_L_SHAPE}", b="max_fps: 5")
    drawn = with_view(pixels, config.sources[0])
    assert drawn[300, 600].tolist() == [80, 80, 80]
    assert drawn[100, 100].tolist() == [200, 200, 200]
    assert (drawn == 255).all(axis=2).sum() > 1000
    assert (pixels == 200).all()
    assert with_view(pixels, config.sources[1]) is pixels


def test_pictures_of_the_views_are_regions_without_a_copy() -> None:
    whole = HostImage(picture(0))
    part = whole.cropped(Region(3, 5, 20, 10))
    assert np.shares_memory(part.bgr, whole.bgr)
    assert (part.width, part.height) == (20, 10)
    assert cv2.mean(part.bgr) == cv2.mean(whole.bgr[5:15, 3:23])
