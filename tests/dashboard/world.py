"""All that the tests in a browser share: three daemons, two RTSP servers, the page, and a browser that is signed in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Playwright, expect, sync_playwright

from tests.support import clips
from tests.support.browsing import PATIENCE_MS, Dashboard, chromium
from tests.support.daemon import PATIENCE_S, Lookout, wait_until
from tests.support.ports import free_port
from tests.support.rtsp import RtspServer
from tests.support.street_clips import street

API_TOKEN = "the-daemons-own-token-0123456789"  # noqa: S105 - of the daemons that are started here
KERB = {"type": "line", "name": "kerb", "points": [[0.5, 0.0], [0.5, 1.0]]}


@dataclass
class World:
    """All that the tests share.

    Attributes:
        page: signed in with the role operate.
        requested: URLs that the browser asked for.
        complaints: what the browser's console said.
    """

    folder: Path
    configs: dict[str, dict[str, Any]]
    dashboard: Dashboard
    playwright: Playwright
    context: BrowserContext
    page: Page
    daemons: dict[str, Lookout] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def open(self, path: str) -> Page:
        self.page.goto(self.dashboard.url + path)
        return self.page

    def close(self) -> None:
        for lookout in self.daemons.values():
            lookout.close()

    def start(self, name: str) -> None:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.daemons[name] = Lookout(folder, dict(self.configs[name]))


def _config(folder: Path, sources: list[dict[str, Any]], **keys: Any) -> dict[str, Any]:
    return {
        "sources": sources,
        "publisher": {"endpoint": f"tcp://127.0.0.1:{free_port()}"},
        "monitor": {"interval_s": 1.0},
        "http": {"enabled": True, "port": free_port(), "token": API_TOKEN},
        "events": {"journal": str(folder / "journal.sqlite"), "snapshots": {"folder": str(folder / "snapshots")}},
        **keys,
    }


def _configs(folder: Path, h264: str, hevc: str) -> dict[str, dict[str, Any]]:
    drawn: dict[str, Any] = {"type": "synthetic", "width": 320, "height": 180}
    sources: list[dict[str, Any]] = [
        {"id": "gate", "type": "av", "url": h264, "rules": [KERB]},
        {"id": "hevc", "type": "av", "url": hevc, "max_fps": 3},
        {"id": "street", "fps": 5, "objects": 3, "seed": 1001, **drawn},
    ]
    configs = {"yard": _config(folder / "yard", sources, tracking={"enabled": True})}
    fake = {"path": "none.onnx", "backend": "fake"}
    configs["barn"] = _config(folder / "barn", [{"id": "barn-door", "fps": 1, **drawn}], model=fake)
    door = {"id": "shed-door", "fps": 1, "model": "people", **drawn}
    configs["shed"] = _config(folder / "shed", [door], models={"people": fake, "plates": fake})
    return configs


@contextmanager
def started(folder: Path, folder_of_all: Path) -> Iterator[World]:
    """Start all of it.

    Args:
        folder: empty; for configurations and logs.
        folder_of_all: of recordings, which are made once for all processes.
    """
    h264 = clips.once(folder_of_all, "page.mkv", partial(street, seconds=30, times=5))
    hevc = clips.once(folder_of_all, "page-hevc.mkv", partial(street, seconds=5, codec="libx265", times=4))
    with ExitStack() as stack:
        servers = [RtspServer({"street": h264}), RtspServer({"street": hevc}, codec="h265")]
        for server in servers:
            stack.callback(server.kill)
        configs = _configs(folder, *(server.url("street") for server in servers))
        rows = [
            {
                "name": name,
                "endpoint": config["publisher"]["endpoint"],
                "http": f"http://127.0.0.1:{config['http']['port']}",
                "token": API_TOKEN,
            }
            for name, config in configs.items()
        ]
        dashboard = Dashboard(folder, rows)
        stack.callback(dashboard.close)
        playwright = stack.enter_context(sync_playwright())
        browser = chromium(playwright)
        stack.callback(browser.close)
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        world = World(folder, configs, dashboard, playwright, context, context.new_page())
        context.on("request", lambda request: world.requested.append(request.url))
        context.on("console", world.note)
        context.on("weberror", lambda error: world.complaints.append(f"uncaught: {error.error}"))
        stack.callback(world.close)
        for name in configs:
            world.start(name)
        for name, lookout in world.daemons.items():  # the first to track on a machine compiles for ten seconds and more
            wait_until(partial(_is_ready, lookout), f"{name} is ready", timeout_s=4 * PATIENCE_S)
        yield world


def _is_ready(lookout: Lookout) -> bool:
    return '"event": "ready"' in lookout.log()
