"""The account of a bridge through the page, and the page of it in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from time import time_ns

import msgspec
import pytest
from starlette.applications import Starlette

from daemon.bridge.report import BridgeReport, FigureAccount, TargetReport
from daemon.dashboard.bridges import Bridges
from daemon.dashboard.watched import Facts, WatchedDaemon
from tests.bridge.reports import report, target
from tests.dashboard.unsent import unsent, watch
from tests.support.asgi import InProcess, event_loop
from tests.support.clock import ManualClock
from tests.support.daemon import wait_until
from tests.support.page import Page
from tests.support.ports import free_port
from tests.support.told_bridge import ToldBridge

_NOW = time_ns()
_MINUTE = 60_000_000_000


def _account() -> BridgeReport:
    since = _NOW - 10 * _MINUTE
    home = target("home", since=since, figures=FigureAccount(received=9, sent=6, thinned=3), repeated=4)
    phone = target(
        "phone", "away", type="ntfy", since=since, reason="[Errno 111] Connection refused", retry_in_s=3600.0,
        received=30, delivered=12, thinned=3, dropped={"stale": 2}, spooled=13, oldest_s=540.0,
    )  # fmt: skip
    hook = target("hook", "connecting", type="webhook", since=_NOW + 60 * _MINUTE)
    return msgspec.structs.replace(report(home, phone, hook), at=_NOW)


@pytest.fixture
def told() -> Iterator[ToldBridge]:
    with ToldBridge(_account()) as found:
        yield found


def _knows(page: Page, name: str = "here") -> None:
    wait_until(lambda: {row["name"]: row for row in page.get("/api/daemons")}[name]["bridge"], "it knows the bridge")


def test_the_account_comes_as_the_bridge_tells_it_and_is_asked_for_once_for_all_viewers(told: ToldBridge) -> None:
    clock, daemon = ManualClock(), WatchedDaemon(told.address(), 0.0)
    daemon.note_facts(msgspec.convert({"bridge": told.told}, Facts), 0.0)
    with event_loop() as loop:
        client = InProcess(Starlette(routes=Bridges(lambda _: daemon, clock).routes(lambda handler: handler)), loop)
        found = client.get("/api/bridge/here").json
        assert [(row["name"], row["state"], row["spooled"]) for row in found["targets"]] == [
            ("home", "up", 0), ("phone", "away", 13), ("hook", "connecting", 0)
        ]  # fmt: skip
        assert [client.get("/api/bridge/here").json for _ in range(5)] == [found] * 5
        assert told.asked == 1
        clock.advance(3)
        client.get("/api/bridge/here")
        assert told.asked == 2


def test_why_there_is_no_account_is_said(told: ToldBridge) -> None:
    with ToldBridge(_account()) as away, ToldBridge(_account()) as other, ToldBridge(_account()) as none:
        away.told = {"port": free_port()}
        other.told = {"port": int(told.url.rpartition(":")[2])}  # a daemon's API, and no bridge
        none.told = None
        addresses = [away.address("away"), other.address("other"), none.address("none")]
        with Page(addresses, awaits=()) as page:
            _knows(page, "away")
            _knows(page, "other")
            for name, status, reason in (
                ("away", 503, "the bridge of away does not answer"),
                ("other", 502, "the bridge of other answers 404"),
                ("none", 404, "set bridge.port in its configuration"),
                ("nobody", 404, "no such daemon"),
            ):
                answer = page.client.get(f"/api/bridge/{name}")
                assert answer.status_code == status
                assert reason in answer.json()["error"]


@pytest.mark.needs("chromium", "playwright")
@pytest.mark.long
def test_an_operator_sees_which_target_is_away_and_what_waits(told: ToldBridge) -> None:
    from playwright.sync_api import expect, sync_playwright

    from tests.support.browsing import PATIENCE_MS, chromium, violations

    def targets(*rows: TargetReport) -> None:
        told.report = report(*rows)

    with Page([told.address()], awaits=()) as page, sync_playwright() as playwright:
        _knows(page)
        browser = chromium(playwright)
        shown = browser.new_page(viewport={"width": 1280, "height": 800})
        shown.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        watch(shown)
        shown.goto(page.url)
        shown.get_by_role("button", name="trouble").click()
        tray = shown.get_by_role("region", name="Troubles")
        expect(tray.get_by_text("Target phone of here's bridge")).to_be_visible()
        expect(tray).to_contain_text("Away: nothing answers there (connection refused)")
        expect(tray).to_contain_text("Next try in")
        expect(tray).not_to_contain_text("hook")  # it is not away for long
        tray.get_by_role("link", name="Target phone").click()
        expect(shown.get_by_role("heading", name="Bridge of here")).to_be_visible()
        row = shown.get_by_role("row", name="phone")
        for words in ("Away", "13", "the oldest for 9 min", "too old: 2", "3 too soon after another"):
            expect(row).to_contain_text(words)
        expect(shown.get_by_role("row", name="home")).to_contain_text("6 sent, 3 thinned")
        found = {}
        for width, scheme in ((1280, "dark"), (1280, "light"), (390, "dark")):
            shown.set_viewport_size({"width": width, "height": 844})
            shown.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            wide = shown.evaluate("document.documentElement.scrollWidth - innerWidth")
            found[width, scheme] = (violations(shown), wide > 0)
        assert found == dict.fromkeys(found, ([], False))
        targets(target("home"), target("phone", type="ntfy", dropped={"refused": 1}))
        expect(row).to_contain_text("refused: 1")
        targets(target("home"), target("phone", type="ntfy", dropped={"refused": 2}))
        expect(row).to_contain_text("refused: 2")
        shown.set_viewport_size({"width": 1280, "height": 800})
        shown.get_by_role("button", name="1 trouble").or_(shown.get_by_role("button", name="2 troubles")).click()
        expect(tray).to_contain_text("Records were dropped")
        assert unsent(shown) == []
        browser.close()
