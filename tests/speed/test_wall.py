"""The wall of 150 cameras in a browser: how soon it is there, and how soon it answers.

python -m pytest -s -m speed tests/speed/test_wall.py
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.support.browsing import PATIENCE_MS, Dashboard, chromium, login
from tests.support.daemon import Lookout
from tests.support.ports import free_port

with suppress(ImportError):  # without it this is skipped
    from playwright.sync_api import sync_playwright

pytestmark = [pytest.mark.speed, pytest.mark.needs("chromium", "playwright"), pytest.mark.timeout(600)]

CAMERAS = 150
ANSWER_MS = 500
STILL_MS = 2000
MAX_LIVE = 16
LIVE_TILES = "n => document.querySelectorAll('.tile .picture:not([data-phase=off])').length === n"
COUNT_LIVE = """window.most = 0;
const count = () => {
  window.most = Math.max(window.most, document.querySelectorAll(".tile .picture:not([data-phase=off])").length);
  requestAnimationFrame(count);
};
count();"""
FIRST_STILLS = "n => [...document.querySelectorAll('.tile img')].filter(image => image.naturalWidth).length >= n"
# Types into the search and waits for the picture after it, in turns: with one tile and with all.
ANSWERS = """async ({ cameras, rounds }) => {
  const input = document.querySelector("input[type=search], .bar input");
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const found = [];
  for (let round = 0; round < 2 * rounds; round += 1) {
    const wanted = round % 2 ? cameras : 1;
    const begin = performance.now();
    input.value = round % 2 ? "" : "street-77";
    input.dispatchEvent(new Event("input", { bubbles: true }));
    while (document.querySelectorAll(".tile").length !== wanted) await painted();
    await painted();
    found.push(performance.now() - begin);
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  return found;
}"""


def test_wall_of_150_cameras(tmp_path: Path) -> None:
    drawn: dict[str, Any] = {"type": "synthetic", "width": 160, "height": 90, "fps": 2}
    token, port = "the-daemons-own-token-0123456789", free_port()
    config: dict[str, Any] = {
        "sources": [{"id": f"street-{number}", **drawn} for number in range(CAMERAS)],
        "model": {"path": "none.onnx", "backend": "fake"},
        "http": {"enabled": True, "port": port, "token": token},
    }
    with ExitStack() as stack:
        lookout = stack.enter_context(Lookout(tmp_path, config))
        address = {"endpoint": lookout.endpoint, "http": f"http://127.0.0.1:{port}", "token": token}
        dashboard = Dashboard(tmp_path, [{"name": "here", **address}])
        stack.callback(dashboard.close)
        browser = chromium(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        page = browser.new_page(viewport={"width": 1920, "height": 1080})
        page.set_default_timeout(PATIENCE_MS)
        login(page, dashboard.url)
        page.wait_for_function("n => document.querySelectorAll('.tile .state-up').length === n", arg=CAMERAS)
        page.add_init_script(COUNT_LIVE)
        page.goto(dashboard.url)
        page.wait_for_function("n => document.querySelectorAll('.tile').length === n", arg=CAMERAS, polling="raf")
        tiles = page.evaluate("() => performance.now()")
        page.wait_for_function(FIRST_STILLS, arg=1, polling="raf")
        still = page.evaluate("() => performance.now()")
        page.wait_for_function(FIRST_STILLS, arg=16, polling="raf")
        stills = page.evaluate("() => performance.now()")
        answers = page.evaluate(ANSWERS, {"cameras": CAMERAS, "rounds": 15})
        page.wait_for_function(LIVE_TILES, arg=MAX_LIVE)
        most = page.evaluate("() => window.most")
    text = (
        f"\n{CAMERAS} tiles after {tiles:.0f} ms, the first still after {still:.0f} ms, 16 after {stills:.0f} ms; "
        f"a search is shown after {median(answers):.0f} ms, at most {max(answers):.0f} ms; at most {most} are live"
    )
    sys.stderr.write(text + "\n")
    assert most == MAX_LIVE
    assert still < STILL_MS
    assert median(answers) < ANSWER_MS
