"""Whether the page shows what is, and keeps what was done, in a browser whose clock is three hours off."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.analytics.feed import Feed, rules_of, standing_at
from tests.dashboard.view import KERB, View
from tests.support.daemon import wait_until
from tests.support.drawn_clock import BITS, BLOCK

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

pytestmark = [pytest.mark.needs("chromium", "playwright", "ffmpeg"), pytest.mark.slow(2)]
WATCHED = Path(__file__).with_name("watched.js").read_text()
LIVE_S = 3.5  # a picture that is called live is no older, on a machine that may be busy
SLOW = 20_000  # bytes a second; the camera sends 190,000


def _watch(tab: Tab, *, seconds: float = 0, until: str = "") -> list[tuple[str, float]]:
    """What the page says, and how old the picture is, s."""
    tab.locator(".stage video").wait_for(state="attached")
    found: list[tuple[str, float]] = tab.evaluate(
        WATCHED, {"seconds": seconds, "until": until, "bits": BITS, "block": BLOCK}
    )
    return found


def _called_live(rows: list[tuple[str, float]]) -> list[float]:
    return [behind for phase, behind in rows if phase == "Live"]


def test_live_is_live_on_a_slow_link_and_while_the_daemon_stands_still(view: View) -> None:
    tab = view.open("/camera/here/clock")
    wait_until(lambda: min(_called_live(_watch(tab, seconds=0.2)), default=9) < 1, "camera and daemon have settled")
    view.proxy.rate = SLOW
    rows = _watch(tab, seconds=5)
    view.proxy.rate = 0
    assert rows[-1][1] < 8
    assert max(_called_live(rows), default=0) < LIVE_S
    assert _called_live(_watch(tab, until="Live"))[-1] < LIVE_S
    view.served.lookout.process.send_signal(signal.SIGSTOP)
    try:
        rows = _watch(tab, until="Late")
    finally:
        view.served.lookout.process.send_signal(signal.SIGCONT)
    assert max(_called_live(rows)) < LIVE_S
    assert _called_live(_watch(tab, until="Live"))[-1] < LIVE_S
    age = tab.locator(".facts div", has_text="Age of the picture").locator("dd").inner_text()
    assert 0 < float(age.removesuffix(" s")) < 60  # not three hours
    tab.close()


@pytest.mark.long
def test_pictures_keep_their_shape(view: View) -> None:
    """On a screen, and on a phone held either way; the editor's shapes lie on the picture."""
    tab = view.open("/")
    places = {"camera": [".stage .picture", ".stage canvas"], "rules": [".editor-picture img", ".editor-picture svg"]}
    for source, ratio in (("street-1", 90 / 120), ("wide", 72 / 58 * 64 / 45)):
        for path, parts in places.items():
            tab.evaluate("path => import('/static/router.js').then(({ go }) => go(path))", f"/{path}/here/{source}")
            tab.locator(parts[0]).wait_for()
            for width, height in ((1280, 800), (740, 360), (390, 844)):
                tab.set_viewport_size({"width": width, "height": height})
                tab.wait_for_function(
                    """([places, ratio]) => places.every((place) => {
                      const { width, height } = document.querySelector(place).getBoundingClientRect();
                      return height > 100 && Math.abs(width / height / ratio - 1) < 0.02;
                    })""",
                    arg=[parts, ratio],
                )
    tab.close()


@pytest.mark.long
def test_another_size_is_shown_without_a_new_connection(view: View) -> None:
    tab = view.open("/camera/here/street-0")
    tab.locator(".frame-exact").wait_for()
    found = tab.evaluate(
        """async () => {
          const { feed } = await import("/static/feed.js");
          const { frameLog, sources } = await import("/static/model.js");
          const message = frameLog("here", "street-0").newest;
          const image = { width: 200, height: 200, pixel_aspect: 1 };
          feed.tell({ kind: "detections", daemon: "here", message: { ...message, pts: message.pts + 1, image } });
          const { width, height } = sources.value.get("here/street-0");
          return [width, height];
        }"""
    )
    assert found == [200, 200]
    tab.close()


