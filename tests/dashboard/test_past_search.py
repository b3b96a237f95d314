"""The editor of rules asks the past: a real daemon with a store, the page's server, a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from daemon.clock import SystemClock
from daemon.config.http import DashboardConfig, HttpConfig
from daemon.config.recording import RecordConfig, StoreConfig
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from daemon.rule_config import RuleConfig
from tests.lifetimes.running import STREET, running
from tests.recording.playback_rig import HTTP, OPERATE
from tests.recording.watching import RULES, Watching
from tests.support.clock import ManualClock
from tests.support.page import Page as Server
from tests.support.ports import free_port
from tests.support.recorded import clip

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.needs("chromium", "playwright")
_LINE = RULES[2]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Watching:
    """Half a minute, a quarter of an hour ago."""
    clock, folder = ManualClock(), tmp_path_factory.mktemp("recorded")
    clock.step((SystemClock().utc_ns() - clock.utc_ns()) / 1e9 - 900)
    (folder / "clips").mkdir()
    rig = Watching(folder / "store", clip(folder / "clips", "h264"), clock=clock)
    rig.announce("up")
    rig.show(20, objects=4)
    rig.show(2, objects=4, drops=1.0)
    rig.show(5, objects=4)
    rig.announce("ended")
    rig.finish()
    return rig


@contextmanager
def _browsing(folder: Path, record: RecordConfig) -> Iterator[Page]:
    from playwright.sync_api import expect, sync_playwright

    from tests.support.browsing import PATIENCE_MS, chromium

    rules = [msgspec.convert(rule, RuleConfig) for rule in RULES[:4]]
    source = msgspec.structs.replace(STREET, id="door", fps=5, width=160, height=96, rules=rules)
    http = HttpConfig(enabled=True, port=free_port(), tokens=HTTP.tokens)
    with ExitStack() as stack:
        app = stack.enter_context(running(folder, source, config={"record": record, "http": http}))
        address = DaemonAddress(
            "here", app.parts.endpoint, f"http://127.0.0.1:{http.port}", Secret(OPERATE), is_here=True
        )
        server = stack.enter_context(Server([address], DashboardConfig()))
        browser = chromium(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        page.goto(f"{server.url}/rules/here/door")
        yield page


def test_a_rule_is_asked_of_the_last_hour(rig: Watching, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    from tests.support.browsing import violations

    record = RecordConfig(stores={"main": StoreConfig(rig.folder, min_free_gib=0)}, port=0, mode="off")
    count = len(rig.events(_LINE))
    assert count > 3
    with _browsing(tmp_path, record) as page:
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.locator(".rule-list").get_by_role("button", name="line").focus()
        page.keyboard.press("Enter")
        past = page.get_by_role("region", name="What it would have found")
        past.get_by_role("button", name="Last hour").focus()
        page.keyboard.press("Enter")
        expect(past.get_by_text(f"{count} events in ")).to_be_visible()
        expect(past.get_by_role("listitem").filter(has_text="crossed line")).to_have_count(count)
        past.get_by_text("What could not be seen").click()
        expect(past.get_by_text("Frames were dropped")).to_be_visible()
        still = past.get_by_role("listitem").locator("img").first
        still.scroll_into_view_if_needed()
        page.wait_for_function("(image) => image.complete && image.naturalWidth > 0", arg=still.element_handle())
        link = past.get_by_role("link", name="Open the recording").first
        assert str(link.get_attribute("href")).startswith("/recordings/here/door?at=20")
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert violations(page) == []
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        # What is drawn anew need not be saved, and what was found before is that of before.
        page.get_by_role("button", name="Turn the direction round").click()
        expect(past.get_by_text("The rule has changed since.")).to_be_visible()
        past.get_by_role("button", name="Last day").click()
        expect(past.get_by_text("The rule has changed since.")).to_have_count(0)
        expect(past.get_by_text(f"{count} events in ")).to_be_visible()
        assert complaints == []
