"""Rules one by one, and the traps that other systems of their kind fell into."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import numpy as np
import pytest
import structlog
from structlog.testing import capture_logs

from daemon.analytics.event import Event, Unseen
from daemon.analytics.rules import RuleBook, RulesStage
from daemon.analytics.source_rules import RuleSet
from detectors.detections import Detections, TrackNews, nothing
from tests.analytics.feed import (
    LABELS,
    SECOND,
    Feed,
    frame_at,
    line_of,
    rules_of,
    short,
    standing_at,
    straight,
    tracks_of,
)

ZONE: dict[str, Any] = {"type": "zone", "name": "zone", "points": [[0.4, 0.4], [0.6, 0.4], [0.6, 0.6], [0.4, 0.6]]}
LINE: dict[str, Any] = {"type": "line", "name": "line", "points": [[0.5, 0.2], [0.5, 0.8]]}
GATE: dict[str, Any] = {"type": "gate", "name": "gate", "lines": [[[0.4, 0.2], [0.4, 0.8]], [[0.6, 0.2], [0.6, 0.8]]]}
OBJECT: dict[str, Any] = {"type": "object", "name": "object"}
INSIDE, OUTSIDE = (500.0, 500.0), (200.0, 500.0)
pytestmark = pytest.mark.usefixtures("loops")


def feed_of(*rules: dict[str, Any], **options: Any) -> Feed:
    return Feed(rules_of(*rules), **options)


# --- each kind -----------------------------------------------------------------------------------------------------


def test_a_zone_reports_entry_dwell_and_leave_with_their_times() -> None:
    feed = feed_of(ZONE | {"dwell_s": [2, 30]})
    feed.walk(straight((205, 500), (505, 500), 3))
    feed.walk(straight((505, 500), (505, 500), 3, begin=3.1))
    feed.walk(straight((505, 500), (805, 500), 3, begin=6.2))
    assert feed.told == ["zone entered", "zone dwell", "zone left left"]
    entered, dwell, left = feed.events
    assert (entered.began.pts, entered.confirmed.pts) == (2.0 * SECOND, 2.3 * SECOND)
    assert dwell.confirmed.pts == 4.0 * SECOND
    assert dwell.began == entered.began
    assert dwell.dwell_ns == pytest.approx(2.05 * SECOND, abs=100_000)  # from between two frames
    assert left.began.pts == pytest.approx(7.2 * SECOND)
    assert left.dwell_ns == pytest.approx(5.2 * SECOND, abs=100_000)
    assert left.confirmed.pts == pytest.approx(8.2 * SECOND)
    assert (left.track, left.label, left.rule) == (1, "person", "zone")


def test_a_zone_of_two_polygons_is_one_place() -> None:
    """The way from one into the other, which overlaps it, does not leave the zone."""
    polygons = [ZONE["points"], [[0.55, 0.4], [0.8, 0.4], [0.8, 0.6], [0.55, 0.6]]]
    feed = feed_of({"type": "zone", "name": "zone", "polygons": polygons})
    feed.walk(straight((305, 500), (855, 500), 5.5))
    assert feed.told == ["zone entered"]
    feed.rest(5.6, 2)
    assert feed.told == ["zone entered", "zone left left"]
    assert feed.events[-1].dwell_ns == pytest.approx(4 * SECOND, abs=100_000)


def test_an_event_knows_its_rule() -> None:
    """Pictures of events show it: those of a crowd, too."""
    zone, line = rules_of(ZONE | {"crowd": {"over": 0, "for_s": 0}}, LINE)
    feed = feed_of(ZONE | {"crowd": {"over": 0, "for_s": 0}}, LINE)
    feed.walk(straight((305, 500), (855, 500), 5.5))
    assert {event.kind for event in feed.events} == {"zone", "crowd", "line"}
    assert all(event.config == (line if event.kind == "line" else zone) for event in feed.events)


def test_a_line_is_crossed_forward_from_its_left_to_its_right() -> None:
    """The line goes down, so its left is on the picture's right."""
    feed = feed_of(LINE)
    feed.walk(straight((700, 500), (300, 500), 2))
    feed.walk(straight((300, 500), (700, 500), 2, begin=2.1))
    assert feed.told == ["line crossed forward", "line crossed backward"]


