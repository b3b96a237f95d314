"""The tracker: ids, time, labels and limits. Traps that other trackers fall into are tests by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from daemon.analytics import motion
from daemon.analytics.association import Rows, iou, mutual_best, overlapping, shape_iou
from daemon.analytics.track_stage import Tracker, TrackerStage, settings_of
from daemon.analytics.tracker import TrackSettings
from daemon.config.load import parse
from daemon.config.root import Config
from daemon.pipeline.ledger import Ledger
from detectors.detections import Detections, Tracks, nothing
from tests.analytics.walks import Seen, boxes, frame_of, switches, walk
from tests.support.events import logged

_LABELS = ("person", "car", "truck")


def config_of(tracking: str = "{enabled: true}", sources: Sequence[str] = ("street",), **keys: str) -> Config:
    rows = "".join(f"  - {{id: {source}, type: synthetic}}\n" for source in sources)
    extra = "".join(f"{key}: {value}\n" for key, value in keys.items())
    return parse(f"model: {{path: x}}\nsources:\n{rows}tracking: {tracking}\n{extra}")


def stage_of(tracking: str = "{enabled: true}", sources: Sequence[str] = ("street",)) -> TrackerStage:
    return TrackerStage(Tracker(config_of(tracking, sources), Ledger()), _LABELS)


def run(stage: TrackerStage, frames: Sequence[Seen]) -> list[Detections]:
    """One frame a batch."""
    return [one for seen in frames for one in stage([seen.frame], [seen.found])]


def ids(result: Detections) -> list[int]:
    assert result.tracks is not None
    found: list[int] = result.tracks.id.tolist()
    return found


class Steps:
    """A source whose frames come one by one, at 10 a second."""

    def __init__(self, tracking: str = "{enabled: true}") -> None:
        self.stage = stage_of(tracking)
        self.number, self.ns = 0, 0

    def see(self, found: Detections, *, after_ns: int = 100_000_000, session: str = "one", kind: str = "arrival",
            pts: bool = True, offset: int = 0) -> Tracks:  # fmt: skip
        """The tracks of the next frame's boxes; `offset` is added to its pts alone."""
        self.ns += after_ns
        self.number += 1
        frame = frame_of(self.number, self.ns, session=session, kind=kind, pts=pts)
        if offset:
            values = {name: getattr(frame, name) for name in frame.__struct_fields__}
            frame = type(frame)(**{**values, "pts": self.ns + offset})
        (result,) = self.stage([frame], [found])
        assert result.tracks is not None
        return result.tracks


_BOX = (100.0, 100.0, 200.0, 300.0)
_FAR = (1000.0, 500.0, 1100.0, 700.0)


def moved(box: tuple[float, float, float, float], x: float, y: float = 0.0) -> tuple[float, float, float, float]:
    return box[0] + x, box[1] + y, box[2] + x, box[3] + y


def test_a_track_gets_its_id_after_three_boxes() -> None:
    steps = Steps()
    assert [steps.see(boxes(_BOX)).id.tolist() for _ in range(5)] == [[0], [0], [1], [1], [1]]


def test_unconfirmed_ids_are_no_ids() -> None:
    """Two objects without ids are not one object with the id -1 or 0, and a flicker never gets an id."""
    steps = Steps()
    first = steps.see(boxes(_BOX, _FAR))
    assert first.id.tolist() == [0, 0]
    steps.see(boxes(_BOX))
    assert steps.see(boxes(_BOX, _FAR)).id.tolist() == [1, 0]
    assert steps.see(boxes(_BOX)).id.tolist() == [1]
    assert steps.see(boxes(_BOX, _FAR)).id.tolist() == [1, 0]


def test_ids_count_from_one_for_each_source() -> None:
    stage = stage_of(sources=("a", "b"))
    for number in range(3):
        frames = [frame_of(number, number * 10**8, source=source) for source in ("a", "b")]
        first, second = stage(frames, [boxes(_BOX, _FAR), boxes(_BOX)])
    assert (ids(first), ids(second)) == ([1, 2], [1])


def test_results_are_in_the_order_of_the_boxes() -> None:
    steps = Steps("{enabled: true, confirm_hits: 1}")
    assert steps.see(boxes(_BOX, _FAR)).id.tolist() == [1, 2]
    assert steps.see(boxes(_FAR, _BOX)).id.tolist() == [2, 1]