def _random_rules(random: Random, count: int) -> list[dict[str, Any]]:
    """Lines and gates in all directions, around the middle of the picture."""

    def line(x: float, y: float, dx: float, dy: float) -> list[list[float]]:
        return [[x - dx, y - dy], [x + dx, y + dy]]

    rules: list[dict[str, Any]] = []
    for number in range(count):
        way = random.choice([(0.15, 0.0), (0.0, 0.15), (0.1, 0.1), (0.1, -0.1)])
        across = -way[1] * 1.2, way[0] * 1.2
        one, other = random.sample([1, -1], 2)
        flips = random.choice([1, -1]), random.choice([1, -1])
        places = [(0.5 + side * way[0] / 2, 0.55 + side * way[1] / 2) for side in (one, other)]
        lines = [line(*place, across[0] * flip, across[1] * flip) for place, flip in zip(places, flips)]
        kind: dict[str, Any] = {"type": "gate", "lines": lines} if number % 2 else {"type": "line", "points": lines[0]}
        rules.append({"name": f"r{number}", **kind})
    return rules


def test_arrows_point_where_the_daemon_counts_forward(view: View) -> None:
    """Objects walk along the arrow of each rule, and the daemon counts them."""
    rules, size = _random_rules(Random(7), 40), 1000
    tab = view.open("/sources")
    arrows = tab.evaluate(
        """async ([rules, size]) => {
          const { arrowOf } = await import("/static/arrows.js");
          const { fromConfig, reverse } = await import("/static/editor/shapes.js");
          const scaled = (rule) => rule.parts.map((points) => points.map(([x, y]) => [x * size, y * size]));
          const arrow = (rule) => arrowOf(rule.type, scaled(rule))[0];
          return rules.map(fromConfig).map((rule) => [arrow(rule), arrow(reverse(rule))]);
        }""",
        [rules, size],
    )
    tab.close()
    for rule, (forward, turned) in zip(rules, arrows):
        for (start, end), direction in ((forward, "forward"), (turned, "backward")):
            dx, dy = (end[0] - start[0]), (end[1] - start[1])
            far = 300 / (dx * dx + dy * dy) ** 0.5
            x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
            feed = Feed(rules_of(rule), (size, size))
            for step in range(21):
                share = far * (step - 10) / 10
                feed.show(step * 0.1, {1: standing_at(x + share * dx, y + share * dy, 60, 30)})
            assert [event.direction for event in feed.events] == [direction], (rule, start, end)


@pytest.mark.long
def test_arrows_are_at_the_camera_and_in_the_editor(view: View) -> None:
    gate = {"type": "gate", "name": "gate", "lines": [[[0.35, 0.1], [0.35, 0.9]], [[0.65, 0.1], [0.65, 0.9]]]}
    assert view.served.client.patch("/api/v1/sources/street-0", json={"rules": [gate]}).is_success
    tab = view.open("/camera/here/street-0")
    for name in ("Boxes", "Tails"):
        tab.get_by_label(name).uncheck()
    tab.wait_for_function(  # its head, at the second line alone
        """() => {
          const canvas = document.querySelector(".stage canvas");
          const drawn = (share, from) => canvas.getContext("2d")
            .getImageData(Math.round(share * canvas.width) + from, Math.round(canvas.height / 2) - 7, 5, 4)
            .data.some((value) => value > 100);
          return !drawn(0.35, 5) && drawn(0.65, -10);
        }"""
    )
    tab.get_by_role("link", name="Edit rules").click()
    way = """() => {
      const [from, to] = [...document.querySelector(".shape-gate .arrow").getAttribute("d").matchAll(/[ML]([\\d.]+)/g)];
      return Math.sign(to[1] - from[1]);
    }"""
    tab.locator(".shape-gate .arrow").first.wait_for(state="attached")
    assert tab.evaluate(way) == 1
    tab.get_by_role("button", name="Gate gate").click()
    tab.get_by_role("button", name="Turn the direction round").click()
    assert tab.evaluate(way) == -1
    assert view.served.client.patch("/api/v1/sources/street-0", json={"rules": [KERB]}).is_success
    tab.close()


