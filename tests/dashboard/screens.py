"""A browser in front of a page with cameras of several shapes; nothing is at the address of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.browsing import PATIENCE_MS, chromium
from tests.support.page import Page, address_of
from tests.support.ports import free_port
from tests.support.served import Served, street

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext
    from playwright.sync_api import Page as Tab

FAKE = {"path": "none.onnx", "backend": "fake"}
WIDE, TALL = 4, 1  # cameras of 16:9 and of 9:16 that are up


@dataclass
class Screens:
    """Attributes:
    tab: of all tests that leave its clock alone: a new one costs as much as a test.
    errors: that no script caught.
    """

    served: Served
    server: Page
    context: BrowserContext
    tab: Tab
    errors: list[str] = field(default_factory=list)

    def open(self, path: str, width: int = 1280, height: int = 800, *, fresh: bool = False) -> Tab:
        tab = self.context.new_page() if fresh else self.tab
        tab.set_viewport_size({"width": width, "height": height})
        tab.goto(self.server.url + path)
        return tab


@contextmanager
def screening(folder: Path) -> Iterator[Screens]:
    from playwright.sync_api import expect, sync_playwright

    with ExitStack() as stack:
        sources = [street(f"street-{number}", width=160, height=90, fps=2) for number in range(WIDE)]
        sources += [street(f"tower-{number}", width=90, height=160, fps=2) for number in range(TALL)]
        sources += [{"id": "lost", "type": "av", "url": f"rtsp://127.0.0.1:{free_port()}/none"}]
        http = {"allow_local": True, "sources_file": str(folder / "sources.json")}
        events = {"journal": str(folder / "events.db")}
        served = stack.enter_context(Served(folder, http, sources=sources, model=FAKE, events=events))
        server = stack.enter_context(Page([address_of(served)]))
        browser = chromium(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        screens = Screens(served, server, context, context.new_page())
        context.on("weberror", lambda error: screens.errors.append(str(error.error)))
        yield screens