def test_velocity_is_in_pixels_a_second() -> None:
    steps = Steps()
    for number in range(30):
        tracks = steps.see(boxes(moved(_BOX, number * 20.0, number * -2.0)))
    assert tracks.velocity[0].tolist() == pytest.approx([200.0, -20.0], abs=2)
    assert tracks.age.tolist() == [29 * 100_000_000]
    assert tracks.xyxy[0].tolist() == pytest.approx(list(moved(_BOX, 580, -58)), abs=3)


def test_a_weak_box_keeps_a_track_and_does_not_begin_one() -> None:
    steps = Steps()
    for _ in range(3):
        steps.see(boxes(_BOX))
    weak = boxes(_BOX, _FAR, confidence=0.12)
    assert [steps.see(weak).id.tolist() for _ in range(5)] == [[1]] * 5  # the other is removed
    assert steps.see(boxes(_BOX, _FAR)).id.tolist() == [1, 0]
    assert steps.see(boxes(_BOX, confidence=0.05)).id.tolist() == []  # below the floor


def test_a_lost_track_does_not_come_back_by_a_weak_box() -> None:
    steps = Steps()
    for _ in range(3):
        steps.see(boxes(_BOX))
    for _ in range(3):
        steps.see(nothing())
    assert steps.see(boxes(_BOX, confidence=0.12)).id.tolist() == []
    assert steps.see(boxes(_BOX)).id.tolist() == [1]


