"""Tracker and rules together: events and times do not depend on the rate, the size or the times of frames."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from daemon.analytics import compiled_broad_phase, compiled_step
from daemon.analytics.event import Event
from daemon.analytics.loops import PYTHON, Loops
from tests.analytics.feed import SECOND
from tests.analytics.watched import Watched, standing, times, walking

_LOOPS = {"python": PYTHON, "compiled": Loops(compiled_step.step, compiled_broad_phase.search)}
_ZONE: dict[str, Any] = {"type": "zone", "name": "zone", "points": [[0.4, 0.4], [0.7, 0.4], [0.7, 0.8], [0.4, 0.8]]}
_LINE: dict[str, Any] = {"type": "line", "name": "line", "points": [[0.2, 0.05], [0.2, 0.95]]}
_GATE: dict[str, Any] = {
    "type": "gate",
    "name": "gate",
    "lines": [[[0.2, 0.05], [0.2, 0.95]], [[0.3, 0.05], [0.3, 0.95]]],
}
_OBJECT: dict[str, Any] = {"type": "object", "name": "object"}


@pytest.fixture(params=["compiled", pytest.param("python", marks=pytest.mark.long)])
def loops(request: pytest.FixtureRequest) -> Loops:
    """Those that are compiled, as they run; test_compiled_step.py compares them with Python's."""
    return _LOOPS[request.param]


def _is_finite(values: npt.NDArray[np.float32]) -> bool:
    return bool(np.isfinite(values).all())


def _dwell_s(event: Event) -> float:
    assert event.dwell_ns is not None
    return event.dwell_ns / SECOND


# --- the path before a track is confirmed ---------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("hits", [1, 3, 6])
@pytest.mark.parametrize("fps", [pytest.param(60, marks=pytest.mark.long), 30, 15, 5, 2])
def test_the_length_of_a_stay_does_not_depend_on_the_rate(fps: int, hits: int, loops: Loops) -> None:
    """It appears inside at 1 s, and is gone at 7 s. The tracker needs three boxes in a row, or up to 3 s of it."""
    watched = Watched(
        _ZONE | {"dwell_s": [5]}, _OBJECT, loops=loops, tracking=f"{{enabled: true, confirm_hits: {hits}}}"
    )
    watched.play(times(fps, 10), standing(500, 600, 1.0, 7.0))
    assert sorted(watched.told) == [
        "object appeared", "object left lost", "zone dwell", "zone entered", "zone left lost",
    ]  # fmt: skip
    ends = [event for event in watched.events if event.phase == "left"]
    assert [_dwell_s(event) for event in ends] == [pytest.approx(6.0, abs=0.001)] * 2
    begins = {event.kind: event for event in watched.events if event.phase in ("appeared", "entered")}
    assert {event.began.pts for event in begins.values()} == {SECOND}
    assert begins["object"].confirmed.seq == fps + hits - 1


@pytest.mark.parametrize("rule", [_LINE, _GATE])
@pytest.mark.parametrize("fps", [60, 15, 5, 4])
def test_a_line_near_a_door_is_crossed(fps: int, rule: dict[str, Any], loops: Loops) -> None:
    """An object appears 30 pixels before it, and is beyond after 0.28 s."""
    watched = Watched(rule | {"band": 0.02}, loops=loops)
    watched.play(times(fps, 3, begin=1.0), walking(170, 108, begin=1.0))
    (event,) = watched.events
    assert event.direction == ("backward" if rule is _LINE else "forward")
    assert event.began.pts == pytest.approx(1.28 * SECOND, abs=SECOND / fps)
    assert event.confirmed.seq >= 2
    if fps < 15 and rule is _LINE:
        assert event.confirmed.seq == 2  # that confirms the track
        assert event.box is not None
        assert event.box[2] == pytest.approx(200 + 2 * 108 / fps, abs=8)  # where it is by then