def test_an_anchor_may_stand_on_an_edge() -> None:
    """It walks onto an edge, and goes on from there. Its distance before is rounded, and so is its step."""
    line = {**LINE, "points": [[0.3, 0.3], [0.7, 0.7]], "band": 0.0}
    diamond = {**ZONE, "points": [[0.5, 0.4], [0.6, 0.5], [0.5, 0.6], [0.4, 0.5]], "enter_s": 0.0}
    for step in range(1, 41):
        feed = feed_of(line)
        feed.walk(line_of(*((500 + step * number, 500 - step * number) for number in (1, 0, -1, -2))))
        assert feed.told == ["line crossed forward"], step
        for down in range(step + 1):
            feed = feed_of(diamond)
            feed.walk(line_of((400 - step, 500 - down), (400, 500), (400 - 3 * step, 410 - 3 * down), (290, 300)))
            assert feed.told in ([], ["zone entered"]), (step, down)  # the corner may count as inside
            feed.walk(line_of(*[(290.0, 300.0)] * 12, begin=0.4))
            assert feed.told in ([], ["zone entered", "zone left left"]), (step, down)


def test_an_object_that_shrinks_has_a_narrower_band() -> None:
    feed = feed_of({**LINE, "band": 0.5})
    feed.walk(line_of((300, 500), (530, 500)))
    assert feed.told == []  # 30 of 50 pixels
    feed.show(0.2, {1: standing_at(530, 500, height=40)})
    assert feed.told == ["line crossed backward"]  # of 20


def test_a_path_around_the_end_of_a_line_does_not_cross_it() -> None:
    feed = feed_of(LINE)
    feed.walk(straight((400, 700), (400, 900), 1))
    feed.walk(straight((400, 900), (600, 900), 1, begin=1.1))
    feed.walk(straight((600, 900), (600, 700), 1, begin=2.2))
    assert feed.told == []
    feed.walk(straight((600, 700), (400, 700), 1, begin=3.3))  # from the line's left, over it
    assert feed.told == ["line crossed forward"]


def test_a_gate_wants_both_lines_in_order() -> None:
    feed = feed_of(GATE)
    feed.walk(straight((300, 500), (500, 500), 2))
    feed.walk(straight((500, 500), (300, 500), 2, begin=2.1))  # back
    assert feed.told == []
    feed.walk(straight((300, 500), (700, 500), 2, begin=4.2))
    assert feed.told == ["gate passed forward"]
    feed.walk(straight((700, 500), (300, 500), 2, begin=6.3))
    assert feed.told == ["gate passed forward", "gate passed backward"]


def test_a_gate_is_passed_between_two_frames() -> None:
    feed = feed_of(GATE)
    feed.walk(line_of((300, 500), (800, 500), (300, 500)))
    assert feed.told == ["gate passed forward", "gate passed backward"]


def test_lines_of_a_gate_may_be_drawn_in_any_direction() -> None:
    feed = feed_of(GATE | {"lines": [GATE["lines"][0], GATE["lines"][1][::-1]]})
    feed.walk(straight((300, 500), (700, 500), 2))
    assert feed.told == ["gate passed forward"]


def test_objects_appear_and_are_gone() -> None:
    feed = feed_of(OBJECT)
    feed.rest(0, 1)
    feed.walk(straight((500, 500), (600, 500), 1, begin=1))
    feed.rest(2.1, 2)
    assert feed.told == ["object appeared", "object left lost"]
    assert feed.events[-1].dwell_ns == 1.1 * SECOND  # eleven frames, each a tenth


def test_an_object_at_the_edge_has_left() -> None:
    feed = feed_of(OBJECT)
    feed.walk(straight((500, 500), (965, 500), 3))
    feed.rest(3.1, 2)
    assert feed.told == ["object appeared", "object left left"]


def test_a_crowd_has_a_begin_and_an_end() -> None:
    feed = feed_of(ZONE | {"enter_s": 0, "exit_s": 0, "crowd": {"over": 2, "under": 1, "for_s": 1}})

    def show(begin: float, seconds: float, inside: int) -> None:
        for number in range(round(seconds * 10)):
            at = {id: standing_at(*(INSIDE if id <= inside else OUTSIDE)) for id in range(1, 5)}
            feed.show(begin + number / 10, at)

    show(0, 1, 4)
    show(1, 1, 2)  # not for long enough
    show(2, 2, 3)
    show(4, 2, 2)  # not few enough
    show(6, 2, 1)
    crowds = [event for event in feed.events if event.kind == "crowd"]
    assert [(short(event), event.count, event.confirmed.pts) for event in crowds] == [
        ("crowd over", 3, 3 * SECOND),
        ("crowd under", 1, 7 * SECOND),
    ]
    assert crowds[0].track is None


