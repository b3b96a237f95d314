"""Events of the wire that wait for the journal."""

from __future__ import annotations

from msgspec.structs import replace

from daemon.bridge.event_intake import EventIntake, Place
from daemon.bridge.journal_pages import Page
from tests.bridge.test_when import _event
from tests.support.clock import ManualClock


def test_a_journal_that_is_a_moment_behind_is_waited_for_however_long_events_were_held() -> None:
    clock = ManualClock()
    intake = EventIntake("here", Place("i", 1), clock, has_journal=True)
    first, second, third = (replace(_event(), number=number) for number in (2, 3, 4))
    intake.hold()
    clock.advance(100)  # a slow disk
    assert [*intake.take(third)] == []
    assert [*intake.take_page(Page([], 1, False))] == []
    clock.advance(1)
    kinds = [entry.kind for entry in intake.take_page(Page([first, second], 3, False))]
    assert kinds == ["event"] * 3
    assert (intake.lost, intake.is_held) == (0, False)


def test_what_no_journal_writes_in_time_is_lost() -> None:
    clock = ManualClock()
    intake = EventIntake("here", Place("i", 1), clock, has_journal=True)
    assert [*intake.take(replace(_event(), number=4))] == []
    assert [*intake.take_page(Page([], 1, False))] == []
    clock.advance(3)
    assert [entry.kind for entry in intake.take_page(Page([], 1, False))] == ["loss", "event"]
    assert intake.lost == 2
