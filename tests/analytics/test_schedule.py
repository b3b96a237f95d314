"""Schedules, also where clocks change."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from daemon.schedule import Schedule
from tests.analytics.feed import SECOND, Feed, rules_of, standing_at

BERLIN = ZoneInfo("Europe/Berlin")


def _utc(text: str, zone: ZoneInfo | timezone = timezone.utc) -> int:
    local = datetime.fromisoformat(text).replace(tzinfo=zone)
    return round(local.timestamp()) * SECOND


def _minutes(schedule: Schedule, begin: str, hours: int) -> int:
    """Minutes in which it is active, from a time in UTC."""
    first = _utc(begin)
    return sum(schedule.is_active(first + minute * 60 * SECOND) for minute in range(hours * 60))


@pytest.mark.parametrize(
    ("text", "active", "inactive"),
    [
        ("mon-fri 22:00-06:00", ["2026-11-20T22:00", "2026-11-21T05:59", "2026-11-17T03:00"], ["2026-11-21T22:00"]),
        ("mon-fri 22:00-06:00", ["2026-11-16T22:00"], ["2026-11-16T03:00", "2026-11-20T21:59", "2026-11-21T06:00"]),
        ("sat,sun", ["2026-11-21T00:00", "2026-11-22T23:59"], ["2026-11-20T23:59", "2026-11-23T00:00"]),
        ("fri-mon", ["2026-11-20T12:00", "2026-11-23T12:00"], ["2026-11-24T00:00", "2026-11-19T23:59"]),
        ("08:00-09:00; sat 20:00-24:00", ["2026-11-18T08:30", "2026-11-21T23:59"], ["2026-11-22T00:00"]),
        ("SUN 23:00-01:00", ["2026-11-22T23:30", "2026-11-23T00:30"], ["2026-11-22T00:30"]),
    ],
)
def test_times_of_the_week(text: str, active: list[str], inactive: list[str]) -> None:
    schedule = Schedule(text, "Europe/Berlin")
    assert [schedule.is_active(_utc(time, BERLIN)) for time in active] == [True] * len(active)
    assert [schedule.is_active(_utc(time, BERLIN)) for time in inactive] == [False] * len(inactive)


def test_the_night_in_which_clocks_go_forward_is_an_hour_shorter() -> None:
    schedule = Schedule("22:00-06:00", "Europe/Berlin")
    assert _minutes(schedule, "2026-03-28T12:00", 24) == 7 * 60
    assert _minutes(schedule, "2026-03-27T12:00", 24) == 8 * 60


def test_the_night_in_which_clocks_go_back_is_an_hour_longer() -> None:
    schedule = Schedule("22:00-06:00", "Europe/Berlin")
    assert _minutes(schedule, "2026-10-24T12:00", 24) == 9 * 60
    assert _minutes(Schedule("sun 02:00-03:00", "Europe/Berlin"), "2026-10-24T12:00", 24) == 2 * 60
    assert _minutes(Schedule("sun 02:00-03:00", "Europe/Berlin"), "2026-03-28T12:00", 24) == 0


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns"])
def test_what_holds_now_holds_for_the_minute(zone: str) -> None:
    schedule = Schedule("02:00-02:30; 09:15-17:45", zone)
    begin = _utc("2026-04-04T10:00:31")
    for step in range(0, 48 * 3600, 601):
        at = begin + step * SECOND + 5
        active, first, end = schedule.held(at)
        assert first <= at < end
        assert end - first == 60 * SECOND
        assert active == schedule.is_active(first) == schedule.is_active(end - 1) == schedule.is_active(at)


def test_a_rule_follows_its_schedule() -> None:
    """Who stands in a zone enters it when the rule begins, and the stay ends with the rule's time."""
    zone: dict[str, Any] = {"type": "zone", "name": "zone", "points": [[0.4, 0.4], [0.6, 0.4], [0.6, 0.6], [0.4, 0.6]]}
    line: dict[str, Any] = {"type": "line", "name": "line", "points": [[0.5, 0.1], [0.5, 0.9]]}
    hours: dict[str, Any] = {"active": "22:00-22:02", "timezone": "Europe/Berlin"}
    feed = Feed(rules_of(zone | hours, line | hours))
    feed.utc = _utc("2026-11-25T21:59", BERLIN) / SECOND
    for second in range(240):
        feed.show(float(second), {1: standing_at(420.0 if second % 20 < 10 else 580.0, 500)})
    assert feed.told[0] == "zone entered"
    assert feed.told[-1] == "zone left inactive"
    assert feed.events[0].began.pts == 60 * SECOND
    assert feed.events[-1].confirmed.pts == 180 * SECOND
    assert feed.told.count("line crossed forward") + feed.told.count("line crossed backward") == 11


def test_the_time_between_is_that_of_the_zone() -> None:
    new_york, berlin = (Schedule("12:00-13:00", zone) for zone in ("America/New_York", "Europe/Berlin"))
    noon = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
    seen = [(hour, s is berlin) for hour in range(-12, 12) for s in (berlin, new_york)
            if s.is_active(round((noon + timedelta(hours=hour)).timestamp()) * SECOND)]  # fmt: skip
    assert seen == [(-2, True), (4, False)]
