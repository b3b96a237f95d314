"""A daemon with recordings of the last half hour, its page, and a browser before it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.analytics.journal_file import JournalFile
from daemon.config.events import EventsConfig
from daemon.config.http import DashboardConfig, TokenConfig
from daemon.config.recording import RecordConfig, StoreConfig
from daemon.config.sources import SyntheticConfig
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from lookout.messages import Event
from tests.lifetimes.running import running
from tests.recording.playback_rig import HTTP, OPERATE
from tests.support import browsing
from tests.support.browsing import PATIENCE_MS, chromium
from tests.support.daemon import wait_until
from tests.support.numbered import box_of, numbered
from tests.support.page import Page
from tests.support.past import Box, Past
from tests.support.ports import free_port
from tests.support.recorded import SECOND, Clip
from tests.support.recorded import clip as recorded_clip

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Playwright, Response
    from playwright.sync_api import Page as Tab

STREET = SyntheticConfig(id="street", fps=1, width=16, height=16, objects=1)
SMALL, LARGE = (320, 180), (480, 270)
TOKENS = [TokenConfig(role, role, Secret(token)) for role, token in browsing.ROLES.items()]  # type: ignore[arg-type]


@dataclass
class PastWorld:
    """
    Attributes:
        numbers: of pictures of `door`, by session and pts.
        complaints: what the browser's console said.
        sizes: of answers of the page's API, by URL.
    """

    past: Past
    page: Page
    playwright: Playwright
    context: BrowserContext
    begin: int
    clip: Callable[..., Clip]
    daemons: list[DaemonAddress]
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def at(self, seconds: float) -> str:
        """A moment as addresses have it."""
        return iso(self.begin + round(seconds * SECOND))

    def open(self, path: str) -> Tab:
        tab = self.context.new_page()
        tab.goto(self.page.url + path)
        return tab

    def note(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "the server responded with a status of 4" not in message.text:
            self.complaints.append(message.text)

    def measure(self, response: Response) -> None:
        length = response.headers.get("content-length")
        if "/api/" in response.url and length is not None:
            self.sizes[response.url] = int(length)


def say(figures: str) -> None:
    """To whom runs the tests with `-s`."""
    sys.stdout.write(f"\n{figures}\n")


def iso(ns: int) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(ns // SECOND))}.{ns % SECOND // 1_000_000:03}Z"


def event(number: int, source: str, at: int, session: str = "a1", pts: int | None = None) -> Event:
    """Something passed the door."""
    return Event(
        id=f"past-{number}", number=number, instance="past", source=source, session=session, index=0, kind="line",
        phase="crossed", seq=number, pts=pts, at=at, confirmed_seq=number, confirmed_at=at, rule="kerb",
        direction="forward", track=number, label="thing",
    )  # fmt: skip


class Writer:
    """Puts numbered clips into a store."""

    def __init__(self, past: Past, clips: Path) -> None:
        self._past, self._clips = past, clips
        self.numbers: dict[tuple[str, int], int] = {}

    def clip(self, kind: str, first: int, seconds: int, size: tuple[int, int] = SMALL, session: str = "a1") -> Clip:
        return numbered(self._clips, kind, first=first, seconds=seconds, size=size, session=session)

    def put(self, source: str, begin: int, clip: Clip, first: int, **more: Any) -> None:
        size = clip.stream.width, clip.stream.height
        self._past.write(source, clip, begin, boxes=partial(_boxes, first, size), **more)
        for one in self._past.shown[source][-len(clip.samples) :]:
            self.numbers[one.session, one.pts] = first + one.number


def _boxes(first: int, size: tuple[int, int], number: int) -> list[Box]:
    return [box_of(first + number, *size)]


def write_door(writer: Writer, begin: int) -> None:
    """Sessions, gaps, borders of files, sizes and B-frames of `door`, in 140 s."""
    put = partial(writer.put, "door")
    put(begin, writer.clip("plain", 0, 20), 0)
    put(begin + 20 * SECOND, writer.clip("plain", 500, 20), 500, claimed=True)  # a border of files
    put(begin + 50 * SECOND, writer.clip("b", 1000, 20, session="b2"), 1000, detail="no answer")
    larger = writer.clip("b", 1500, 10, LARGE, "c3")
    put(begin + 70 * SECOND + 300_000_000, larger, 1500, cause="no_key")
    put(begin + 120 * SECOND, writer.clip("plain", 0, 20, session="d4"), 0, cause="disk_full")


@contextmanager
def past_world(folder: Path, clips: Path) -> Iterator[PastWorld]:
    from playwright.sync_api import expect, sync_playwright

    begin = (int(time.time()) - 1800) * SECOND
    with ExitStack() as stack:
        past = stack.enter_context(closing(Past(folder / "store")))
        writer = Writer(past, clips)
        write_door(writer, begin)
        writer.put("yard", begin + 10 * SECOND, writer.clip("plain", 0, 20), 0)
        past.write("hevc", recorded_clip(clips, "hevc"), begin)
        writer.put("hevc", begin + 60 * SECOND, writer.clip("plain", 0, 4, session="h6"), 0)
        other = stack.enter_context(closing(Past(folder / "other")))
        past.write("hall", writer.clip("plain", 0, 4), begin)
        past.write("hall", writer.clip("plain", 200, 4), begin + 8 * SECOND, cause="disk_slow")
        other.write("hall", writer.clip("plain", 100, 4, session="e5"), begin + 4 * SECOND)
        events = [event(n, "door", begin + s * SECOND) for n, s in ((1, 5), (2, 25), (3, 55), (4, 125))]
        addresses = stack.enter_context(daemons(folder, {"here": ({"main": past, "nas": other}, events)}))
        page = stack.enter_context(page_of(addresses))
        playwright = stack.enter_context(sync_playwright())
        browser = chromium(playwright)
        stack.callback(browser.close)
        context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
        context.set_default_timeout(PATIENCE_MS)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        expect.set_options(timeout=PATIENCE_MS)
        world = PastWorld(past, page, playwright, context, begin, writer.clip, addresses, writer.numbers)
        context.on("console", world.note)
        context.on("weberror", lambda error: world.complaints.append(f"uncaught: {error.error}"))
        context.on("response", world.measure)
        yield world


@contextmanager
def daemons(folder: Path, stores: dict[str, tuple[dict[str, Past], list[Event]]]) -> Iterator[list[DaemonAddress]]:
    """Daemons.

    Args:
        stores: of each, by name, and the events of its journal.
    """
    with ExitStack() as stack:
        addresses = []
        for name, (own_stores, events) in stores.items():
            own = folder / name
            own.mkdir()
            with closing(JournalFile(own / "events.db", time.time_ns())) as journal:
                for one in events:
                    journal.append([one], {}, one.at, 100_000)
            http = msgspec.structs.replace(HTTP, enabled=True, port=free_port())
            places = {key: StoreConfig(past.path, min_free_gib=0) for key, past in own_stores.items()}
            record = RecordConfig(stores=places, port=0, mode="off")
            config = {"record": record, "http": http, "events": EventsConfig(journal=str(own / "events.db"))}
            app = stack.enter_context(running(own, STREET, config=config))
            url = f"http://127.0.0.1:{http.port}"
            addresses.append(DaemonAddress(name, app.parts.endpoint, url, Secret(OPERATE), is_here=True))
        yield addresses


@contextmanager
def page_of(addresses: Sequence[DaemonAddress]) -> Iterator[Page]:
    """The page of some daemons, which needs no login."""
    with Page(addresses, awaits=()) as page:
        wait_until(lambda: all(_serves(page, row.name) for row in addresses), "recordings are served")
        yield page


@contextmanager
def served_with_login(world: PastWorld) -> Iterator[str]:
    """Another page of the same daemon, where people log in; returns its URL."""
    with Page(world.daemons, DashboardConfig(tokens=TOKENS), awaits=()) as page:
        page.client.post("/api/login", json={"token": browsing.OPERATE})
        wait_until(lambda: _is_known(page, "here"), "it knows the daemon")
        yield page.url


def _serves(page: Page, name: str) -> bool:
    answer = page.client.get(f"/api/recordings/{name}")
    return answer.is_success and answer.json()["stores"][0]["state"] == "up" and _is_known(page, name)


def _is_known(page: Page, name: str) -> bool:
    return any(row["name"] == name and row["recordings"] for row in page.get("/api/daemons"))
