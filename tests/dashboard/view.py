"""One browser in front of one daemon, with a network between it and the page's server. Its clock is three hours off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support import clips
from tests.support.browsing import PATIENCE_MS, chromium
from tests.support.daemon import DEMO_MODEL
from tests.support.drawn_clock import ClockCamera
from tests.support.page import Page, address_of
from tests.support.proxy import Proxy
from tests.support.served import Served, street

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext
    from playwright.sync_api import Page as Tab

_WRONG_CLOCK = "{ const now = Date.now.bind(Date); Date.now = () => now() + 3 * 3600 * 1000; }"
_NOISE, _FPS = 30, 10  # rows of the camera's picture, and pictures a second: 190 kB
KERB = {"type": "line", "name": "kerb", "points": [[0.5, 0.0], [0.5, 1.0]]}


@dataclass
class View:
    """Attributes:
    errors: that no script caught.
    """

    served: Served
    server: Page
    proxy: Proxy
    context: BrowserContext
    errors: list[str]

    def open(self, path: str) -> Tab:
        tab = self.context.new_page()
        tab.goto(f"http://127.0.0.1:{self.proxy.port}{path}")
        return tab

    def config(self, source: str) -> dict[str, Any]:
        found: dict[str, Any] = self.served.client.get(f"/api/v1/sources/{source}").json()["config"]
        return found

    def close(self) -> None:
        self.server.close()

    def restart(self) -> None:
        """Another server of the page, at the same address."""
        self.server = Page([address_of(self.served)])
        self.proxy.target = self.server.port


@contextmanager
def viewing(folder: Path) -> Iterator[View]:
    from playwright.sync_api import expect, sync_playwright

    with ExitStack() as stack:
        camera = stack.enter_context(closing(ClockCamera(_NOISE, _FPS)))
        wide = clips.pattern(folder / "wide.mkv", seconds=20, size="72x58", fps=2, aspect="64/45")
        sources = [
            street("street-0", width=320, height=180, fps=8, objects=5, tracking=True, rules=[KERB]),
            street("street-1", width=90, height=120, fps=2),
            {"id": "clock", "type": "av", "url": camera.url, "kind": "live", "max_fps": 2},
            {"id": "wide", "type": "av", "url": str(wide), "loop": True, "max_fps": 2},
        ]
        model = {"path": str(DEMO_MODEL), "backend": "cpu", "threads": 1}
        events = {"journal": str(folder / "events.db")}
        served = stack.enter_context(Served(folder, {"allow_local": True}, sources=sources, model=model, events=events))
        server = Page([address_of(served)])
        proxy = stack.enter_context(closing(Proxy(server.port)))
        browser = chromium(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(_WRONG_CLOCK)
        expect.set_options(timeout=PATIENCE_MS)
        view = View(served, server, proxy, context, [])
        context.on("weberror", lambda error: view.errors.append(str(error.error)))
        stack.callback(view.close)
        yield view