def test_a_visit_before_a_track_is_confirmed_counts(loops: Loops) -> None:
    """Also one that is over by then; all its events are of the frame that confirms the track, in their order."""
    thin = {**_ZONE, "points": [[0.195, 0.1], [0.21, 0.1], [0.21, 0.9], [0.195, 0.9]], "enter_s": 0, "exit_s": 0}
    watched = Watched(thin, _LINE | {"band": 0}, loops=loops, tracking="{enabled: true, confirm_hits: 4}")
    watched.show(0.0)
    for number, x in enumerate((160, 181, 203, 224, 246)):
        watched.show(0.1 * (number + 1), *standing(x, 600)(0), lost=2 if number == 2 else 0)
    assert watched.told == ["zone entered", "line crossed backward", "zone left left"]
    assert [event.began.seq for event in watched.events] == [5, 5, 6]
    assert {event.confirmed.seq for event in watched.events} == {6}
    assert [event.unseen.frames for event in watched.events] == [2, 2, 0]
    assert _dwell_s(watched.events[2]) == pytest.approx(0.1 * 15 / 21, abs=0.02)
    assert len({event.box for event in watched.events}) == 1


def test_a_box_that_is_no_track_counts_nowhere(loops: Loops) -> None:
    watched = Watched(_ZONE | {"enter_s": 0}, _LINE, _OBJECT, loops=loops)
    for number in range(60):
        watched.show(number / 10, *(standing(100 if number % 3 else 500, 600)(0) if number % 3 < 2 else ()))
    assert (watched.told, watched.ids) == ([], set())


def test_a_rule_that_comes_later_knows_no_earlier_path(loops: Loops) -> None:
    """The object crosses the line before there is a rule, and stands in the zone."""
    watched = Watched(loops=loops)
    watched.play(times(10, 2), walking(100, 200))
    watched.rules(_LINE, _ZONE)
    watched.play(times(10, 2, begin=2), standing(500, 600))
    assert watched.told == ["zone entered"]
    assert watched.events[0].began.pts == 2 * SECOND


# --- the rate -------------------------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "rate", [Fraction(30000, 1001), 25, 30, Fraction(25, 2), Fraction(15000, 1001), 10, Fraction(24000, 1001)]
)
@pytest.mark.parametrize("most", [1, 2, 3])
def test_tracks_live_at_any_rate(rate: Fraction, most: int, loops: Loops) -> None:
    """As many frames as a source with `max_fps` has: their distance may be longer than `timeout_s`."""
    watched = Watched(_ZONE | {"dwell_s": [10]}, _LINE, loops=loops)
    number, due = 0, 0.0
    while (at := float(number / rate)) < 30:
        if at >= due - 1e-9:
            watched.show(at, *standing(500, 600)(at), *walking(100, 8, y=900)(at))
            due += 1 / most
        number += 1
    assert watched.ids == {1, 2}
    assert sorted(watched.told) == ["line crossed backward", "zone dwell", "zone entered"]
    assert watched.events[-1].dwell_ns is None or _dwell_s(watched.events[-1]) >= 10


@pytest.mark.parametrize("step", [1.3, 20.0, 100.0])
def test_a_slow_source_s_tracks_are_lost_after_three_of_its_frames(step: float, loops: Loops) -> None:
    watched = Watched(_OBJECT, loops=loops)
    watched.play([step * number for number in range(20)], standing(500, 600, 0, 9.5 * step))
    assert watched.told == ["object appeared", "object left lost"]
    assert watched.events[1].confirmed.seq == 13  # the first frame that is more than three steps after the last one
    assert _dwell_s(watched.events[1]) == pytest.approx(10 * step)


def test_one_gap_does_not_make_tracks_live_longer(loops: Loops) -> None:
    watched = Watched(_OBJECT, loops=loops)
    here = standing(500, 600)
    watched.play(times(25, 2), here)
    watched.play(times(25, 2, begin=3.9), here)  # after 1.9 s the object is still there
    watched.play(times(25, 2, begin=5.9), standing(500, 600, 0, 0))
    assert watched.told == ["object appeared", "object left lost"]
    assert watched.events[1].confirmed.pts == pytest.approx((5.86 + 1.04) * SECOND, abs=0.001 * SECOND)


