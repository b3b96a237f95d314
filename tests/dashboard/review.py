"""A page over one daemon whose journal has a long past, and a browser in front of it, signed in as a guard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from daemon.analytics.journal_file import JournalFile
from lookoutd.messages import Event, EventAttribute
from tests.support.browsing import OPERATE, PATIENCE_MS, Dashboard, chromium, login
from tests.support.daemon import DEMO_MODEL
from tests.support.served import TOKEN, Served, street

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

PAST, S = 1000, 1_000_000_000
MIDDLE = {"type": "line", "name": "middle", "points": [[0.5, 0.0], [0.5, 1.0]]}
INSTANCE = "5e551071"


@dataclass
class Review:
    """Attributes:
    tab: signed in with the role operate.
    errors: that no script caught, and what the console complained of.
    ids: of the past, oldest first.
    """

    served: Served
    dashboard: Dashboard
    tab: Tab
    ids: list[str]
    errors: list[str] = field(default_factory=list)

    def open(self, query: str = "source=street-1") -> Tab:
        self.tab.goto(f"{self.dashboard.url}/events?{query}")
        self.tab.locator(".event").first.wait_for()
        return self.tab


def past(now: int) -> list[Event]:
    """Two days of a door: people come in pairs, each with an entry and a departure."""
    rows, step = [], 2 * 86_400 * S // PAST
    for number in range(PAST):
        pair, phase = divmod(number, 4)
        track = 2 * pair + (phase & 1) + 1
        at = now - 2 * 86_400 * S + 4 * pair * step + phase * 3 * S
        common = {
            "id": f"{INSTANCE}-{number + 1}", "number": number + 1, "instance": INSTANCE, "source": "street-1",
            "session": "s", "index": 0, "seq": number, "pts": number, "at": at, "confirmed_seq": number,
            "confirmed_at": at, "track": track, "label": "person" if track % 3 else "car",
            "box": (40.0, 20.0, 90.0, 90.0),
        }  # fmt: skip
        if phase < 2:
            picture = f"/api/v1/events/{common['id']}/snapshot.jpg"
            rows.append(Event(kind="zone", phase="entered", rule="door", snapshot=picture, **common))
        elif number % 50 == 2:
            rows.append(
                Event(kind="attribute", phase="settled", attribute=EventAttribute("coat", "red", 0.9), **common)
            )
        else:
            rows.append(Event(kind="zone", phase="left", rule="door", reason="left", **common))
    return rows


def _fill(folder: Path) -> list[str]:
    """The journal, and pictures of the newest events."""
    now = time_ns()
    rows = past(now - 60 * S)
    journal = JournalFile(folder / "events.db", now)
    journal.append(rows, {}, now, 100_000)
    journal.close()
    picture = cv2.imencode(".jpg", np.random.default_rng(7).integers(0, 255, (1080, 1920, 3), np.uint8))[1].tobytes()
    (folder / "pictures").mkdir()
    for row in rows[-200:]:
        (folder / "pictures" / f"{row.id}.jpg").write_bytes(picture)
    return [row.id for row in rows]


@contextmanager
def reviewing(folder: Path) -> Iterator[Review]:
    from playwright.sync_api import expect, sync_playwright

    ids = _fill(folder)
    with ExitStack() as stack:
        sources = [
            street("street-0", width=320, height=180, fps=5, objects=4, tracking=True, rules=[MIDDLE]),
            street("street-1", fps=1),
        ]
        model = {"path": str(DEMO_MODEL), "backend": "cpu", "threads": 1}
        events: dict[str, Any] = {
            "journal": str(folder / "events.db"),
            "snapshots": {"folder": str(folder / "pictures")},
        }
        served = stack.enter_context(Served(folder, sources=sources, model=model, events=events))
        rows = [{"name": "here", "endpoint": served.lookout.endpoint, "http": served.url, "token": TOKEN}]
        (folder / "page").mkdir()
        dashboard = Dashboard(folder / "page", rows, keys={"state_folder": str(folder / "page" / "state")})
        stack.callback(dashboard.close)
        browser = chromium(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, timezone_id="Europe/Berlin", locale="en-GB"
        )
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        review = Review(served, dashboard, context.new_page(), ids)
        context.on("weberror", lambda error: review.errors.append(str(error.error)))
        context.on("console", lambda said: review.errors.append(said.text) if said.type == "error" else None)
        login(review.tab, dashboard.url, OPERATE)
        yield review
