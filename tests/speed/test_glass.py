"""Latency from glass to glass: the camera draws the time, and the page's picture is read back.

LOOKOUT_GLASS_S=1800 python -m pytest -s -m speed tests/speed/test_glass.py
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median, quantiles

import pytest

from tests.support.browsing import PATIENCE_MS, Dashboard, chromium, login
from tests.support.daemon import Lookout
from tests.support.drawn_clock import BITS, BLOCK, ClockCamera
from tests.support.ports import free_port

with suppress(ImportError):  # without it this is skipped
    from playwright.sync_api import sync_playwright

pytestmark = [pytest.mark.speed, pytest.mark.needs("chromium", "playwright", "ffmpeg"), pytest.mark.timeout(7200)]
READ = Path(__file__).with_name("glass.js").read_text()
LIMIT_MS = 500
DRIFT_MS = 100
STILL_MS = 1000


def test_glass_to_glass(tmp_path: Path) -> None:
    """It is short, and as short at the end as at the begin."""
    seconds = float(os.environ.get("LOOKOUT_GLASS_S", "20"))
    with ExitStack() as stack:
        camera = ClockCamera()
        stack.callback(camera.close)
        source = {"id": "clock", "type": "av", "url": camera.url, "kind": "live"}
        port, token = free_port(), "the-daemons-own-token-0123456789"
        http = {"enabled": True, "port": port, "token": token}
        lookout = stack.enter_context(Lookout(tmp_path, {"sources": [source], "http": http}))
        address = {"endpoint": lookout.endpoint, "http": f"http://127.0.0.1:{port}", "token": token}
        dashboard = Dashboard(tmp_path, [{"name": "here", **address}])
        stack.callback(dashboard.close)
        browser = chromium(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        login(page, dashboard.url)
        page.locator(".tile .state-up").wait_for()
        page.goto(dashboard.url)
        page.wait_for_function("() => document.querySelector('.tile img')?.naturalWidth", polling="raf")
        first_still = page.evaluate("() => performance.now()")
        page.goto(f"{dashboard.url}/camera/here/clock")
        page.locator(".picture[data-phase=playing]").wait_for()
        page.wait_for_timeout(3000)
        rows = page.evaluate(READ, {"seconds": seconds, "bits": BITS, "block": BLOCK})
    part = seconds / 10
    first = median(late for at, late in rows if at < part)
    last = median(late for at, late in rows if at > seconds - part)
    late = sorted(row[1] for row in rows)
    sys.stderr.write(
        f"\n{len(rows)} pictures in {seconds:g} s: median {median(late):.0f} ms, 95 % {quantiles(late, n=20)[-1]:.0f} "
        f"ms, longest {late[-1]:.0f} ms; first tenth {first:.0f} ms, last tenth {last:.0f} ms; "
        f"the first still after {first_still:.0f} ms\n"
    )
    assert first_still < STILL_MS
    assert median(late) < LIMIT_MS
    assert last - first < DRIFT_MS