def test_a_source_that_becomes_slow_at_night_keeps_its_tracks(loops: Loops) -> None:
    """25 frames a second, then one in two seconds, and 25 again."""
    watched = Watched(_OBJECT, _ZONE, loops=loops)
    here = standing(500, 600, 0, 70)
    watched.play(times(25, 10), here)
    watched.play(times(0.5, 50, begin=11.9), here)
    watched.play(times(25, 12, begin=61.9), here)
    assert watched.ids == {1}
    assert watched.told == ["object appeared", "zone entered", "object left lost", "zone left lost"]
    assert watched.events[2].confirmed.pts == pytest.approx(71.1 * SECOND, abs=0.1 * SECOND)


# --- times that step back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late_s", [0.001, 0.12, 0.3])
def test_a_camera_that_corrects_its_time_keeps_its_tracks(late_s: float, loops: Loops) -> None:
    """As by sender reports that come late: each time steps back by a few frames, and ahead again."""
    watched = Watched(_ZONE | {"dwell_s": [8]}, _LINE, _OBJECT, loops=loops)
    for number, at in enumerate(times(25, 20)):
        shift = late_s if number // 50 % 2 else 0.0
        watched.show(at, *standing(500, 600)(at), *walking(100, 20, y=900)(at), pts=round((at - shift) * SECOND))
        assert (watched.newest.age >= 0).all()
        assert (abs(watched.newest.velocity) < 40).all()
    watched.show(25.0)
    watched.show(27.0)
    assert watched.ids == {1, 2}
    assert sorted(watched.told) == [
        "line crossed backward", "object appeared", "object appeared", "object left lost", "object left lost",
        "zone dwell", "zone entered", "zone left lost",
    ]  # fmt: skip
    ends = [_dwell_s(event) for event in watched.events if event.phase == "left"]
    assert ends == [pytest.approx(20.0, abs=late_s + 0.05)] * 3


def test_times_that_tremble_add_no_time(loops: Loops) -> None:
    """Each third frame has a time before the one of the second."""
    watched = Watched(_OBJECT, loops=loops)
    for number, at in enumerate(times(25, 40)):
        watched.show(at, *standing(500, 600)(at), pts=round((at - (0.06 if number % 3 == 2 else 0.0)) * SECOND))
    watched.book.on_state("cam", "ended", 0)
    assert watched.told == ["object appeared", "object left source_down"]
    assert _dwell_s(watched.events[1]) == pytest.approx(40.0, abs=0.1)


@pytest.mark.parametrize("step_s", [-60.0, -2.0, 5.0])
def test_a_jump_ends_tracks_and_their_events_at_once(step_s: float, loops: Loops) -> None:
    watched = Watched(_OBJECT, _ZONE, loops=loops)
    here = standing(500, 600, begin=-1e9)
    watched.play(times(10, 3), here)
    watched.play(times(10, 1, begin=2.9 + step_s), here)
    assert watched.told == [
        "object appeared", "zone entered", "object left lost", "zone left lost",
        "object appeared", "zone entered",
    ]  # fmt: skip
    assert watched.ids == {1, 2}
    assert watched.events[2].confirmed.seq == 30


