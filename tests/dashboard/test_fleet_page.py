"""The page of a fleet, in a browser: two daemons, a real etcd, an operator with a keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.unsent import unsent, watch
from tests.fleet.etcd_server import EtcdServer
from tests.fleet.processes import Daemons
from tests.support.served import TOKEN

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.needs("chromium", "playwright", "etcd-server", "etcd-client")


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    with ExitStack() as stack:
        server = EtcdServer(tmp_path / "etcd")
        stack.callback(server.close)
        server.start()
        found = stack.enter_context(closing(Daemons(tmp_path, server, "yard")))
        for name in ("barn", "shed"):
            found.start(name)
        found.add("street-1", "street-2", "street-3", "street-4")
        found.add("moon", affinity={"site": "moon"})
        found.wait_for_members("barn", "shed")
        found.wait_until_owned(4)
        yield found


@pytest.fixture
def page(daemons: Daemons, tmp_path: Path) -> Iterator[Page]:
    from playwright.sync_api import expect, sync_playwright

    from tests.support.browsing import PATIENCE_MS, Dashboard, chromium, login

    rows = [{"name": name, "http": f"http://127.0.0.1:{port}", "token": TOKEN} for name, port in daemons.ports.items()]
    with closing(Dashboard(tmp_path, rows)) as dashboard, sync_playwright() as playwright:
        browser = chromium(playwright)
        shown = browser.new_page(viewport={"width": 1280, "height": 800})
        shown.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        watch(shown)
        login(shown, dashboard.url)
        yield shown
        browser.close()


@pytest.mark.long
def test_an_operator_drains_a_member(daemons: Daemons, page: Page) -> None:
    from playwright.sync_api import expect

    from tests.support.browsing import violations

    page.get_by_role("link", name="Fleet").click()
    page.get_by_role("heading", name="yard").wait_for()
    expect(page.get_by_text("5 sources, 4 owned, 1 unplaced.")).to_be_visible()
    expect(page.get_by_role("row", name="moon")).to_contain_text("no member has the label site=moon")
    page.get_by_label("Search sources and members").fill("street-2")
    expect(page.get_by_role("row", name="street-2")).to_contain_text("Owned")
    found = {}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found[scheme] = violations(page)
    assert found == {"dark": [], "light": []}

    page.get_by_role("button", name="Drain barn").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    assert violations(page) == []
    page.get_by_label("Reason").fill("new disk")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("row", name=re.compile("^barn"))).to_contain_text("Drained")
    expect(page.get_by_role("row", name=re.compile("^barn"))).to_contain_text("new disk")
    daemons.wait_until_owned(4)
    assert set(daemons.owners().values()) == {"shed"}
    page.get_by_role("button", name="Undrain barn").press("Enter")
    expect(page.get_by_role("row", name=re.compile("^barn"))).to_contain_text("Ready")

    assert unsent(page) == []
    # A member is lost. Its sources are shown once, where they are now, and so is one whose old address is opened.
    daemons.running["shed"].process.kill()
    page.get_by_role("link", name="Wall", exact=True).click()
    expect(page.get_by_role("heading", name="Wall")).to_contain_text("4 cameras, all up")
    expect(page.locator(".tile small").first).to_have_text("barn")
    assert daemons.owners().keys() == {"street-1", "street-2", "street-3", "street-4"}
    page.goto(page.url + "camera/shed/street-1")
    page.wait_for_url("**/camera/barn/street-1")
    expect(page.locator("h1 .state")).to_have_text("Up")
