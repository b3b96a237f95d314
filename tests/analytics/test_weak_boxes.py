"""The tracker removes weak boxes without a confirmed track itself: the filter would remove the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from daemon.analytics import compiled_step, numpy_step
from daemon.analytics.grouping import Grouping
from daemon.analytics.source_tracks import SourceTracks
from daemon.analytics.track_step import Step
from daemon.analytics.tracker import track
from daemon.pipeline.stages import BoxFilter
from detectors.detections import Detections, Masks
from tests.analytics.walks import SETTINGS, Seen, walk

_GROUPING = Grouping(("person", "car", "truck"), [("car", "truck")])
_OF_EACH_SOURCE = [replace(SETTINGS, threshold=threshold) for threshold in (0.25, 0.4, 0.25, 2.0)]
_STEPS = [numpy_step.step, compiled_step.step]


def _posed(found: Detections) -> Detections:
    """With all that a box can have."""
    count = len(found)
    return msgspec.structs.replace(
        found,
        left_out=3,
        keypoints=np.repeat(found.confidence, 6).reshape(count, 2, 3),
        obb=np.repeat(found.confidence, 5).reshape(count, 5),
        masks=Masks(found.confidence.view(np.uint8).reshape(count, 2, 2), 16, (1.0, 2.0), (3.0, 4.0)),
        attributes=np.array([{"of": one} for one in found.confidence.tolist()], object),
    )


def _batches() -> list[list[Seen]]:
    walks = [walk(number, objects=12, seconds=1, source=f"cam-{number}", classes=3) for number in range(4)]
    batches = [[*batch] for batch in zip(*walks)]
    for number, batch in enumerate(batches):
        batch[2] = replace(batch[2], found=_posed(batch[2].found))
        batch[number % 4] = replace(batch[number % 4], found=batch[number % 4].found[:0])
    return batches


def _run(step: Step, *, weak_stay: bool) -> list[Detections]:
    owns = [replace(own, threshold=0.0) if weak_stay else own for own in _OF_EACH_SOURCE]
    states = [SourceTracks() for _ in owns]
    result = []
    for batch in _batches():
        frames, found = [seen.frame for seen in batch], [seen.found for seen in batch]
        result += track(step, frames, found, states, owns, _GROUPING)[0]
    return result


def _columns(one: Detections) -> list[npt.NDArray[np.generic] | None]:
    assert one.tracks is not None
    own = [one.xyxy, one.confidence, one.class_id, one.keypoints, one.obb, one.masks and one.masks.bits, one.attributes]
    return [*own, *(getattr(one.tracks, name) for name in ("id", "class_id", "xyxy", "velocity", "age"))]


def _assert_equal(some: Sequence[Detections], others: Sequence[Detections]) -> None:
    assert len(some) == len(others)
    for one, other in zip(some, others):
        assert (one.left_out, one.checked) == (other.left_out, other.checked)
        for own, expected in zip(_columns(one), _columns(other)):
            assert (own is None) == (expected is None)
            if own is not None and expected is not None:
                assert (own.dtype, own.shape, own.tolist()) == (expected.dtype, expected.shape, expected.tolist())


@pytest.mark.parametrize("step", _STEPS)
def test_the_filter_would_remove_the_same(step: Step) -> None:
    all_boxes, strong = _run(step, weak_stay=True), _run(step, weak_stay=False)
    filters = [BoxFilter(own.threshold, None, 1000) for own in _OF_EACH_SOURCE] * (len(strong) // 4)
    _assert_equal(strong, [own(one) for own, one in zip(filters, all_boxes)])
    assert sum(map(len, strong)) < sum(map(len, all_boxes))
    assert [own.has_weak(one) for own, one in zip(filters, strong)] == [False] * len(strong)


@pytest.mark.parametrize("confidence", [0.1, 0.6])
def test_a_filter_with_another_threshold_is_right(confidence: float) -> None:
    """A reload changes the tracker and the filters one after the other, while lanes work."""
    own = BoxFilter(confidence, np.array([True, False, True]), 5)
    stricter = [BoxFilter(max(confidence, one.threshold), own.classes, 5) for one in _OF_EACH_SOURCE]
    all_boxes, strong = _run(numpy_step.step, weak_stay=True), _run(numpy_step.step, weak_stay=False)
    expected = [one(boxes) for one, boxes in zip(stricter * (len(strong) // 4), all_boxes)]
    _assert_equal([own(one) for one in strong], expected)
