"""What every stage promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from daemon.analytics.rules import RuleBook, RulesStage
from daemon.analytics.source_rules import RuleSet
from daemon.analytics.track_stage import Tracker, TrackerStage
from daemon.config.load import parse
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.stages import BoxFilter, FilterStage, Stage
from detectors.detections import Detections, Masks, no_tracks, nothing
from lookout.messages import FrameClock
from tests.analytics.feed import LABELS, rules_of

_SOURCES = ("street", "yard", "hall")


def _filters() -> Stage:
    """Of two sources; the third wants all."""
    cars = np.array([False, True, True])
    return FilterStage({"street": BoxFilter(0.5, cars, 3), "yard": BoxFilter(None, None, 1)})


def _tracker() -> Stage:
    """Of two sources; the third is not tracked."""
    rows = "".join(f"  - {{id: {source}, type: synthetic, tracking: {source != 'hall'}}}\n" for source in _SOURCES)
    return TrackerStage(Tracker(parse(f"model: {{path: x}}\nsources:\n{rows}"), Ledger()), ("person", "car", "bus"))


def _tracker_of_model() -> Stage:
    """Of one of two models: it tracks one source, and another one's boxes are the other model's to track."""
    looks = "model: [a, b], tracking: {model: %s}"
    rows = (
        f"  - {{id: street, type: synthetic, {looks % 'b'}}}\n"
        f"  - {{id: yard, type: synthetic, {looks % 'a'}}}\n"
        "  - {id: hall, type: synthetic, model: b}\n"
    )
    config = parse(f"models: {{a: {{path: x}}, b: {{path: y}}}}\nsources:\n{rows}")
    return TrackerStage(Tracker(config, Ledger()), ("person", "car", "bus"), "b")


STAGES: dict[str, Callable[[], Stage]] = {
    "filter": _filters,
    "tracker": _tracker,
    "tracker of a model": _tracker_of_model,
}


def test_a_model_tracks_its_own_sources_alone() -> None:
    frames = [_frame(source, 0) for source in _SOURCES]
    boxes = _batch(len(frames), 0)[1]
    found = _tracker_of_model()(frames, boxes)
    assert [one.tracks is not None for one in found] == [True, False, False]


def _rules() -> Stage:
    """Of one source, whose boxes have no tracks."""
    book = RuleBook(lambda _event: None)
    book.update({"street": RuleSet(rules_of({"type": "object", "name": "all"}), 1_000_000_000, 3)})
    return RulesStage(book, LABELS)


STAGES["rules"] = _rules


@pytest.fixture(params=list(STAGES))
def make(request: pytest.FixtureRequest) -> Callable[[], Stage]:
    return STAGES[request.param]


def _frame(source: str, seq: int) -> FrameInfo:
    at_ns = seq * 100_000_000
    return FrameInfo(source, "session", seq, at_ns, at_ns, at_ns, FrameClock("arrival"), 0, 640, 360)


def _batch(size: int, seed: int) -> tuple[list[FrameInfo], list[Detections]]:
    """Frames of all sources, with up to eight boxes each, the strongest first."""
    random = np.random.default_rng(seed)
    frames, found = [], []
    for number in range(size):
        corners = random.uniform(0, 300, (random.integers(8), 2)).astype(np.float32)
        confidence = -np.sort(-random.uniform(0.1, 1, len(corners)).astype(np.float32))
        xyxy = np.concatenate((corners, corners + 20), axis=1)
        found.append(Detections(xyxy, confidence, random.integers(0, 3, len(corners)).astype(np.int32)))
        frames.append(_frame(_SOURCES[number % 3], number // 3))
    return frames, found


def _rows(found: Sequence[Detections]) -> list[list[list[float]]]:
    return [np.column_stack((one.xyxy, one.confidence, one.class_id)).tolist() for one in found]


def test_each_frame_has_one_result_in_its_place(make: Callable[[], Stage]) -> None:
    frames, found = _batch(9, 1)
    results = make()(frames, found)
    assert len(results) == len(frames)
    for before, after in zip(_rows(found), _rows(results)):
        assert [row for row in before if row in after] == after  # in the same order, nothing new


def test_an_empty_batch_and_pictures_of_nothing_are_fine(make: Callable[[], Stage]) -> None:
    stage = make()
    assert list(stage([], [])) == []
    assert [len(one) for one in stage([_frame("street", 0)], [nothing()])] == [0]


def test_the_detector_s_own_results_are_not_changed(make: Callable[[], Stage]) -> None:
    frames, found = _batch(9, 2)
    before = _rows(found)
    make()(frames, found)
    assert _rows(found) == before


def test_batches_may_be_cut_anywhere(make: Callable[[], Stage]) -> None:
    frames, found = _batch(12, 3)
    whole, cut = make(), make()
    parts = [cut(frames[begin : begin + 5], found[begin : begin + 5]) for begin in (0, 5, 10)]
    assert _rows(whole(frames, found)) == _rows([one for part in parts for one in part])


def test_a_source_does_not_see_the_others(make: Callable[[], Stage]) -> None:
    frames, found = _batch(12, 4)
    together = make()(frames, found)
    for source in _SOURCES:
        own = [number for number, frame in enumerate(frames) if frame.source == source]
        alone = make()([frames[number] for number in own], [found[number] for number in own])
        assert _rows(alone) == _rows([together[number] for number in own])


def test_every_box_keeps_its_columns(make: Callable[[], Stage]) -> None:
    """Key points, angle and mask stay with the box that they were found for."""
    frames, plain = _batch(9, 5)
    found = []
    for one in plain:
        corners = one.xyxy[:, :2]
        points = np.column_stack((corners, one.confidence)).reshape(-1, 1, 3)
        obb = np.column_stack((one.xyxy, one.confidence)).astype(np.float32)
        bits = one.confidence.view(np.uint8).reshape(-1, 1, 4)
        masks = Masks(bits, 32, (1.0, 2.0), (3.0, 4.0))
        found.append(replace(one, keypoints=points.astype(np.float32), obb=obb, masks=masks))
    results = make()(frames, found)
    assert sum(map(len, results)) > 0
    for one in results:
        assert one.keypoints is not None
        assert one.obb is not None
        assert one.masks is not None
        assert np.array_equal(one.keypoints[:, 0], np.column_stack((one.xyxy[:, :2], one.confidence)))
        assert np.array_equal(one.obb, np.column_stack((one.xyxy, one.confidence)))
        assert np.array_equal(one.masks.bits[:, 0], one.confidence.view(np.uint8).reshape(-1, 4))
        assert (one.masks.width, one.masks.origin, one.masks.scale) == (32, (1.0, 2.0), (3.0, 4.0))


def test_the_last_frame_of_a_source_that_is_removed_is_filtered() -> None:
    """A thousand others may have gone since."""
    stage = FilterStage({"street": BoxFilter(2.0, None, 100)})
    for number in range(1000):
        stage.update({f"other-{number}": BoxFilter(None, None, 100)})
        stage.forget(f"other-{number}")
        if number == 0:
            stage.forget("street")
    frames, found = _batch(1, 7)
    assert frames[0].source == "street"
    assert [len(one) for one in stage(frames, found)] == [0]
    stage.update({"street": BoxFilter(None, None, 100)})  # it comes back, and wants all
    assert _rows(stage(frames, found)) == _rows(found)


def test_the_filter_keeps_weak_boxes_of_confirmed_tracks_if_their_label_is_wanted() -> None:
    found = Detections(
        np.array([[0, 0, 9, 9]] * 4, np.float32),
        np.array([0.9, 0.2, 0.2, 0.15], np.float32),
        np.array([1, 1, 0, 1], np.int32),
    )
    tracks = replace(no_tracks(found), id=np.array([1, 2, 3, 0]))
    kept = BoxFilter(0.5, np.array([False, True]), 100)(replace(found, tracks=tracks))
    assert kept.confidence.tolist() == pytest.approx([0.9, 0.2])
    assert kept.tracks is not None
    assert kept.tracks.id.tolist() == [1, 2]
    assert len(BoxFilter(0.5, None, 100)(found)) == 1


def test_pictures_with_other_columns_are_filtered_as_each_alone() -> None:
    """With boxes alone, with tracks, with key points: in one batch, and with nothing left of one."""
    frames, plain = _batch(12, 8)
    found = list(plain)
    for place in (1, 4, 7):
        found[place] = plain[place].with_tracks(replace(no_tracks(plain[place]), id=np.arange(len(plain[place])) % 3))
    found[5] = replace(plain[5], keypoints=np.ones((len(plain[5]), 2, 3), np.float32))
    filters = {"street": BoxFilter(0.6, None, 3), "yard": BoxFilter(0.99, None, 5)}
    together = FilterStage(filters)(frames, found)
    alone = [FilterStage(filters)([frame], [one])[0] for frame, one in zip(frames, found)]
    assert _rows(together) == _rows(alone)
    assert [one.keypoints is None for one in together] == [one.keypoints is None for one in found]
    for one, own in zip(together, alone):
        assert (one.tracks is None) == (own.tracks is None)
        assert one.tracks is None or own.tracks is None or one.tracks.id.tolist() == own.tracks.id.tolist()