def test_rules_look_at_the_labels_and_the_size_they_are_for() -> None:
    feed = feed_of(LINE | {"labels": ["car"]}, ZONE | {"enter_s": 0, "min_area": 0.01})
    for seconds, x, y in straight((300, 500), (700, 500), 2):
        boxes = {1: standing_at(x, y), 2: standing_at(x, y, height=200, width=80)}
        feed.show(seconds, boxes, {1: "car", 2: "person"})
    assert [(event.track, event.rule) for event in feed.events if event.phase != "left"] == [(2, "zone"), (1, "line")]


@pytest.mark.parametrize(("anchor", "crosses"), [("bottom", True), ("center", False), ("top", False)])
def test_the_anchor_decides(anchor: str, crosses: bool) -> None:
    feed = feed_of({"type": "line", "name": "line", "points": [[0.1, 0.5], [0.9, 0.5]], "anchor": anchor})
    feed.walk(straight((500, 480), (500, 540), 2))
    assert bool(feed.events) is crosses


def test_rules_with_several_anchors_live_together() -> None:
    line = {"type": "line", "points": [[0.1, 0.5], [0.9, 0.5]]}
    feed = feed_of(*({"name": anchor, "anchor": anchor} | line for anchor in ("bottom", "center", "top")))
    feed.walk(straight((500, 400), (500, 700), 6))
    assert [event.rule for event in feed.events] == ["bottom", "center", "top"]


def test_a_cooldown_leaves_crossings_out() -> None:
    feed = feed_of(LINE | {"cooldown_s": 5})
    for number, (begin, end) in enumerate([(300, 700), (700, 300), (300, 700), (700, 300)]):
        feed.walk(straight((begin, 500), (end, 500), 1.9, begin=number * 2))
    assert feed.told == ["line crossed backward", "line crossed forward"]  # at 1 s and 7 s


def test_pixels_mean_those_of_the_picture_they_were_measured_in() -> None:
    line = {"type": "line", "name": "line", "points": [[640, 100], [640, 700]], "frame_size": [1280, 720]}
    feed = feed_of(line, size=(640, 360))
    feed.walk(straight((300, 200), (340, 200), 2))
    assert feed.told == ["line crossed backward"]


# --- traps ---------------------------------------------------------------------------------------------------------


def test_trap_jitter_on_the_line() -> None:
    """A car waits on the line and trembles: nothing, and then it goes on: once."""
    feed = feed_of(LINE)
    random = np.random.default_rng(3)
    feed.walk(straight((300, 500), (500, 500), 2))
    shaken = 500 + random.normal(0, 2, 600)
    feed.walk(line_of(*((float(x), 500.0) for x in shaken), begin=2.1))
    assert feed.told == []
    feed.walk(straight((500, 500), (700, 500), 2, begin=63))
    assert feed.told == ["line crossed backward"]


def test_trap_jitter_on_the_edge_of_a_zone() -> None:
    feed = feed_of(ZONE)
    random = np.random.default_rng(4)
    shaken = 400 + random.normal(0, 3, 600)
    feed.walk(straight((500, 500), (400, 500), 1))
    feed.walk(line_of(*((float(x), 500.0) for x in shaken), begin=1.1))
    assert feed.told == ["zone entered"]


def test_trap_one_flicker_counts_in_no_direction() -> None:
    feed = feed_of(LINE | {"confirm_s": 0.3})
    feed.walk(line_of((400, 500), (400, 500), (600, 500), (400, 500), (400, 500), (400, 500), (400, 500)))
    assert feed.told == []


def test_trap_unconfirmed_ids_share_one_number() -> None:
    """Boxes without a confirmed track have id 0, and rules do not see them."""
    feed = feed_of(ZONE | {"enter_s": 0}, LINE, GATE, OBJECT)
    feed.walk(straight((300, 500), (700, 500), 2), id=0)
    feed.rest(2.1, 2)
    assert feed.told == []


