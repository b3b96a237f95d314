"""The pictures of docs/dashboard.md, and what Firefox plays. Both are made on request.

python -m pytest -m long tests/dashboard/test_pictures.py
LOOKOUT_SCREENSHOTS=docs/images/dashboard python -m pytest -m long tests/dashboard/test_pictures.py
"""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon.recording.causes import Cause
from daemon.sources.scene import Scene
from lookout.messages import Event
from tests.dashboard.past_world import daemons, event, iso, page_of
from tests.support.browsing import OPERATE, PATIENCE_MS, chromium, firefox, login
from tests.support.numbered import clip_of
from tests.support.past import Box, Past
from tests.support.recorded import SECOND
from tests.support.street_clips import FPS, scene_of_clips, street

with suppress(ImportError):  # without it all of these are skipped
    from playwright.sync_api import Page, expect, sync_playwright

if TYPE_CHECKING:
    from tests.dashboard.world import World

pytestmark = [pytest.mark.long, pytest.mark.needs("chromium", "playwright", "ffmpeg", "rtsp")]
MAX_BYTES = 1_200_000
ADD = """async (row) => { const answer = await fetch("/api/sources/yard",
  { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(row) });
  return [answer.status, await answer.text()]; }"""
ZONE = {"type": "zone", "name": "crossing", "points": [[0.3, 0.05], [0.72, 0.08], [0.78, 0.95], [0.24, 0.95]]}


def _shot(page: Page, folder: Path, name: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.locator("main h1").wait_for()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.picture')].every((one) => one.dataset.phase === 'playing'"
        " || one.querySelector('img').naturalWidth)"
    )
    page.wait_for_timeout(2500)  # figures and tails; pictures are looked at, and not asserted
    page.screenshot(path=folder / f"{name}.jpg", type="jpeg", quality=68)


# The first: one Playwright runs at a time, and `world` has its own to the end.
def test_pictures_of_recordings(tmp_path: Path) -> None:
    """The past on a desk, a phone and a wall."""
    folder = Path(os.environ.get("LOOKOUT_SCREENSHOTS", tmp_path)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.time_ns() // (3600 * SECOND) * 3600 * SECOND - 7200 * SECOND
    with ExitStack() as stack:
        past = stack.enter_context(closing(Past(tmp_path / "store")))
        events = _write_streets(past, street(tmp_path / "street.ts", seconds=60), begin)
        addresses = stack.enter_context(daemons(tmp_path, {"yard": ({"main": past}, events)}))
        server = stack.enter_context(page_of(addresses))
        browser = chromium(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        played = f"/recordings/yard/gate?at={iso(begin + 1843 * SECOND)}&zoom=3600"
        for path, name, scheme, size in (
            (f"/recordings?from={iso(begin)}&zoom=7200", "recordings-screen", "dark", (1920, 1080)),
            (f"/recordings?from={iso(begin)}&zoom=7200", "recordings-light", "light", (1280, 800)),
            (played, "player-light", "light", (1280, 1100)),
            (played, "player-phone", "dark", (390, 780)),
        ):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            page.emulate_media(color_scheme=scheme)
            page.goto(server.url + path)
            page.get_by_role("slider").first.wait_for()
            page.wait_for_timeout(2500)  # pictures are looked at, and not asserted
            page.screenshot(path=folder / f"{name}.jpg", type="jpeg", quality=68)


def test_pictures(world: World, tmp_path: Path) -> None:
    """Light and dark, on a desk, a phone and a wall."""
    folder = Path(os.environ.get("LOOKOUT_SCREENSHOTS", tmp_path)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    login(world.page, world.dashboard.url, OPERATE)
    page = world.open("/")
    expect(page.locator(".tile .state-up")).to_have_count(5)
    drawn = {"type": "synthetic", "width": 640, "height": 360, "fps": 2, "tracking": True}
    rows = [{"id": f"street-{seed}", "seed": seed, "rules": [ZONE], **drawn} for seed in range(1, 8)]
    for row in rows:
        status, text = page.evaluate(ADD, row)
        assert status == 201, text
    expect(page.locator(".tile .state-up")).to_have_count(12)
    page.set_viewport_size({"width": 1280, "height": 800})
    _shot(page, folder, "wall-light", "light")
    _shot(world.open("/camera/yard/gate"), folder, "camera-dark", "dark")
    _shot(world.open("/rules/yard/street-1"), folder, "rules-light", "light")
    yard = world.open("/health").get_by_role("region", name=re.compile("^yard"))
    expect(page.locator(".daemon .charts")).to_have_count(3)
    yard.evaluate("(one) => scrollTo(0, one.getBoundingClientRect().top - 60)")
    _shot(page, folder, "health-dark", "dark")
    _shot(world.open("/events"), folder, "events-light", "light")
    page.set_viewport_size({"width": 390, "height": 780})
    _shot(world.open("/camera/yard/gate"), folder, "phone", "light")
    page.set_viewport_size({"width": 1920, "height": 1080})
    _shot(world.open("/"), folder, "wall-screen", "dark")
    page.set_viewport_size({"width": 1280, "height": 720})
    _shot(world.open("/?layout=1%2B7&pin=yard%2Fstreet-3&find=street&full=1"), folder, "wall-large-one", "dark")
    world.daemons["shed"].close()
    page.goto(f"{world.dashboard.url}/camera/yard/gate")
    page.get_by_role("button", name="1 trouble").click()
    _shot(page, folder, "troubles", "light")
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.jpg")}
    assert sum(sizes.values()) < MAX_BYTES, sizes


def _write_streets(past: Past, path: Path, begin: int) -> list[Event]:
    """Two hours of four cameras, with gaps."""
    scene, events = scene_of_clips(), list[Event]()
    for camera, (name, gone) in enumerate(
        {"gate": (40, 41), "hall": (), "kerb": (55, 56, 57, 90), "yard": (7,)}.items()
    ):
        for minute in range(115):
            if minute in gone:
                continue
            clip = clip_of(path, FPS, f"{camera:02}{minute:03}")
            cause: Cause = ("source_down", "no_event", "disk_slow", "network")[camera]
            at = begin + minute * 60 * SECOND
            is_wanted = (minute + camera) % 7 == 0
            past.write(name, clip, at, cause=cause, claimed=is_wanted, boxes=lambda n: _boxes(scene, n))
            if is_wanted:
                events.append(event(len(events) + 1, name, at + 9 * SECOND))
    return sorted(events, key=lambda row: row.at)


def _boxes(scene: Scene, number: int) -> list[Box]:
    return [tuple(float(end) for end in box.xyxy) for box in scene.truth(number)]  # type: ignore[misc]


@pytest.mark.needs("firefox-esr")
def test_firefox(world: World) -> None:
    """Video with its boxes, of HEVC as well, which Chromium cannot play without a GPU."""
    browser = firefox(world.playwright)
    try:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        login(page, world.dashboard.url, OPERATE)
        for source in ("gate", "hevc"):
            page.goto(f"{world.dashboard.url}/camera/yard/{source}")
            page.locator(".picture[data-phase=playing]").wait_for()
            expect(page.locator(".frame-exact")).to_have_text("Analysed")
    finally:
        browser.close()
