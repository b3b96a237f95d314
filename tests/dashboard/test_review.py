"""The review of events in a browser: groups, marks, keys, filters, and a list that stays quick."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from time import time
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from tests.dashboard.review import POST_S, PRE_S, reviewing, sign_in
from tests.support.browsing import OPERATE, VIEW, answer_of, violations
from tests.support.daemon import wait_until

with suppress(ImportError):  # without it all of these are skipped
    from playwright.sync_api import Page as Tab
    from playwright.sync_api import Request, expect

if TYPE_CHECKING:
    from tests.dashboard.review import Review

pytestmark = [pytest.mark.needs("chromium", "playwright", "ffmpeg"), pytest.mark.slow(2)]
S = 1_000_000_000
FOCUSED = "() => document.activeElement.closest('.event')?.dataset.events ?? null"
GROUPED = """async (rows) => {
  const { groupsOf } = await import("/static/review/grouping.js");
  return groupsOf(rows).map((group) => group.cards.map((card) => card.events.map((event) => event.id)));
}"""
GROWN = """async (rows) => {
  const { groupsOf } = await import("/static/review/grouping.js");
  const idsOf = (groups) => groups.map((group) => group.cards.map((card) => card.events.map((event) => event.id)));
  return rows.map((_, n) => idsOf(groupsOf(rows.slice(0, n + 1))));
}"""
TIMED = """async (rows) => {
  const { groupsOf } = await import("/static/review/grouping.js");
  const begin = performance.now();
  groupsOf(rows);
  return performance.now() - begin;
}"""
DRAWN = """async (key) => {
  const begin = performance.now();
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  return performance.now() - begin;
}"""


@pytest.fixture(scope="module")
def review(tmp_path_factory: pytest.TempPathFactory, folder_of_all: Path) -> Iterator[Review]:
    with reviewing(tmp_path_factory.mktemp("review"), folder_of_all) as found:
        yield found


def _event(number: int, at_s: float, phase: str, track: int | None, **more: Any) -> dict[str, Any]:
    kind = "crowd" if track is None else "zone"
    common = {"id": f"i-{number}", "number": number, "instance": "i", "source": "door", "daemon": "d", "kind": kind}
    return {**common, "at": round(at_s * S), "phase": phase, "track": track, "rule": "step", "label": "person", **more}


def _grouped(tab: Tab, rows: list[dict[str, Any]]) -> Any:
    return tab.evaluate(GROUPED, rows)


def test_a_track_is_a_card_and_what_overlaps_is_a_group(review: Review) -> None:
    rows = [
        _event(1, 4, "entered", 1),
        _event(2, 12, "entered", 2),  # follows within some seconds
        _event(3, 40, "entered", 3),  # while 1 and 2 are there still
        _event(4, 41, "left", 1),
        _event(5, 42, "left", 2),
        _event(6, 45, "left", 3),
        _event(7, 46, "crossed", 3, rule="kerb"),  # another rule
        _event(8, 57, "crossed", 4, rule="kerb"),  # too late: nobody is there any more
        _event(9, 58, "crossed", 1, instance="j"),  # a new run begins its tracks anew
        _event(10, 58, "crossed", 1, source="yard"),  # another camera
        _event(11, 70, "over", None, count=4),
        _event(12, 80, "under", None),
        _event(13, 82, "over", None, count=5),
    ]
    expected = [
        [["i-11", "i-12"], ["i-13"]],
        [["i-10"]],
        [["i-8"], ["i-9"]],
        [["i-1", "i-4"], ["i-2", "i-5"], ["i-3", "i-6", "i-7"]],
    ]
    tab = review.open()
    assert _grouped(tab, rows) == expected
    for seed in range(5):  # in whatever order they come
        Random(seed).shuffle(rows)
        assert _grouped(tab, rows) == expected


def test_a_car_that_stays_holds_no_group_open_for_ever(review: Review) -> None:
    """And what it does an hour later is not hidden in its first card."""
    rows = [_event(1, 0, "entered", 1)]
    rows += [_event(number, 60.0 * number, "crossed", number, rule="kerb") for number in range(2, 12)]
    rows.append(_event(99, 3600, "left", 1))
    groups = _grouped(review.open(), rows)
    assert groups[0] == [["i-99"]]
    assert [len(group) for group in groups[1:]] == [1] * 6 + [5]


def test_a_newer_event_changes_no_other_group(review: Review) -> None:
    """Of random pasts: what was shown stays as it was, but for the card or the group that the event comes to."""
    tab, random = review.open(), Random(5)
    phases = ("entered", "left", "crossed", "dwell", "appeared")
    at, rows, before = 0.0, list[dict[str, Any]](), list[Any]()
    for number in range(100):
        at += random.choice([0, 0.5, 3, 9, 11, 40])
        rows.append(_event(number, at, random.choice(phases), random.randrange(12)))
    grown = tab.evaluate(GROWN, rows)
    for count, now in enumerate(grown):
        id = rows[count]["id"]
        without = [[[one for one in card if one != id] for card in group] for group in now]
        without = [group for group in ([card for card in group if card] for group in without) if group]
        assert without == before, id
        before = now


def _listed(tab: Tab) -> list[str]:
    found: list[str] = tab.evaluate(
        "() => [...document.querySelectorAll('.event')].flatMap((row) => row.dataset.events.split(' '))"
    )
    return found


def _is_focused(tab: Tab) -> bool:
    """Whether the focus is on a row, in sight, and not below the header."""
    found: bool = tab.evaluate(
        """() => { const row = document.activeElement; const box = row.getBoundingClientRect();
        return row.matches(".event-main") && getComputedStyle(row).outlineStyle !== "none" && box.top >= 50
          && box.bottom <= innerHeight; }"""
    )
    return found


def test_the_keyboard_alone_marks_a_hundred_events_which_outlive_a_kill_of_the_page(review: Review) -> None:
    tab = review.open("source=street-1&seen=no")
    marked = set[str]()
    tab.keyboard.press("j")
    for turn in range(60):
        here = tab.evaluate(FOCUSED)
        marked.update(here.split())
        if not turn % 10:
            assert _is_focused(tab)
        tab.keyboard.press("s" if turn % 2 else "x")
        tab.wait_for_function(f"(before) => ({FOCUSED})() !== before", arg=here)
        if len(marked) >= 100:
            break
    assert len(marked) >= 100
    assert _is_focused(tab)
    tab.keyboard.press("k")
    last = set(tab.evaluate(FOCUSED).split())
    assert last <= marked
    tab.keyboard.press("u")
    marked -= last

    def kept() -> set[str]:
        rows = answer_of(tab, "/api/events?source=street-1&seen=yes&limit=200")["events"]
        return {row["id"] for row in rows}

    wait_until(lambda: kept() == marked, "the marks are kept")
    review.dashboard.process.send_signal(signal.SIGKILL)
    review.dashboard.process.wait()
    review.dashboard.restart()
    sign_in(tab.context, review.dashboard.url, OPERATE)
    assert kept() == marked
    tab = review.open("source=street-1&seen=yes")
    assert set(_listed(tab)) == marked
    expect(tab.locator(".event-by").first).to_contain_text("Seen by operate")
    expect(tab.locator(".event:not(.is-seen)")).to_have_count(0)


def test_another_viewer_sees_a_mark_at_once_and_may_not_make_one(review: Review) -> None:
    few = "source=street-1&attribute=coat%3Dred"  # and without pictures
    tab = review.open(few)
    context = tab.context.browser.new_context()
    other = context.new_page()
    sign_in(context, review.dashboard.url, VIEW)
    other.goto(f"{review.dashboard.url}/events?{few}")
    row = tab.locator(".event:not(.is-seen)").first
    id = (row.get_attribute("data-events") or "").split()[0]
    seen = other.locator(f".event.is-seen[data-events~='{id}']")
    other.locator(f".event[data-events~='{id}']").wait_for()
    expect(seen).to_have_count(0)
    row.get_by_role("button", name="Seen").click()
    expect(seen.locator(".event-by")).to_contain_text("Seen by operate")
    expect(other.get_by_role("button", name="Seen")).to_have_count(0)
    other.keyboard.press("j")
    other.keyboard.press("s")
    expect(other.get_by_role("status").filter(has_text="You may view.")).to_be_visible()
    context.close()
    tab.keyboard.press("u")
    expect(tab.locator(f".event.is-seen[data-events~='{id}']")).to_have_count(0)


@pytest.mark.long
def test_a_row_does_not_move_under_the_pointer(review: Review) -> None:
    def switch(*, on: bool) -> None:
        assert review.served.client.patch("/api/v1/sources/yard", json={"enabled": on}).is_success

    switch(on=True)
    tab = review.open("source=yard")
    box = tab.locator(".event").first.bounding_box()
    assert box
    tab.mouse.move(box["x"] + 200, box["y"] + box["height"] / 2)
    first = _listed(tab)[0]
    fresh = tab.locator(".fresh button")
    fresh.wait_for()
    row = tab.locator(f".event[data-events~='{first}']").bounding_box()
    assert row
    assert (row["y"], row["height"]) == (box["y"], box["height"])
    words = fresh.inner_text()
    assert words.endswith(" new")
    count = len(_listed(tab))
    tab.keyboard.press(".")
    wait_until(lambda: len(_listed(tab)) > count, "they are shown")
    tab.mouse.move(5, 5)
    count = len(_listed(tab))
    wait_until(lambda: len(_listed(tab)) > count, "others appear by themselves")
    switch(on=False)


def _show_older(tab: Tab, days: int) -> None:
    button = tab.get_by_role("button", name="Older events")
    while tab.locator("h2.day").count() < days:
        count = len(_listed(tab))
        button.click()
        wait_until(partial(_has_more, tab, count), "they are shown")


def _has_more(tab: Tab, count: int) -> bool:
    return len(_listed(tab)) > count


def test_filters_are_in_the_address_and_days_have_dates(review: Review) -> None:
    tab = review.open("")
    expect(tab.get_by_text(re.compile(r"Times are those of Europe/Berlin \(UTC\+[12]\)\."))).to_be_visible()
    tab.get_by_label("Camera", exact=True).select_option("street-1")
    _show_older(tab, 2)
    days = tab.locator("h2.day").all_inner_texts()
    assert len(set(days)) == len(days) >= 2
    assert all(re.search(r"day.* \d+ .* 20\d\d$", day) for day in days), days
    tab.get_by_label("Attribute").select_option("coat=red")
    expect(tab.locator(".event-words").first).to_contain_text("coat is red")
    expect(tab.locator(".event", has_text="entered")).to_have_count(0)
    assert "attribute=coat%3Dred" in tab.url
    address = tab.url
    tab.locator(".event-main").first.click()
    tab.get_by_role("dialog").wait_for()
    tab.go_back()
    tab.get_by_role("dialog").wait_for(state="detached")
    assert tab.url == address
    expect(tab.locator(".event-words").first).to_contain_text("coat is red")
    width = tab.get_by_label("From").bounding_box()
    assert width
    assert width["width"] > 200  # date and time of day


@pytest.mark.long
def test_the_dialog_goes_on_with_the_next_card(review: Review) -> None:
    tab = review.open()
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    dialog = tab.get_by_role("dialog")
    expect(dialog.locator(".phases li")).to_have_count(2)
    first = dialog.locator("h2").inner_text()
    tab.keyboard.press("j")
    expect(dialog.locator("h2")).not_to_have_text(first)
    second = dialog.locator("h2").inner_text()
    tab.keyboard.press("k")
    expect(dialog.locator("h2")).to_have_text(first)
    tab.keyboard.press("j")
    expect(dialog.locator("h2")).to_have_text(second)
    tab.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert tab.url.endswith("/events?source=street-1")
    wait_until(lambda: tab.evaluate(FOCUSED), "the focus is on its row")


@pytest.mark.long
def test_pictures_in_the_list_are_small(review: Review) -> None:
    done: list[Request] = []
    context = review.tab.context.browser.new_context()
    sign_in(context, review.dashboard.url, VIEW)  # it has no copies yet
    tab = context.new_page()
    tab.on("requestfinished", lambda request: done.append(request) if "/snapshot" in request.url else None)
    tab.goto(f"{review.dashboard.url}/events?source=street-1")
    shown = "() => [...document.querySelectorAll('.thumb img')].filter((one) => one.naturalWidth).length > 4"
    tab.wait_for_function(shown)
    while len(done) < 3:  # what the browser has done is told here later
        tab.wait_for_timeout(50)
    pictures = [request.sizes()["responseBodySize"] for request in done]
    whole = len(tab.request.get(f"{review.dashboard.url}/api/events/here/{review.played}/snapshot").body())
    sys.stdout.write(f"\n{len(pictures)} pictures of a list: {sum(pictures)} bytes; a whole one has {whole}\n")
    assert max(pictures) < whole / 20  # of noise, which is the worst
    assert tab.evaluate("() => document.querySelector('.thumb img').naturalWidth") <= 240
    context.close()


@pytest.mark.long
def test_a_thousand_events_stay_quick(review: Review) -> None:
    tab = review.open()
    button = tab.get_by_role("button", name="Older events")
    while button.is_visible():
        count = len(_listed(tab))
        button.click()
        wait_until(lambda: len(_listed(tab)) > count or not button.is_visible(), "they are shown")  # noqa: B023
    assert set(_listed(tab)) == set(review.ids)
    rows = [_event(number, number * 0.6, "entered" if number % 2 else "left", number // 2) for number in range(1000)]
    taken = tab.evaluate(TIMED, rows)
    tab.keyboard.press("j")
    steps = sorted(tab.evaluate(DRAWN, "j") for _ in range(30))
    marks = sorted(tab.evaluate(DRAWN, "s") for _ in range(30))
    middle = [round(times[15], 1) for times in (steps, marks)]
    sys.stdout.write(
        f"\n1,000 events in {tab.locator('.event').count()} rows: grouped in {taken:.1f} ms; a step is drawn after"
        f" {middle[0]} ms, a mark after {middle[1]} ms (medians; two frames of 16.7 ms are the least)\n"
    )
    for _ in range(30):
        tab.keyboard.press("u")
    expect(tab.get_by_role("status").filter(has_text="nothing to take back")).to_have_count(0)


@pytest.mark.long
def test_a_clip_plays_on_its_row_one_at_a_time_and_says_why_it_does_not(review: Review) -> None:
    tab = review.open()
    tab.emulate_media(reduced_motion="no-preference")
    ids = (review.played, review.hevc, review.missing)
    row, hevc, missing = (tab.locator(f".event[data-events~='{id}']") for id in ids)
    row.locator(".event-main").hover()
    tab.wait_for_function("() => document.querySelector('.thumb video')?.currentTime > 0.2")
    assert tab.evaluate("() => document.querySelector('.thumb video').muted")
    hevc.locator(".event-main").hover()
    expect(hevc.locator(".thumb-words")).to_have_text("This browser cannot play the clip.")
    expect(hevc.locator("img")).to_be_visible()
    expect(tab.locator("video")).to_have_count(0)
    missing.locator(".event-main").focus()
    expect(missing.locator(".thumb-words")).to_contain_text("nothing was recorded")
    tab.emulate_media(reduced_motion="reduce")
    tab.mouse.move(5, 5)
    row.locator(".event-main").hover()
    row.locator(".event-main").focus()
    tab.wait_for_timeout(600)  # longer than a pointer must rest
    expect(tab.locator("video")).to_have_count(0)
    tab.keyboard.press("Space")  # asked for
    tab.wait_for_function("() => document.querySelector('.thumb video')?.currentTime > 0.2")
    tab.keyboard.press("Space")
    expect(tab.locator("video")).to_have_count(0)


def test_a_clip_is_kept_taken_and_opened(review: Review) -> None:
    def locks() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = answer_of(tab, "/api/recordings/here/street-1/locks")["locks"]
        return found

    def keep(id: str) -> dict[str, Any]:
        tab.locator(f".event[data-events~='{id}'] .event-main").focus()
        assert locks() == []
        tab.keyboard.press("l")
        wait_until(lambda: len(locks()) == 1, "it is kept")
        expect(tab.get_by_role("status").filter(has_text="is kept")).to_be_visible()
        lock: dict[str, Any] = locks()[0]["lock"]
        assert lock["reason"] == f"event {id}"
        tab.keyboard.press("u")
        wait_until(lambda: locks() == [], "it is kept no longer")
        return lock

    tab = review.open()
    lock, at = keep(review.fresh.id), review.fresh.at
    assert abs(lock["begin"] - at + PRE_S * S) < S // 5
    assert abs(lock["end"] - at - POST_S * S) < S // 5  # which is not recorded yet
    lock = keep(review.played)
    assert abs(lock["end"] - lock["begin"] - (PRE_S + POST_S) * S) < S // 5
    with tab.expect_download() as download:
        tab.keyboard.press("d")
    assert download.value.suggested_filename.startswith("street-1-")
    tab.keyboard.press("Enter")
    dialog = tab.get_by_role("dialog")
    link = dialog.get_by_role("link", name="Open in the recordings").get_attribute("href") or ""
    assert re.fullmatch(r"/recordings/here/street-1\?at=20\d\d-\d\d-\d\dT\d\d%3A\d\d%3A\d\d\.\d{3}Z", link)
    dialog.get_by_role("button", name="Play").click()
    tab.wait_for_function("() => document.querySelector('dialog video')?.currentTime > 0.2")
    tab.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def _problems(tab: Tab) -> dict[str, list[str]]:
    found = {}
    for scheme in ("dark", "light"):
        tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        if problems := violations(tab):
            found[scheme] = problems
    return found


def test_everybody_can_use_it(review: Review) -> None:
    """Axe finds nothing in the list, an open group, the dialog and the help; on a phone nothing is too wide."""
    since = datetime.fromtimestamp(time() - 2400, ZoneInfo("Europe/Berlin"))  # a few groups: axe looks at each
    tab = review.open(f"source=street-1&after={since:%Y-%m-%dT%H:%M:%S}")
    tab.locator(".event button[aria-expanded]").first.click()
    found = {"list": _problems(tab)}
    tab.locator(".event-main").first.click()
    tab.get_by_role("dialog").locator(".facts").wait_for()
    found["dialog"] = _problems(tab)
    tab.keyboard.press("Escape")
    tab.get_by_role("dialog").wait_for(state="detached")
    tab.keyboard.press("?")
    tab.get_by_role("dialog").wait_for()
    found["help"] = _problems(tab)
    tab.keyboard.press("Escape")
    tab.set_viewport_size({"width": 390, "height": 780})
    tab.get_by_role("button", name="Filters").click()
    tab.get_by_label("Rule").wait_for()
    found["phone"] = _problems(tab)
    wide = tab.evaluate("() => document.documentElement.scrollWidth")
    tab.set_viewport_size({"width": 1280, "height": 800})
    assert (found, wide <= 390) == ({name: {} for name in found}, True)


def test_nothing_was_complained_of(review: Review) -> None:
    harmless = ("Failed to load resource", "WebSocket connection")
    assert [text for text in review.errors if not text.startswith(harmless)] == []