def test_trap_the_first_sighting_seeds_the_side() -> None:
    """An object that is born on the line has no side until it is away from the line."""
    feed = feed_of(LINE)
    feed.walk(line_of((498, 500), (503, 500), (497, 500), (520, 500), (560, 500), (620, 500)))
    assert feed.told == []
    feed.walk(straight((620, 500), (380, 500), 2, begin=1))
    assert feed.told == ["line crossed forward"]


@pytest.mark.parametrize("fps", [2.0, 5.0, 15.0, 60.0])
def test_trap_frames_instead_of_seconds(fps: float) -> None:
    """One second is one second, at any rate of frames."""
    feed = feed_of(ZONE | {"enter_s": 1.0, "exit_s": 1.0})
    feed.walk(straight(INSIDE, INSIDE, 0.5, fps=fps))
    feed.walk(straight(OUTSIDE, OUTSIDE, 2, begin=1.0, fps=fps))
    assert feed.told == []
    feed.walk(straight(INSIDE, INSIDE, 2, begin=4, fps=fps))
    assert feed.told == ["zone entered"]
    assert feed.events[0].confirmed.pts <= 5.0 * SECOND + 2 * SECOND / fps  # type: ignore[operator]


def test_trap_the_lower_edge_jumps_when_legs_are_hidden() -> None:
    """A wall hides the legs of someone who stands behind a line: the feet are still there."""
    feed = feed_of({"type": "line", "name": "line", "points": [[0.1, 0.45], [0.9, 0.45]]})
    whole = (460.0, 300.0, 540.0, 500.0)
    for number in range(20):
        feed.show(number / 10, {1: whole})
    for number in range(20):  # the filter needs some frames for the jump
        bottom = 500.0 - min(number, 5) * 20.0
        feed.show(2 + number / 10, {1: (460.0, 300.0, 540.0, bottom)})
    for number in range(20):
        feed.show(4 + number / 10, {1: whole})
    assert feed.told == []


def test_trap_a_box_that_the_picture_cuts_has_a_false_anchor() -> None:
    """Someone walks out at the lower edge: the feet are below it, not on a line just above."""
    feed = feed_of({"type": "line", "name": "line", "points": [[0.1, 0.93], [0.9, 0.93]], "anchor": "center"})
    for number, bottom in enumerate(range(800, 1140, 10)):
        feed.show(number / 10, {1: (480.0, bottom - 200.0, 520.0, min(1000.0, bottom))})
    assert feed.told == ["line crossed forward"]  # the center, at 930, of a box that ends at 1030
    assert feed.events[0].began.seq == pytest.approx(24, abs=1)


def test_trap_fast_objects_skip_thin_zones() -> None:
    """100 pixels a frame, through a zone of 20 pixels and over a line."""
    thin = [[0.5, 0.2], [0.52, 0.2], [0.52, 0.8], [0.5, 0.8]]
    feed = feed_of(ZONE | {"points": thin, "enter_s": 0, "exit_s": 0}, LINE)
    feed.walk(line_of(*((float(x), 500.0) for x in range(50, 1000, 100)), fps=25))
    assert feed.told == ["zone entered", "zone left left", "line crossed backward"]
    assert feed.events[1].dwell_ns == pytest.approx(0.2 / 25 * SECOND, abs=10_000)


def test_trap_an_id_is_lost_inside_a_zone() -> None:
    """The stay ends, and says why; the new id has a stay of its own."""
    feed = feed_of(ZONE)
    feed.walk(straight((200, 500), INSIDE, 2))
    feed.rest(2.1, 3)
    feed.walk(straight(INSIDE, INSIDE, 1, begin=5.1), id=2)
    assert feed.told == ["zone entered", "zone left lost", "zone entered"]
    assert [event.track for event in feed.events] == [1, 1, 2]
    assert feed.events[1].confirmed.pts == pytest.approx(3.1 * SECOND)  # more than a second after it was last seen
    assert feed.events[1].began.pts == 2 * SECOND


def test_trap_class_flips_split_no_visit() -> None:
    feed = feed_of(ZONE | {"dwell_s": [1]})
    for number, (seconds, x, y) in enumerate(straight(INSIDE, INSIDE, 2)):
        feed.show(seconds, {1: standing_at(x, y)}, {1: "car" if number < 7 else "truck"})
    feed.rest(2.1, 2)
    assert feed.told == ["zone entered", "zone dwell", "zone left lost"]
    assert {event.label for event in feed.events} == {"car"}


