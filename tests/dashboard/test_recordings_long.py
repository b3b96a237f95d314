"""The past in a browser, for longer: hundreds of seeks, a day of eight cameras, scrubbing, Firefox.

python -m pytest -s -m long tests/dashboard/test_recordings_long.py
LOOKOUT_MINUTES=30 python -m pytest -s -m long tests/dashboard/test_recordings_long.py -k scrubbing
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from inspect import signature
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING

import pytest

from lookout.messages import Event
from tests.dashboard import test_recordings_page as chromium_tests
from tests.dashboard.past_world import Writer, daemons, event, iso, page_of, past_world, say
from tests.dashboard.test_recordings_page import DOOR, FOLLOW, SCRIPT, VIEWS, check_seeks
from tests.support.browsing import PATIENCE_MS, chromium, firefox, violations
from tests.support.devtools import BareTab
from tests.support.numbered import of_session, stretched
from tests.support.past import Past
from tests.support.recorded import SECOND

with suppress(ImportError):  # without it all of these are skipped
    from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.dashboard.past_world import PastWorld
    from tests.support.page import Page

pytestmark = [pytest.mark.long, pytest.mark.needs("chromium", "playwright", "ffmpeg")]
CAMERAS = 8
HOURS = 24
FILE_S, GAP_AT = 900, 2700
SCRUBBING_S = 60 * float(os.environ.get("LOOKOUT_MINUTES", "1.5"))
SEEKS_OF_FIREFOX = int(os.environ.get("LOOKOUT_SEEKS", "40"))
PICTURES = [(path, scheme, width) for path, _, _ in VIEWS[1:3] for scheme in ("light", "dark") for width in (390, 1280)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, folder_of_all: Path) -> Iterator[PastWorld]:
    with past_world(tmp_path_factory.mktemp("past"), folder_of_all) as found:
        yield found


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory, folder_of_all: Path) -> Iterator[tuple[Page, int]]:
    """A day of eight cameras: files of a quarter of an hour, with a gap in each hour, and an event in each file."""
    folder = tmp_path_factory.mktemp("day")
    begin = (int(time.time()) // 3600 - HOURS) * 3600 * SECOND
    with closing(Past(folder / "store")) as past:
        writer = Writer(past, folder_of_all)
        clip = stretched(writer.clip("plain", 0, 20, (160, 90)), FILE_S // 20)
        events: list[Event] = []
        for camera in range(CAMERAS):
            for place in range(HOURS * 3600 // FILE_S):
                hour, part = divmod(place * FILE_S, 3600)
                if part == GAP_AT:
                    continue
                at = begin + place * FILE_S * SECOND
                stream = of_session(clip, f"{camera:02}{hour:02}{int(part > GAP_AT)}")
                past.write(f"cam-{camera}", stream, at, claimed=place % 3 == 0)
                events.append(event(len(events) + 1, f"cam-{camera}", at + 5 * SECOND))
        with daemons(folder, {"here": ({"main": past}, events)}) as addresses, page_of(addresses) as page:
            yield page, begin


# The first: one Playwright runs at a time, and `world` has its own to the end.
@pytest.fixture
def tab() -> Iterator[Tab]:
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(PATIENCE_MS)
        yield context.new_page()
        browser.close()


def test_a_day_of_eight_cameras_is_drawn_at_once(day: tuple[Page, int], tab: Tab) -> None:
    """From the address of the day to all bars, and from there to a picture: no answer is large."""
    page, begin = day
    sizes: dict[str, int] = {}
    tab.on("response", lambda answer: sizes.update({answer.url: int(answer.headers.get("content-length") or 0)}))
    tab.goto(page.url + "/")
    tab.get_by_role("heading", name="Wall").wait_for()
    moment = iso(begin + 3600 * SECOND)
    tab.evaluate(SCRIPT)
    took = tab.evaluate(
        "([path, count]) => drawDay(path, count)", [f"/recordings?from={moment}&zoom={23 * 3600}", CAMERAS]
    )
    strip = tab.get_by_role("slider", name="Recordings of cam-3")
    for _ in range(12):
        strip.press("+")
    strip.press("Enter")
    tab.locator(".past-shown").wait_for()
    api = {url: size for url, size in sizes.items() if "/api/" in url}
    largest = max(api, key=lambda url: api[url])
    say(f"a day of {CAMERAS} cameras: drawn after {took:.0f} ms; {len(api)} answers, {sum(api.values())} bytes, the "
          f"largest {api[largest]} ({largest[-60:]})")  # fmt: skip
    assert api[largest] < 200_000


@pytest.mark.timeout(600 + 2 * SCRUBBING_S)
def test_scrubbing_does_not_grow(day: tuple[Page, int], tmp_path: Path) -> None:
    """Seeks all over the day, for minutes: the tab's process stays as it is, and gives its caches back."""
    page, begin = day
    random, rows, least = Random(3), list[tuple[int, int]](), list[int]()
    with closing(BareTab(tmp_path / "profile")) as tab:
        tab.goto(f"{page.url}/recordings/here/cam-0?at={iso(begin + 3600 * SECOND)}&zoom=86400")
        tab.wait("document.querySelector('.past-shown') !== null")
        tab.evaluate(FOLLOW)
        begun, count = time.monotonic(), 0
        for third in (1, 2, 3):
            while time.monotonic() < begun + SCRUBBING_S * third / 3:
                for _ in range(20):
                    at = begin + random.randrange(HOURS * 3600) * SECOND
                    tab.evaluate(f"follow('/recordings/here/cam-0?at={iso(at)}')")
                    time.sleep(random.choice((0.03, 0.12)))
                    count += 1
                rows.append((tab.heap(), tab.resident()))
            tab.relieve()
            least.append(tab.resident())
        last = iso(begin + 7200 * SECOND)
        tab.evaluate(f"follow('/recordings/here/cam-0?at={last}')")
        tab.wait(f"document.querySelector('.past-shown')?.dateTime === '{last}'")  # it still shows what is asked for
    (heap, last_heap), (memory, last_memory) = (_early_and_late([row[place] for row in rows]) for place in (0, 1))
    tenths = [round(rows[len(rows) * tenth // 10][1] / 2**20) for tenth in range(10)]
    say(f"{count} seeks in {SCRUBBING_S:.0f} s: heap {heap:.1f} MiB, at last {last_heap:.1f}; the tab's process "
        f"{memory:.0f} MiB, at last {last_memory:.0f}; by tenths of the time {tenths}; after each third, without its "
        f"caches, {[round(one / 2**20) for one in least]}")  # fmt: skip
    assert last_heap < heap * 1.25 + 1
    assert last_memory < memory + 4
    assert least[2] < least[0] + 4 * 2**20


def _early_and_late(values: Sequence[int]) -> tuple[float, float]:
    """Of the second and of the last third, MiB."""
    third = len(values) // 3
    return median(values[third : 2 * third]) / 2**20, median(values[2 * third :]) / 2**20


# --- sessions, gaps, borders of files and sizes -----------------------------------------------------------------------


def test_hundreds_of_seeks(world: PastWorld) -> None:
    tab = world.open(f"{DOOR}?at={world.at(1)}")
    tab.evaluate(SCRIPT)
    tab.locator(".past-shown").wait_for()
    took = check_seeks(world, tab, 300, 7)
    tab.close()
    say(f"seek to shown picture: median {median(took):.0f} ms, most {max(took):.0f} ms of {len(took)}")


def test_axe_finds_nothing(world: PastWorld) -> None:
    tab = world.open("/recordings")
    for path, scheme, width in PICTURES:
        tab.set_viewport_size({"width": width, "height": 800})
        tab.emulate_media(color_scheme=scheme)
        tab.goto(world.page.url + path.format(at=world.at(22)))
        tab.get_by_role("slider").first.wait_for()
        assert violations(tab) == []
    tab.close()


# --- Firefox ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fire(world: PastWorld) -> Iterator[PastWorld]:
    """The same page in Firefox."""
    browser = firefox(world.playwright)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    found = replace(world, context=context, complaints=[])
    context.on("console", found.note)
    yield found
    browser.close()
    assert not found.complaints


@pytest.fixture
def fox(fire: PastWorld) -> Iterator[Tab]:
    tab = fire.open(f"{DOOR}?at={fire.at(1)}&zoom=200")
    tab.evaluate(SCRIPT)
    tab.locator(".past-shown").wait_for()
    yield tab
    tab.close()


@pytest.mark.needs("firefox-esr")
def test_firefox_shows_the_same_pictures(fire: PastWorld, fox: Tab) -> None:
    """Random moments, over sessions, gaps, borders of files and sizes."""
    took = check_seeks(fire, fox, SEEKS_OF_FIREFOX, 5)
    frame, video, canvas = fox.evaluate("() => placesOf('.picture', '.picture video', '.picture canvas')")
    assert video == pytest.approx(frame, abs=0.5)
    assert canvas == pytest.approx(frame, abs=0.5)
    say(f"Firefox, seek to shown picture: median {median(took):.0f} ms, most {max(took):.0f} ms of {len(took)}")


@pytest.mark.needs("firefox-esr")
@pytest.mark.parametrize(
    "check",
    [
        chromium_tests.test_playing_goes_over_borders_and_gaps,
        chromium_tests.test_pictures_and_events_forwards_and_back,
        chromium_tests.test_the_newest_picture_is_followed,
        chromium_tests.test_two_stores_are_one_timeline,
        chromium_tests.test_several_cameras_are_on_one_clock,
        chromium_tests.test_a_moment_that_is_not_recorded_says_why,
        chromium_tests.test_the_bar_is_read_zoomed_and_kept_in_the_address,
        chromium_tests.test_axe_finds_nothing,
    ],
)
def test_firefox_does_the_same(fire: PastWorld, fox: Tab, check: Callable[..., None]) -> None:
    known = {"world": fire, "tab": fox}
    check(**{name: known[name] for name in signature(check).parameters})


@pytest.mark.needs("firefox-esr")
def test_firefox_tells_the_picture_that_it_shows(fire: PastWorld, fox: Tab) -> None:
    """While it plays as well: the boxes are those of this picture, or of its neighbour."""
    fox.evaluate("(path) => seekTo(path)", f"{DOOR}?at={fire.at(0.5)}")
    fox.evaluate("() => void frames_.splice(0)")
    fox.keyboard.press("Space")
    fox.wait_for_function("(at) => timesOf('.past-shown')[0] > at", arg=fire.at(36))
    frames = fox.evaluate("() => frames_.splice(0)")
    apart = [(row["number"] - fire.numbers[row["session"], round(row["pts"])], row["mediaTime"]) for row in frames]
    assert len(apart) > 200
    assert all(abs(pictures) <= 2 for pictures, _ in apart), [row for row in apart if abs(row[0]) > 2]


@pytest.mark.needs("firefox-esr")
def test_firefox_plays_hevc(fire: PastWorld, fox: Tab) -> None:
    """Debian's does, so no stills stand in for it."""
    fox.goto(f"{fire.page.url}/recordings/here/hevc?at={fire.at(1.01)}")
    fox.evaluate(SCRIPT)
    fox.locator(".past-shown").wait_for()
    fox.wait_for_function("() => document.querySelector('.past-picture video').videoWidth === 320")
    fox.keyboard.press("k")
    fox.wait_for_function("(at) => timesOf('.past-shown')[0] > at", arg=fire.at(1.6))
    assert fox.locator(".past-picture img").is_hidden()