@pytest.mark.parametrize(("gap_ns", "id"), [(2_900_000_000, 1), (3_100_000_000, 2)])
@pytest.mark.parametrize("frames", [1, 9])
def test_seconds_instead_of_frames(gap_ns: int, id: int, frames: int) -> None:
    """A lost track is forgotten by time, however many frames were analysed meanwhile."""
    steps = Steps()
    for _ in range(3):
        steps.see(boxes(_BOX))
    for _ in range(frames - 1):
        steps.see(nothing(), after_ns=gap_ns // frames)
    steps.see(boxes(_BOX), after_ns=gap_ns // frames)
    for _ in range(2):
        tracks = steps.see(boxes(_BOX))
    assert tracks.id.tolist() == [id]


@pytest.mark.parametrize("step_ns", [20_000_000, 100_000_000, 200_000_000])
def test_the_same_objects_at_any_rate(step_ns: int) -> None:
    steps = Steps()
    for number in range(3_000_000_000 // step_ns):
        tracks = steps.see(boxes(moved(_BOX, number * 200.0 * step_ns / 1e9)), after_ns=step_ns)
    assert tracks.id.tolist() == [1]
    assert tracks.velocity[0, 0] == pytest.approx(200, abs=3)


def test_an_id_is_not_lost_where_paths_cross() -> None:
    steps = Steps()
    for number in range(60):
        left, right = moved(_BOX, number * 15.0), moved(_BOX, 900 - number * 15.0, 60)
        tracks = steps.see(boxes(left, right), after_ns=33_333_333)
    assert tracks.id.tolist() == [1, 2]


def test_an_object_behind_another_keeps_its_id() -> None:
    """For 0.6 s its box is missing."""
    steps = Steps()
    for number in range(60):
        hidden = 30 <= number < 48
        walker, pillar = moved(_BOX, number * 6.0), moved(_BOX, 220.0)
        tracks = steps.see(boxes(pillar, *([] if hidden else [walker])), after_ns=33_333_333)
    assert tracks.id.tolist() == [1, 2]


def test_class_flips_do_not_split_a_track() -> None:
    """Car and truck are one object; its label is the one with most confidence so far."""
    steps = Steps("{enabled: true, groups: [[car, truck]]}")
    for number in range(12):
        truck = number % 4 == 3
        tracks = steps.see(boxes(_BOX, class_id=2 if truck else 1, confidence=0.6 if truck else 0.8))
        assert tracks.id.tolist() == [1 if number >= 2 else 0]
    assert tracks.class_id.tolist() == [1]


def test_a_person_never_becomes_a_car() -> None:
    steps = Steps("{enabled: true, groups: [[car, truck]]}")
    for _ in range(3):
        steps.see(boxes(_BOX, class_id=0))
    assert steps.see(boxes(_BOX, class_id=1)).id.tolist() == [0]


def test_two_labels_at_one_place_are_one_object() -> None:
    """NMS is class-wise: it leaves a car and a truck where one vehicle is."""
    steps = Steps("{enabled: true, groups: [[car, truck]]}")
    both = Detections(np.array([_BOX, _BOX], np.float32), np.array([0.8, 0.6], np.float32), np.array([1, 2], np.int32))
    assert [sorted(steps.see(both).id.tolist()) for _ in range(6)][-1] == [0, 1]


@pytest.mark.parametrize(("gap_ns", "id"), [(2_900_000_000, 1), (3_100_000_000, 0)])
def test_time_is_captured_ns_without_pts(gap_ns: int, id: int) -> None:
    steps = Steps()
    for _ in range(3):
        steps.see(boxes(_BOX), pts=False)
    assert steps.see(boxes(_BOX), pts=False, after_ns=gap_ns).id.tolist() == [id]


@pytest.mark.parametrize("offset", [-10_000_000_000, 10_000_000_000])
def test_tracks_end_where_pts_jumps(offset: int) -> None:
    steps = Steps()
    for _ in range(3):
        steps.see(boxes(_BOX))
    after = [steps.see(boxes(_BOX), offset=offset) for _ in range(3)]
    assert [tracks.id.tolist() for tracks in after] == [[0], [0], [2]]  # an id is never used again
    assert after[-1].age.tolist() == [200_000_000]


@pytest.mark.parametrize(("gap_ns", "id"), [(500_000_000, 1), (4_000_000_000, 0)])
def test_tracks_survive_a_short_reconnect(gap_ns: int, id: int) -> None:
    """The new connection has a timeline of its own."""
    steps = Steps()
    for _ in range(3):
        steps.see(boxes(_BOX))
    tracks = steps.see(boxes(_BOX), session="two", after_ns=gap_ns, offset=-7_000_000_000)
    assert tracks.id.tolist() == [id]
    if id:
        assert tracks.age.tolist() == [200_000_000 + gap_ns]


def test_a_recording_that_begins_again_has_new_tracks() -> None:
    steps = Steps()
    for _ in range(3):
        steps.see(boxes(_BOX), kind="file")
    again = steps.see(boxes(_BOX), kind="file", session="two", offset=-300_000_000)
    assert again.id.tolist() == [0]


def test_tracks_survive_another_model() -> None:
    """Its labels have other numbers, and one is missing."""
    own = Tracker(config_of("{enabled: true, groups: [[car, truck]]}"), Ledger())
    old, new = TrackerStage(own, _LABELS), TrackerStage(own, ("dog", "truck", "car"))
    found = Detections(np.array([_BOX, _FAR], np.float32), np.full(2, 0.9, np.float32), np.array([1, 0], np.int32))
    for number in range(3):
        (result,) = old([frame_of(number, number * 10**8)], [found])
    assert ids(result) == [1, 2]
    (result,) = new([frame_of(3, 3 * 10**8)], [boxes(_BOX, _FAR, class_id=2)])
    assert ids(result) == [1, 0]
    assert result.tracks is not None
    assert result.tracks.class_id.tolist() == [2, 2]


def test_settings_change_without_losing_tracks() -> None:
    own = Tracker(config_of(), Ledger())
    stage = TrackerStage(own, _LABELS)
    for number in range(3):
        stage([frame_of(number, number * 10**8)], [boxes(_BOX)])
    own.configure(config_of("{enabled: true, timeout_s: 9, groups: [[person, car]]}"))
    (result,) = stage([frame_of(9, 8 * 10**9)], [boxes(_BOX, class_id=1)])
    assert ids(result) == [1]


def test_a_source_that_is_not_tracked_costs_nothing() -> None:
    own = Tracker(config_of("{}"), Ledger())
    found = [boxes(_BOX)]
    assert TrackerStage(own, _LABELS)([frame_of(0, 0)], found) is found
    own.prepare(config_of(sources=("other",)))
    own.configure(config_of(sources=("other",)))
    (result,) = TrackerStage(own, _LABELS)([frame_of(1, 0)], found)
    assert result is found[0]


def test_ids_of_a_removed_source_are_not_used_again() -> None:
    own = Tracker(config_of(sources=("street", "yard")), Ledger())
    stage = TrackerStage(own, _LABELS)
    for number in range(3):
        stage([frame_of(number, number * 10**8)], [boxes(_BOX)])
    own.configure(config_of(sources=("yard",)))
    own.configure(config_of(sources=("street", "yard")))
    results = [stage([frame_of(number, number * 10**8)], [boxes(_BOX)]) for number in range(3, 6)]
    assert [ids(one) for (one,) in results] == [[0], [0], [2]]


def test_a_source_has_a_thousand_tracks_and_counts_the_rest() -> None:
    ledger = Ledger()
    own = Tracker(config_of("{enabled: true, confirm_hits: 1}"), ledger)
    rows = [(20.0 * (n % 96), 20.0 * (n // 96), 20.0 * (n % 96) + 10, 20.0 * (n // 96) + 10) for n in range(1100)]
    (result,) = TrackerStage(own, _LABELS)([frame_of(0, 0)], [boxes(*rows)])
    assert ids(result) == [*range(1, 1001), *[0] * 100]
    assert ledger.untracked == 100


def test_odd_boxes_do_no_harm() -> None:
    """Without an area, outside the picture, larger than it."""
    steps = Steps()
    odd = boxes((5, 5, 5, 5), (-500, -500, -400, -400), (-1e6, -1e6, 1e6, 1e6), (0, 0, 1e-3, 1e-3))
    for _ in range(5):
        tracks = steps.see(odd)
    assert np.isfinite(tracks.xyxy).all()
    assert tracks.id.tolist()[2] > 0


def test_a_source_whose_frames_are_too_far_apart_is_named_once() -> None:
    """And again when they are enough. A gap, the first frames and frames that tremble are no reason."""
    noted: list[tuple[str, bool]] = []
    own = Tracker(config_of(), Ledger(), lambda source, note: noted.append((source, note is not None)))
    stage, number, ns = TrackerStage(own, _LABELS), 0, 0

    def see(*steps_s: float) -> None:
        nonlocal number, ns
        for step_s in steps_s:
            number, ns = number + 1, ns + round(step_s * 1e9)
            stage([frame_of(number, ns)], [boxes(_BOX)])

    with logged() as lines:
        see(2, 2, *[0.04] * 30, 5, *[0.04] * 30, *[0.2, 0.32] * 20)
        assert (noted, lines) == ([], [])
        see(*[1.001] * 20, 0.9, 1.1, *[1.0] * 20)
        assert noted == [("street", True)]
        see(*[0.04] * 30)
        assert noted == [("street", True), ("street", False)]
    assert [(line["log_level"], line["source"]) for line in lines] == [("warning", "street"), ("info", "street")]
    assert "0.999 frames/s are analysed, too few to track well" in lines[0]["event"]


# --- quality ------------------------------------------------------------------------------------------------------


def _every(frames: Sequence[Seen]) -> list[Seen]:
    return list(frames)


def _bursts(frames: Sequence[Seen]) -> list[Seen]:
    return [seen for seen in frames if seen.frame.seq % 60 < 48]


def _fifth(frames: Sequence[Seen]) -> list[Seen]:
    return [seen for seen in frames if seen.frame.seq % 5 == 0]


@pytest.mark.parametrize(("lost", "limit"), [(_every, 1), (_bursts, 3), (_fifth, 3)])
def test_bursts_of_lost_frames_do_not_change_ids(lost: Callable[[Sequence[Seen]], list[Seen]], limit: int) -> None:
    """20 objects for 30 s, of which bursts take 12 of each 60 frames: the mean of four scenes."""
    scenes = [lost(walk(seed)) for seed in range(4)]
    assert sum(switches(frames, run(stage_of(), frames)) for frames in scenes) / len(scenes) <= limit


# --- parts --------------------------------------------------------------------------------------------------------


def _full_filter(box: np.ndarray, boxes_: Sequence[np.ndarray], seconds: float) -> np.ndarray:
    """The textbook filter with matrices, and the same noise; only for objects that keep their size."""
    size = np.tile(box[2:], 2) ** 2
    state = np.concatenate((box, np.zeros(4)))
    cov = np.diag(np.concatenate((0.01 * size, (10 * 30 / 160) ** 2 * size)))
    f, h = np.eye(8), np.eye(4, 8)
    f[:4, 4:] = seconds * np.eye(4)
    for measured in boxes_:
        size = np.tile(state[2:4], 2) ** 2
        noise = motion.VELOCITY_NOISE * size
        q = np.zeros((8, 8))
        q[:4, :4] = np.diag(0.002 * size * seconds + noise * seconds**3 / 3)
        q[:4, 4:] = q[4:, :4] = np.diag(noise * seconds**2 / 2)
        q[4:, 4:] = np.diag(noise * seconds)
        state, cov = f @ state, f @ cov @ f.T + q
        size = np.tile(state[2:4], 2) ** 2
        gain = cov @ h.T @ np.linalg.inv(h @ cov @ h.T + np.diag(size / 400))
        state = state + gain @ (measured - h @ state)
        cov = (np.eye(8) - gain @ h) @ cov
    return state


def test_four_small_filters_are_the_large_one() -> None:
    random = np.random.default_rng(0)
    first = np.array([100.0, 200.0, 40.0, 80.0])
    path = [first + random.normal(0, 2, 4) + 3.0 * number for number in range(20)]
    tracks = motion.begin(first[:, None])
    for box in path:
        motion.predict(tracks, np.array([0.04]), np.array([False]))
        tracks = motion.correct(tracks, box[:, None])
    assert tracks[:8, 0] == pytest.approx(_full_filter(first, path, 0.04))


def test_two_short_steps_are_one_long_one() -> None:
    boxes_ = np.array([[100.0, 200.0, 40.0, 80.0]]).T
    one, two = motion.begin(boxes_), motion.begin(boxes_)
    no = np.array([False])
    motion.predict(one, np.array([0.2]), no)
    for _ in range(2):
        motion.predict(two, np.array([0.1]), no)
    assert two == pytest.approx(one)


def test_overlapping_pairs_are_all_pairs_that_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the padded arrays may be."""
    random = np.random.default_rng(1)
    counts, others = np.array([3, 0, 40, 7, 1]), np.array([5, 4, 30, 0, 1])

    def rows(sizes: np.ndarray) -> Rows:
        corner = random.uniform(0, 200, (2, sizes.sum()))
        return Rows(np.concatenate((corner, corner + random.uniform(1, 60, corner.shape))), sizes)

    one, other = rows(counts), rows(others)
    source = [np.repeat(np.arange(5), sizes) for sizes in (counts, others)]
    expected = {
        (a, b)
        for a in range(counts.sum())
        for b in range(others.sum())
        if source[0][a] == source[1][b] and iou(one.corners[:, [a]], other.corners[:, [b]])[0] > 0
    }
    for cells in (1 << 16, 100):
        monkeypatch.setattr("daemon.analytics.association._MAX_CELLS", cells)
        found = list(zip(*(column.tolist() for column in overlapping(one, other))))
        assert len(found) == len(expected)
        assert set(found) == expected


def test_the_shapes_of_boxes_are_compared_without_their_places() -> None:
    random = np.random.default_rng(3)
    ones, others = random.uniform(1, 60, (2, 2, 30))
    expected = iou(np.concatenate((-ones, ones)), np.concatenate((-others, others)))
    assert shape_iou(2 * ones, 2 * others) == pytest.approx(expected)
    assert shape_iou(ones, ones).tolist() == [1.0] * 30


def test_objects_that_cross_in_a_gap_are_told_apart_by_their_shapes() -> None:
    """Each one then overlaps the other's track most."""
    steps = Steps()
    for _ in range(10):
        before = steps.see(boxes((70, 100, 130, 220), (85, 115, 175, 205)))
    after = steps.see(boxes((100, 100, 160, 220), (55, 115, 145, 205)), after_ns=400_000_000)
    assert before.id.tolist() == after.id.tolist() == [1, 2]


def test_rounds_give_what_going_through_the_pairs_gives() -> None:
    random = np.random.default_rng(2)
    for _ in range(50):
        pairs = random.integers(0, 12, (60, 2))
        tracks, found = dict[int, int](), set[int]()
        for one, box in pairs.tolist():
            if one not in tracks and box not in found:
                tracks[one] = box
                found.add(box)
        result = mutual_best(pairs[:, 0], pairs[:, 1], 12, 12)
        assert {one: box for one, box in enumerate(result.tolist()) if box >= 0} == tracks


def test_the_settings_of_a_source_come_before_those_of_all() -> None:
    text = "model: {path: x, confidence: 0.3}\ntracking: {enabled: true, timeout_s: 2}\nsources:\n"
    text += "  - {id: a, type: synthetic}\n  - {id: b, type: synthetic, tracking: false}\n"
    text += "  - {id: c, type: synthetic, confidence: 0.05, tracking: {timeout_s: 5, start: 0.6}}\n"
    assert settings_of(parse(text)) == {
        "a": TrackSettings(0.1, 0.3, 0.3, 2_000_000_000, 3_000_000_000, 3),
        "c": TrackSettings(0.05, 0.6, 0.05, 5_000_000_000, 5_000_000_000, 3),
    }
