"""A page over one daemon whose journal has a long past, and a browser in front of it, signed in as a guard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from daemon.analytics.journal_file import JournalFile
from daemon.recording.source_recorder import Settings
from lookout.messages import Event, EventAttribute
from tests.recording.rig import Rig
from tests.support.browsing import OPERATE, PATIENCE_MS, Dashboard, chromium
from tests.support.clock import ManualClock
from tests.support.daemon import DEMO_MODEL
from tests.support.recorded import clip
from tests.support.served import TOKEN, Served, street

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext
    from playwright.sync_api import Page as Tab

PAST, S = 1000, 1_000_000_000
MIDDLE = {"type": "line", "name": "middle", "points": [[0.5, 0.0], [0.5, 1.0]]}
INSTANCE = "5e551071"
PRE_S, POST_S = 1, 2
_AROUND = Settings(continuous=False, pre=PRE_S * S, post=POST_S * S, longest=60 * S)


@dataclass
class Review:
    """The source `yard` is off, and has events when it is on.

    Attributes:
        tab: signed in with the role operate.
        ids: of the past of `street-1`, oldest first.
        fresh: an event whose clip is being recorded.
        played, hevc, missing: events with a clip, with one in HEVC, and with one that was never recorded.
        errors: that no script caught, and what the console complained of.
    """

    served: Served
    dashboard: Dashboard
    tab: Tab
    ids: list[str]
    fresh: Event
    played: str
    hevc: str
    missing: str
    errors: list[str] = field(default_factory=list)

    def open(self, query: str = "source=street-1") -> Tab:
        self.tab.goto(f"{self.dashboard.url}/events?{query}")
        self.tab.locator(".event").first.wait_for()
        return self.tab


def sign_in(context: BrowserContext, url: str, token: str) -> None:
    """Without the pages, which would show live cameras."""
    answer = context.request.post(f"{url}/api/login", data={"token": token}, headers={"Origin": url})
    assert answer.ok, answer.text()


def past(now: int) -> list[Event]:
    """Two days of a door: people come in pairs, each with an entry and a departure."""
    rows, step = [], 2 * 86_400 * S // PAST
    for number in range(PAST):
        pair, phase = divmod(number, 4)
        track = 2 * pair + (phase & 1) + 1
        at = now - 2 * 86_400 * S + 4 * pair * step + phase * 3 * S
        common: dict[str, Any] = {
            "id": f"{INSTANCE}-{number + 1}", "number": number + 1, "instance": INSTANCE, "source": "street-1",
            "session": "s", "index": 0, "seq": number, "pts": number, "at": at, "confirmed_seq": number,
            "confirmed_at": at, "track": track, "label": "person" if track % 3 else "car",
            "box": (40.0, 20.0, 90.0, 90.0),
        }  # fmt: skip
        if phase < 2:
            path = f"/api/v1/events/{common['id']}/snapshot.jpg"
            video = f"/api/v1/recordings/street-1/clip.mp4?event={common['id']}" if number >= PAST - 16 else None
            rows.append(Event(kind="zone", phase="entered", rule="door", snapshot=path, clip=video, **common))
        elif number % 50 == 2:
            rows.append(
                Event(kind="attribute", phase="settled", attribute=EventAttribute("coat", "red", 0.9), **common)
            )
        else:
            rows.append(Event(kind="zone", phase="left", rule="door", reason="left", **common))
    return rows


def fill(folder: Path) -> list[Event]:
    """The journal, and pictures of the newest events; returns all events."""
    now = time_ns()
    rows = past(now - 60 * S)
    journal = JournalFile(folder / "events.db", now)
    journal.append(rows, {}, now, 100_000)
    journal.close()
    picture = cv2.imencode(".jpg", np.random.default_rng(7).integers(0, 255, (1080, 1920, 3), np.uint8))[1].tobytes()
    (folder / "pictures").mkdir()
    for row in rows[-200:]:
        (folder / "pictures" / f"{row.id}.jpg").write_bytes(picture)
    return rows


def _record(folder: Path, clips: Path, events: Sequence[tuple[str, Event]]) -> None:
    """A store with what a recorder wrote of events. It ends a second after the last of them.

    Args:
        events: in their order, each with what the camera sent.
    """
    clock = ManualClock()
    clock.step((events[0][1].at - clock.utc_ns()) / S - 3600)
    for kind, event in events:
        clock.advance((event.at - clock.utc_ns()) / S - 3)
        rig = Rig(folder, clip(clips, kind), _AROUND, source="street-1", clock=clock)
        rig.connect(event.id)
        rig.send(3)
        rig.event(event.id)
        rig.send(1)
        if event.id == events[-1][1].id:
            rig.kill()
        else:
            rig.send(5)
            rig.finish()


@contextmanager
def reviewing(folder: Path, clips: Path) -> Iterator[Review]:
    """
    Args:
        folder: empty.
        clips: of recordings, which are made once for all.
    """
    from playwright.sync_api import expect, sync_playwright

    rows = fill(folder)
    fresh, played, hevc, missing = [rows[PAST - 4 * pair] for pair in (1, 2, 3, 4)]
    _record(folder / "store", clips, [("hevc", hevc), ("h264", played), ("h264", fresh)])
    with ExitStack() as stack:
        sources = [
            street("yard", width=320, height=180, fps=5, objects=4, tracking=True, rules=[MIDDLE], enabled=False),
            street("street-0", fps=1),
            street("street-1", fps=1),
        ]
        model = {"path": str(DEMO_MODEL), "backend": "cpu", "threads": 1}
        events: dict[str, Any] = {
            "journal": str(folder / "events.db"),
            "snapshots": {"folder": str(folder / "pictures")},
        }
        stores = {"stores": {"main": {"path": str(folder / "store"), "min_free_gib": 0}}, "port": 0, "mode": "off"}
        served = stack.enter_context(Served(folder, sources=sources, model=model, events=events, record=stores))
        here = {"name": "here", "endpoint": served.lookout.endpoint, "http": served.url, "token": TOKEN}
        (folder / "page").mkdir()
        dashboard = Dashboard(folder / "page", [here], keys={"seen": str(folder / "page" / "seen.jsonl")})
        stack.callback(dashboard.close)
        browser = chromium(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, timezone_id="Europe/Berlin", locale="en-GB"
        )
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        ids = [row.id for row in rows]
        review = Review(served, dashboard, context.new_page(), ids, fresh, played.id, hevc.id, missing.id)
        context.on("weberror", lambda error: review.errors.append(str(error.error)))
        context.on("console", lambda said: review.errors.append(said.text) if said.type == "error" else None)
        sign_in(context, dashboard.url, OPERATE)
        yield review