def test_trap_sticky_flags() -> None:
    """Dwell begins anew with each visit, and each visit has its own entry."""
    feed = feed_of(ZONE | {"dwell_s": [3]})
    for visit in range(3):
        feed.walk(straight(INSIDE, INSIDE, 2, begin=visit * 5))
        feed.walk(straight(OUTSIDE, OUTSIDE, 2, begin=visit * 5 + 2.5))
    assert feed.told == ["zone entered", "zone left left"] * 3


def test_trap_a_short_absence_belongs_to_the_visit() -> None:
    feed = feed_of(ZONE | {"dwell_s": [3]})
    feed.walk(straight(INSIDE, INSIDE, 2))
    feed.walk(straight((390, 500), (390, 500), 0.5, begin=2.1))
    feed.walk(straight(INSIDE, INSIDE, 2, begin=2.7))
    assert feed.told == ["zone entered", "zone dwell"]


def test_trap_pixel_zones_break_with_the_resolution() -> None:
    """Another size changes nothing; another aspect ratio is worth a warning."""
    feed = feed_of(ZONE, LINE)
    feed.walk(straight((300, 500), (450, 500), 2))
    feed.size = (500, 500)
    feed.walk([(seconds, x / 2, y / 2) for seconds, x, y in straight((450, 500), (700, 500), 2, begin=2.1)])
    assert feed.told == ["zone entered", "line crossed backward"]
    feed.size = (500, 300)
    structlog.reset_defaults()
    with capture_logs() as logs:
        feed.show(4.2, {1: standing_at(350, 150)})
    assert "aspect ratio" in logs[0]["event"]


def test_trap_an_integer_mask_differs_from_the_geometry() -> None:
    """A thousandth of a pixel decides, and anchors outside of the picture are fine."""
    feed = feed_of(ZONE | {"enter_s": 0, "exit_s": 0})
    feed.walk(line_of((399.99, 500), (400.01, 500), (399.99, 500), (-50, 500), (500, 1300)))
    assert feed.told[:2] == ["zone entered", "zone left left"]


# --- loss and time -------------------------------------------------------------------------------------------------