def _draw(tab: Tab, kind: str, *points: tuple[float, float]) -> None:
    tab.get_by_role("button", name=kind, exact=True).click()
    box = tab.locator(".editor-picture svg").bounding_box()
    assert box is not None
    for x, y in points:
        tab.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])
    tab.keyboard.press("Enter")


def test_nobody_erases_the_work_of_another_in_silence(view: View) -> None:
    from playwright.sync_api import expect

    one, other = view.open("/rules/here/street-0"), view.open("/camera/here/street-0")
    other.get_by_role("link", name="Edit rules").click()
    _draw(other, "Zone", (0.2, 0.2), (0.4, 0.2), (0.4, 0.6))
    _draw(one, "Line", (0.7, 0.2), (0.7, 0.8))
    one.get_by_role("button", name="Save rules").click()
    expect(one.get_by_text("The rules are saved and apply now.").first).to_be_visible()
    other.get_by_role("button", name="Save rules").click()
    alert = other.get_by_role("alert")
    expect(alert).to_contain_text("New: line-1.")
    assert [rule["name"] for rule in view.config("street-0")["rules"]] == ["kerb", "line-1"]
    # What was drawn is not lost by leaving either, unless somebody says so.
    with other.expect_event("dialog") as asked:
        other.once("dialog", lambda dialog: dialog.dismiss())
        other.evaluate("() => history.back()")
    assert "without saving" in asked.value.message
    other.wait_for_url("**/rules/**")
    expect(other.get_by_role("button", name="Zone zone-1")).to_be_visible()
    alert.get_by_role("button", name="Save mine over theirs").click()
    expect(alert).to_have_count(0)
    expect(other.get_by_text("The rules are saved and apply now.").first).to_be_visible()
    assert [rule["name"] for rule in view.config("street-0")["rules"]] == ["kerb", "zone-1"]
    expect(one.get_by_role("button", name="Zone zone-1")).to_be_visible()  # nothing of its own was unsaved
    # Changes of other keys are no conflict.
    assert view.served.client.patch("/api/v1/sources/street-0", json={"confidence": 0.3}).is_success
    one.get_by_role("button", name="Zone zone-1").click()
    one.get_by_role("button", name="Remove", exact=True).click()
    one.get_by_role("button", name="Save rules").click()
    wait_until(
        lambda: (one.title(), [rule["name"] for rule in view.config("street-0")["rules"]])[1] == ["kerb"], "saved"
    )
    assert view.config("street-0")["confidence"] == 0.3
    other.close()
    one.close()


def _listed(tab: Tab) -> set[str]:
    script = "() => [...document.querySelectorAll('.event')].flatMap((row) => row.dataset.events.split(' '))"
    found: list[str] = tab.evaluate(script)
    return set(found)


def test_what_happened_while_the_server_was_away_is_listed_afterwards(view: View) -> None:
    def kept() -> list[str]:
        rows = view.served.client.get("/api/v1/events", params={"limit": 1000}).json()["events"]
        return [row["id"] for row in rows]

    wait_until(kept, "something happened")
    tab = view.open("/events?type=line")
    tab.locator(".event").first.wait_for()
    view.server.close()
    view.proxy.cut()
    before = len(kept())
    wait_until(lambda: len(kept()) > before, "more happened")
    unseen = set(kept()[before:])
    view.restart()
    wait_until(lambda: unseen <= _listed(tab), "all of it is listed")
    # A dialog closes on the list that it was opened from.
    tab.locator(".event-main").first.click()
    tab.get_by_role("dialog").wait_for()
    tab.keyboard.press("Escape")
    tab.get_by_role("dialog").wait_for(state="detached")
    assert tab.url.endswith("/events?type=line")
    tab.close()


def test_no_camera_is_known_while_no_daemon_is(view: View) -> None:
    tab = view.open("/")
    tab.locator(".tile").first.wait_for()
    script = """async () => {
      const { daemons, sources } = await import("/static/model.js");
      sources.set(new Map());
      daemons.set(new Map([["here", { name: "here", state: "away", reason: "it is gone" }]]));
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      return document.body.innerText;
    }"""  # the real daemon's next message says otherwise, perhaps before it is drawn
    wait_until(lambda: "Not reached: here (it is gone)." in tab.evaluate(script), "it is said")
    tab.close()
    assert view.errors == []
