"""The past in a browser, for longer: hundreds of seeks, a day of eight cameras, scrubbing, Firefox.

python -m pytest -s -m long tests/dashboard/test_recordings_long.py
LOOKOUT_MINUTES=30 python -m pytest -s -m long tests/dashboard/test_recordings_long.py -k scrubbing
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from lookoutd.messages import Event
from tests.dashboard.past_world import Writer, daemons, event, iso, page_of, past_world, say
from tests.dashboard.test_recordings_page import DOOR, SCRIPT, VIEWS, check_seeks
from tests.support.browsing import PATIENCE_MS, chromium, firefox, violations
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


def test_scrubbing_does_not_grow(day: tuple[Page, int], tab: Tab) -> None:
    """Seeks all over the day, for minutes: the memory of the tab stays as it is."""
    page, begin = day
    seconds = 60 * float(os.environ.get("LOOKOUT_MINUTES", "1.5"))
    tab.goto(f"{page.url}/recordings/here/cam-0?at={iso(begin + 3600 * SECOND)}&zoom=86400")
    tab.evaluate(SCRIPT)
    tab.locator(".past-shown").wait_for()
    session = tab.context.new_cdp_session(tab)
    random, heaps, end = Random(3), [], time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        for _ in range(20):
            at = begin + random.randrange(HOURS * 3600) * SECOND
            tab.evaluate("(path) => follow(path)", f"/recordings/here/cam-0?at={iso(at)}")
            tab.wait_for_timeout(random.choice((30, 120)))
            count += 1
        session.send("HeapProfiler.collectGarbage")
        heaps.append(_heap(session))
    third = len(heaps) // 3
    early, late = median(heaps[third : 2 * third]), median(heaps[2 * third :])
    say(f"{count} seeks in {seconds:.0f} s: heap {early / 2**20:.1f} MiB, at last {late / 2**20:.1f}")
    assert late < early * 1.25 + 2**20


def _heap(session: Any) -> int:
    return int(session.send("Runtime.getHeapUsage")["usedSize"])


@pytest.mark.needs("firefox-esr")
def test_firefox_shows_the_same_pictures(world: PastWorld) -> None:
    browser = firefox(world.playwright)
    try:
        tab = browser.new_page()
        tab.set_default_timeout(PATIENCE_MS)
        tab.goto(f"{world.page.url}{DOOR}?at={world.at(1)}")
        tab.evaluate(SCRIPT)
        tab.locator(".past-shown").wait_for()
        took = check_seeks(world, tab, 40, 5)
        say(f"Firefox, seek to shown picture: median {median(took):.0f} ms, most {max(took):.0f} ms")
    finally:
        browser.close()