def test_two_frames_of_one_time_divide_nothing_by_nothing(loops: Loops) -> None:
    watched = Watched(_ZONE | {"enter_s": 0}, _LINE, loops=loops)
    for number in range(40):
        watched.show(number // 2 * 0.08, *walking(100, 8)(float(number)))
        assert all(map(_is_finite, (watched.newest.xyxy, watched.newest.velocity)))
    assert watched.told == ["line crossed backward", "zone entered"]


# --- pictures of another size ---------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("sizes", [[(1000, 1000), (500, 500)], [(1920, 1080), (704, 576)], [(640, 480), (2560, 480)]])
@pytest.mark.parametrize("every", [1, 7, pytest.param(40, marks=pytest.mark.long)])
def test_tracks_go_on_in_pictures_of_another_size(sizes: list[tuple[int, int]], every: int, loops: Loops) -> None:
    """All of an object scales with the picture: its place, its speed, and what is not known of them."""
    watched, same = (Watched(_ZONE | {"dwell_s": [2]}, _LINE, _OBJECT, loops=loops) for _ in range(2))
    for number, at in enumerate(times(15, 8)):
        seen = [*standing(500, 600, end=5)(at), *walking(100, 50, y=900, end=5)(at)]
        size = sizes[number // every % 2]
        tracks, alike = watched.show(at, *seen, size=size), same.show(at, *seen)
        scale = [size[0] / 1000, size[1] / 1000]
        assert tracks.id.tolist() == alike.id.tolist()
        assert tracks.xyxy == pytest.approx(alike.xyxy * [*scale, *scale], abs=0.5)
        assert tracks.velocity == pytest.approx(alike.velocity * scale, abs=2)
    assert watched.ids == {1, 2}
    assert watched.told == same.told
    assert [event.began.seq for event in watched.events] == [event.began.seq for event in same.events]
    assert "line crossed backward" in watched.told


# --- lost, and found again ------------------------------------------------------------------------------------------


def test_an_object_that_comes_back_has_its_id_and_its_path(loops: Loops) -> None:
    """A wall hides it for 1.5 s on the line. For zones it was gone, and is there anew."""
    wide = {**_ZONE, "name": "all", "points": [[0, 0], [1, 0], [1, 1], [0, 1]]}
    watched = Watched(_LINE, wide, loops=loops)
    here = walking(100, 50)
    watched.play(times(15, 5), lambda at: here(at) if not 1.2 <= at < 2.7 else [])
    watched.book.on_state("cam", "ended", 0)
    assert watched.ids == {1}
    assert watched.told == [
        "zone entered", "zone left lost", "line crossed backward", "zone entered", "zone left source_down",
    ]  # fmt: skip
    assert [_dwell_s(event) for event in watched.events if event.phase == "left"] == [
        pytest.approx(1.2, abs=0.04), pytest.approx(2.3, abs=0.04),
    ]  # fmt: skip


@pytest.mark.parametrize("away_s", [0.9, 1.1])
@pytest.mark.parametrize("ticks", [True, False])
def test_a_source_that_was_away_for_too_long_has_ended_its_stays(away_s: float, ticks: bool, loops: Loops) -> None:
    """Whether a tick came meanwhile, or the source first, makes no difference."""
    watched = Watched(_OBJECT, loops=loops)
    watched.play(times(10, 3), standing(500, 600))
    watched.book.on_state("cam", "down", 3 * SECOND)
    back = round((3 + away_s) * SECOND)
    if ticks:
        watched.book.tick(back - 1)
    watched.book.on_state("cam", "up", back)
    assert watched.told == ["object appeared", *(["object left source_down"] if away_s > 1 else [])]


def test_a_timeout_that_is_longer_than_the_memory_counts(loops: Loops) -> None:
    watched = Watched(_OBJECT, loops=loops, tracking="{enabled: true, timeout_s: 5}")
    watched.play(times(10, 10), standing(500, 600, 0, 2))
    assert watched.told == ["object appeared", "object left lost"]
    assert watched.events[1].confirmed.seq == 70  # last seen in frame 19


def test_a_forgotten_track_leaves_nothing_behind(loops: Loops) -> None:
    watched = Watched(_LINE, _ZONE, _OBJECT, loops=loops)
    for visit in range(20):
        watched.play(times(10, 1, begin=5.0 * visit), standing(500, 600))
        watched.play(times(10, 4, begin=5.0 * visit + 1), standing(500, 600, 0, 0))
    rules = watched.book.rules_of("cam")
    assert rules is not None
    assert (rules.tracks, max(watched.ids)) == (0, 20)
    assert watched.told == ["object appeared", "zone entered", "zone left lost", "object left lost"] * 20