def test_an_event_tells_what_was_lost_while_it_was_decided() -> None:
    feed = feed_of(LINE)
    feed.walk(straight((300, 500), (450, 500), 1))
    feed.show(1.5, {1: standing_at(700, 500)}, lost=4)
    assert feed.events[0].unseen == Unseen(4, SECOND // 2)
    feed.walk(straight((700, 500), (300, 500), 1, begin=1.6))
    assert feed.events[1].unseen == Unseen(0, SECOND // 10)


def test_a_track_that_ends_because_frames_were_lost_says_so() -> None:
    feed = feed_of(ZONE)
    feed.walk(straight(INSIDE, INSIDE, 1))
    feed.show(4.0, {}, lost=29)
    assert feed.told == ["zone entered", "zone left lost"]
    assert feed.events[1].unseen == Unseen(29, 3 * SECOND)


def test_a_new_connection_with_another_timeline_changes_nothing() -> None:
    feed = feed_of(ZONE | {"dwell_s": [2]})
    stage, seq = RulesStage(feed.book, LABELS), 0
    for session, begin in (("one", 0.0), ("two", 9e6)):
        for number in range(15):
            frame = frame_at(seq / 10, seq)
            pts = round((begin + number / 10) * SECOND)
            frame = msgspec.structs.replace(frame, session=session, pts=pts)
            stage([frame], [tracks_of({1: standing_at(*INSIDE)})])
            seq += 1
    assert feed.told == ["zone entered", "zone dwell"]
    assert feed.events[1].dwell_ns == 2 * SECOND


def test_a_source_that_is_down_ends_its_events() -> None:
    feed = feed_of(ZONE | {"crowd": {"over": 0, "for_s": 0}}, OBJECT, LINE)
    feed.walk(straight(INSIDE, INSIDE, 1))
    feed.book.source_down("cam")
    assert feed.told == [
        "object appeared", "zone entered", "crowd over",
        "zone left source_down", "crowd under source_down", "object left source_down",
    ]  # fmt: skip
    feed.book.source_down("cam")
    assert len(feed.events) == 6
    feed.walk(straight(INSIDE, INSIDE, 1, begin=5))  # it is back
    assert feed.told[6:] == ["object appeared", "zone entered", "crowd over"]


def test_a_short_break_of_a_source_ends_nothing_and_a_long_one_does() -> None:
    feed = feed_of(ZONE)
    feed.walk(straight(INSIDE, INSIDE, 1))
    feed.book.on_state("cam", "down", 10 * SECOND)
    feed.book.on_state("cam", "connecting", 10 * SECOND)
    feed.book.tick(11 * SECOND)
    feed.book.on_state("cam", "up", 11 * SECOND)
    feed.book.tick(20 * SECOND)
    assert feed.told == ["zone entered"]
    feed.book.on_state("cam", "stalled", 30 * SECOND)
    feed.book.on_state("cam", "down", 31 * SECOND)
    feed.book.tick(31 * SECOND + 1)
    assert feed.told == ["zone entered", "zone left source_down"]


def test_a_source_that_has_ended_is_down_at_once() -> None:
    feed = feed_of(OBJECT)
    feed.show(0, {1: standing_at(*INSIDE)})
    feed.book.on_state("cam", "ended", 0)
    assert feed.told == ["object appeared", "object left source_down"]


def test_a_removed_source_s_last_frames_do_not_count() -> None:
    feed = feed_of(OBJECT)
    feed.show(0, {1: standing_at(*INSIDE)})
    feed.book.forget("cam")
    feed.show(0.1, {2: standing_at(*INSIDE)})
    assert feed.told == ["object appeared", "object left source_down"]


# --- changes -------------------------------------------------------------------------------------------------------


def test_a_change_of_rules_keeps_the_state_of_the_others() -> None:
    zone = ZONE | {"dwell_s": [3]}
    feed = feed_of(zone, LINE)
    feed.walk(straight(INSIDE, INSIDE, 2))
    feed.set_rules(rules_of(OBJECT, LINE | {"name": "other"}, zone))
    feed.walk(straight(INSIDE, INSIDE, 2, begin=2.1))
    assert feed.told == ["zone entered", "object appeared", "zone dwell"]
    assert feed.events[-1].dwell_ns == 3 * SECOND
    feed.walk(straight(INSIDE, (700, 500), 2, begin=4.2))
    assert feed.told[3:] == ["zone left left"]  # the line runs through where it stood: it has no side yet


def test_a_removed_rule_ends_its_stays() -> None:
    feed = feed_of(ZONE | {"crowd": {"over": 0, "for_s": 0}}, OBJECT)
    feed.walk(straight(INSIDE, INSIDE, 1))
    feed.set_rules(rules_of(OBJECT))
    assert feed.told[-2:] == ["zone left rule_removed", "crowd under rule_removed"]
    feed.set_rules([])
    assert feed.told[-1] == "object left rule_removed"
    feed.walk(straight(INSIDE, OUTSIDE, 1, begin=2))
    assert len(feed.events) == 6


def test_a_changed_rule_begins_anew() -> None:
    feed = feed_of(ZONE)
    feed.walk(straight(INSIDE, INSIDE, 1))
    feed.set_rules(rules_of(ZONE | {"dwell_s": [1]}))
    feed.walk(straight(INSIDE, INSIDE, 1.5, begin=1.1))
    assert feed.told == ["zone entered", "zone left rule_removed", "zone entered", "zone dwell"]


def test_equal_rules_change_nothing() -> None:
    """Other sources come and go meanwhile. A box that the picture's edge cuts is completed at the same frames."""
    everywhere = {"type": "zone", "name": "all", "polygons": [[[0, 0], [1, 0], [1, 1], [0, 1]]], "enter_s": 0}
    undisturbed, disturbed = feed_of(everywhere), feed_of(everywhere)
    for number in range(30):
        disturbed.set_rules(rules_of(everywhere))
        for feed in (undisturbed, disturbed):
            feed.show(number / 10, {1: (700.0 + 8 * number, 400.0, min(1000.0, 780.0 + 8 * number), 500.0)})
    for feed in (undisturbed, disturbed):
        feed.book.source_down("cam")
    assert [(short(event), event.box) for event in disturbed.events] == [
        (short(event), event.box) for event in undisturbed.events
    ]


def test_each_batch_and_each_change_delivers_its_events() -> None:
    """A batch that fails, too."""
    held: list[Event] = []
    delivered: list[str] = []

    def deliver() -> None:
        delivered.extend(short(event) for event in held)
        held.clear()

    book = RuleBook(held.append, deliver)
    stage, names = RulesStage(book, LABELS), ("a", "b", "c", "d")
    for name in names:
        book.update({name: RuleSet(rules_of(OBJECT), SECOND, 3)})
    frames = [frame_at(0, 0, source=name) for name in names]
    stage(frames, [tracks_of({1: standing_at(*INSIDE)}) for _ in names])
    assert delivered == ["object appeared"] * 4
    book.source_down("a")
    book.update({"b": RuleSet((), SECOND, 3)})
    book.forget("c")
    book.on_state("d", "ended", 0)
    reasons = ("source_down", "rule_removed", "source_down", "source_down")
    assert delivered[4:] == [f"object left {reason}" for reason in reasons]
    frames = [frame_at(1, 1, source="a"), frame_at(1, 1, source="d")]
    with pytest.raises(AttributeError):  # the second frame has no boxes
        stage(frames, [tracks_of({2: standing_at(*INSIDE)}), None])  # type: ignore[list-item]
    assert delivered[8:] == ["object appeared"]


def test_rules_change_beside_a_lane() -> None:
    """Any order of changes and frames is one that could be: each stay that begins has its end."""
    events: list[Event] = []
    book = RuleBook(events.append)
    sets = [RuleSet(rules_of(*rules), SECOND, 3) for rules in ((ZONE | {"enter_s": 0},), (ZONE, OBJECT), (OBJECT,), ())]
    book.update({"cam": sets[0]})
    stage, done = RulesStage(book, LABELS), threading.Event()

    def change() -> None:
        turn = 0
        while not done.is_set():
            book.update({"cam": sets[turn % len(sets)]})
            if turn % 5 == 0:
                book.source_down("cam")
            if turn % 7 == 0:
                book.forget("cam")
            turn += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for seq in range(2000):
            stage([frame_at(seq / 10, seq)], [tracks_of({seq // 20 + 1: standing_at(*INSIDE)})])
    finally:
        done.set()
        thread.join()
    book.forget("cam")
    for rule, begins in (("zone", "entered"), ("object", "appeared")):
        for id in range(1, 101):
            phases = [event.phase for event in events if event.track == id and event.rule == rule]
            assert phases == [begins, "left"] * (len(phases) // 2)


def test_the_model_s_labels_are_those_of_its_own_stage() -> None:
    feed = feed_of(OBJECT)
    other = RulesStage(feed.book, ("cat", "dog"))
    feed.show(0, {1: standing_at(*INSIDE)})
    other([frame_at(0.1, 1)], [tracks_of({2: standing_at(*INSIDE)}, {2: "car"})])
    assert [event.label for event in feed.events] == ["person", "dog"]


def test_memory_is_bounded() -> None:
    """Tracks come and go for ever, and frames come twice."""
    feed = feed_of(ZONE, LINE, GATE, OBJECT)
    stage = RulesStage(feed.book, LABELS)
    for seq in range(5000):
        frame = frame_at(seq / 10, seq)
        first = seq // 3 + 1
        boxes = {first + offset: standing_at(300.0 + 40 * (seq % 10), 500) for offset in range(3)}
        news = TrackNews(forgotten=[first - 4]) if seq % 3 == 0 else None
        stage([frame, frame], [tracks_of(boxes), tracks_of(boxes, news=news)])
        feed.events.clear()
    rules = feed.book.rules_of("cam")
    assert rules is not None
    assert rules.tracks == 3 + 3
    feed.book.configure({"other": RuleSet(rules_of(OBJECT), SECOND, 3)})
    assert feed.book.rules_of("cam") is None
    assert feed.book.rules_of("other") is not None


def test_sources_without_rules_or_tracks_cost_nothing() -> None:
    feed = feed_of(ZONE)
    stage = RulesStage(feed.book, LABELS)
    found: list[Detections] = [nothing(), tracks_of({1: standing_at(*INSIDE)})]
    assert stage([frame_at(0, 0), frame_at(0, 0, source="other")], found) is found
    assert feed.events == []
