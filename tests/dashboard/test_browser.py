"""The whole page in a browser: real daemons, a real RTSP server, Debian's Chromium. The tests share all of it."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from daemon.geometry import crossing, edges_of, is_inside, touching_edges
from tests.analytics.feed import LABELS, Box, Feed, rules_of, standing_at
from tests.dashboard.unsent import unsent, visit, watch
from tests.support.browsing import OPERATE, VIEW, answer_of, login, violations
from tests.support.street_clips import colours

with suppress(ImportError):  # without it all of these are skipped
    from playwright.sync_api import Page, expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dashboard.world import World

pytestmark = [pytest.mark.needs("chromium", "playwright", "ffmpeg", "rtsp"), pytest.mark.slow(7)]

SHOWN = (Path(__file__).with_name("shown.js")).read_text()
FRAMES = 60
LIVE = ".tile .picture:not([data-phase=off])"
SHOWS_A_PICTURE = """(alt) => {
  const image = document.querySelector(`.tile img[alt="${alt}"]`);
  return image && (image.naturalWidth > 0 || image.closest(".picture").dataset.phase === "playing");
}"""  # a still, or video that was there before it
COUNTED = {"zone": ["entered"], "line": ["forward", "backward"], "gate": ["forward", "backward"]}


def test_login(world: World) -> None:
    page = world.open("/events")
    expect(page.get_by_role("heading", name="Sign in to Lookout")).to_be_visible()
    page.get_by_label("Token").fill("guessed")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("No such token.")
    assert not _problems(page)
    page.get_by_label("Token").fill(VIEW)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Events")).to_be_visible()
    page.get_by_role("link", name="Sources").click()
    expect(page.get_by_text("You may view.")).to_be_visible()
    expect(page.get_by_role("button", name="Add a source")).to_have_count(0)
    with page.expect_event("load"):
        page.get_by_role("button", name="Sign out").click()
    login(page, world.dashboard.url, OPERATE)


@pytest.mark.long
def test_wall_of_three_daemons(world: World) -> None:
    page = world.open("/")
    for id in ("gate", "hevc", "street", "barn-door", "shed-door"):
        tile = page.locator(f".tile:has(img[alt='Camera {id}'])")
        expect(tile.locator(".state")).to_have_text("Up")
        page.wait_for_function(SHOWS_A_PICTURE, arg=f"Camera {id}")
    page.locator(".picture[data-phase=playing]").first.wait_for()
    expect(page.locator(LIVE)).to_have_count(5)
    page.get_by_label("Group").select_option(label="By daemon")
    expect(page.locator(".wall-heading h2")).to_have_text(["barn 1", "shed 1", "yard 3"])
    page.get_by_label("Group").select_option(label="No groups")
    page.get_by_label("Find a camera").fill("door")
    expect(page.locator(".tile")).to_have_count(2)
    page.get_by_label("Find a camera").fill("nothing")
    expect(page.get_by_text("No camera's name has")).to_be_visible()


def test_most_active_cameras_are_live(world: World) -> None:
    """At most 16 of 40: those in which something was seen lately, and for as long as that is so."""
    rows = [{"daemon": "d", "id": f"cam-{n}", "state": "up", "activeAt": 1000 if n % 2 else 0} for n in range(40)]
    rows[1]["state"] = "down"
    first, later, quiet = world.open("/sources").evaluate(
        """async (rows) => {
          const { mostActive } = await import("/static/pages/wall.js");
          const first = mostActive(rows, new Set(), 1010);
          for (const row of rows) row.activeAt = row.id === "cam-0" ? 1020 : row.id === "cam-3" ? 0 : 1018;
          const later = mostActive(rows, first, 1020);
          return [first, later, mostActive(rows.slice(0, 10), later, 9999)].map((keys) => [...keys]);
        }""",
        rows,
    )
    assert first == [f"d/cam-{n}" for n in range(3, 34, 2)]
    assert set(later) == {*first} - {"d/cam-3"} | {"d/cam-0"}
    assert len(quiet) == 9


@pytest.mark.long
def test_first_page_is_small(world: World) -> None:
    fresh = world.context.new_page()
    sizes = []
    fresh.on("requestfinished", lambda request: sizes.append((request.url, request.sizes()["responseBodySize"])))
    fresh.goto(world.dashboard.url)
    fresh.locator(".tile").first.wait_for()
    fresh.close()
    code = [(url, size) for url, size in sizes if "/static/" in url or url.endswith("/")]
    assert len(code) > 10
    assert sum(size for _, size in code) < 150_000, code


def test_boxes_lie_on_their_objects(world: World) -> None:
    page = world.open("/camera/yard/gate")
    page.locator(".picture[data-phase=playing]").wait_for()
    rows = page.evaluate(SHOWN, {"count": FRAMES, "colours": colours()})
    far = []
    for row in rows:
        assert row["drawn"], row
        for x1, y1, x2, y2 in row["boxes"]:
            # An object's body is the lower half of it, and as wide as the whole.
            on = [body for body in row["objects"] if body and y1 < (body[1] + body[3]) / 2 < y2]
            assert len(on) == 1, row
            left, _, right, _ = on[0]
            far.append(abs(left + right - x1 - x2) / 2)  # a neighbouring frame has its objects 5 to 9 pixels away
    assert len(far) > 2 * FRAMES
    assert max(far) < 20, sorted(far)[-10:]
    assert median(far) < 2.5, sorted(far)[-10:]


def test_hidden_tab_gets_no_video(world: World) -> None:
    """It closes, and is live again at once when somebody looks."""
    hide = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    page = world.page
    with page.expect_websocket(lambda socket: "/api/live/" in socket.url) as opened:
        world.open("/camera/yard/gate")
    page.locator(".picture[data-phase=playing]").wait_for()
    with opened.value.expect_event("close"):
        page.evaluate(hide, True)
    with page.expect_websocket(lambda socket: "/api/live/" in socket.url):
        page.evaluate(hide, False)
    page.locator(".picture[data-phase=playing]").wait_for()


@pytest.mark.long
def test_dropped_frames_show_their_cause(world: World) -> None:
    page = world.open("/camera/yard/gate")
    page.evaluate(
        "() => fetch('/api/sources/yard/gate', {method: 'PATCH', headers: {'Content-Type': 'application/json'},"
        " body: JSON.stringify({max_fps: 3})})"
    )
    dropped = page.locator(".frame-dropped[data-cause=rate_limit]")
    expect(dropped).to_have_text("Not analysed: Above the source's rate limit")
    expect(page.locator(".figures")).to_contain_text("Above the source's rate limit")
    expect(page.locator(".figures .warn")).to_contain_text("The detector saw")
    page.evaluate(
        "() => fetch('/api/sources/yard/gate', {method: 'PATCH', headers: {'Content-Type': 'application/json'},"
        " body: JSON.stringify({max_fps: null})})"
    )


def test_hevc_is_refused_in_words(world: World) -> None:
    page = world.open("/camera/yard/hevc")
    expect(page.locator(".stage-line")).to_contain_text("This browser cannot play h")
    expect(page.locator(".stage-line")).to_contain_text("Stills are shown.")
    page.wait_for_function("() => document.querySelector('.stage img').naturalWidth > 0")
    expect(page.locator(".frame-exact")).to_have_text("Analysed")


def test_events(world: World) -> None:
    page = world.open("/events")
    first = page.locator(".event").first
    first.wait_for()
    page.mouse.move(1, 1)  # or new ones wait until the pointer is out of the list
    listed = "() => [...document.querySelectorAll('.event')].flatMap((row) => row.dataset.events.split(' ')).length"
    page.wait_for_function(f"(before) => ({listed})() > before", arg=page.evaluate(listed))
    page.get_by_label("Rule").select_option("kerb")
    expect(first).to_contain_text("kerb")
    assert "rule=kerb" in page.url
    page.locator(".event", has=page.locator("img")).last.get_by_role("link").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("h2")).to_contain_text("crossed kerb")
    page.wait_for_function("() => document.querySelector('dialog .snapshot')?.naturalWidth > 0")
    words, link = dialog.locator("h2").inner_text(), page.url
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.goto(link)  # a link that somebody else got
    expect(page.get_by_role("dialog").locator("h2")).to_have_text(words)


def _picture(page: Page) -> Any:
    svg = page.locator(".editor-picture svg")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    assert box is not None
    return box


def _click(page: Page, *points: tuple[float, float]) -> None:
    box = _picture(page)
    for x, y in points:
        page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])


def _drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    box = _picture(page)
    page.mouse.move(box["x"] + start[0] * box["width"], box["y"] + start[1] * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + end[0] * box["width"], box["y"] + end[1] * box["height"], steps=6)
    page.mouse.up()


def _rules(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer_of(page, "/api/sources/yard/street/config")["config"]["rules"]
    return found


def test_zone_by_mouse(world: World) -> None:
    page = world.open("/rules/yard/street")
    page.get_by_role("button", name="Zone", exact=True).click()
    _click(page, (0.3, 0.1), (0.7, 0.1), (0.7, 0.95), (0.3, 0.95))
    page.keyboard.press("Enter")
    chosen = page.get_by_role("button", name="Zone zone-1")
    expect(chosen).to_be_visible()
    expect(page.get_by_text("What it would have found")).to_have_count(0)  # the daemon serves no recordings
    _drag(page, (0.7, 0.1), (0.8, 0.12))  # a point
    _drag(page, (0.3, 0.5), (0.2, 0.5))  # an edge
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Redo").click()
    expect(page.locator(".would")).to_contain_text("would have entered")
    page.get_by_role("button", name="Save rules").click()
    expect(page.get_by_text("The rules are saved and apply now.").first).to_be_visible()
    (zone,) = _rules(page)
    expected = [(0.2, 0.1), (0.8, 0.12), (0.7, 0.95), (0.2, 0.95)]
    assert all(abs(a - b) < 0.012 for got, want in zip(zone["points"], expected) for a, b in zip(got, want)), zone
    # A zone that crosses itself is refused, and the reason is told.
    page.get_by_role("button", name="Zone", exact=True).click()
    _click(page, (0.1, 0.2), (0.4, 0.6), (0.4, 0.2), (0.1, 0.6))
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The polygon crosses itself: its sides 1 and 3 meet.")
    page.keyboard.press("Escape")
    expect(page.locator(".rule-list li")).to_have_count(1)
    page.goto(world.dashboard.url + "/events?rule=zone-1")
    expect(page.locator(".event").first).to_contain_text("zone-1")


@pytest.mark.long
def test_line_and_zone_by_keyboard(world: World) -> None:
    page = world.open("/rules/yard/street")
    page.get_by_role("button", name="Line", exact=True).focus()
    page.keyboard.press("Enter")
    for keys in (["Shift+ArrowUp"] * 9, ["Shift+ArrowDown"] * 18):
        for key in keys:
            page.keyboard.press(key)
        page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Line line-1")).to_be_visible()
    point = page.get_by_role("button", name="line-1, point 1")
    point.focus()
    page.keyboard.press("Shift+ArrowRight")
    expect(page.get_by_role("button", name="line-1, point 1: 0.510, 0.050")).to_be_visible()
    page.get_by_role("button", name="line-1, point 1").press("Insert")
    expect(page.locator(".point")).to_have_count(3)
    page.get_by_role("button", name="line-1, point 2").press("Delete")
    expect(page.locator(".point")).to_have_count(2)
    page.get_by_label("y 2").fill("0.9")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Zone", exact=True).press("Enter")
    across = ["Shift+ArrowRight"] * 12
    for keys in (["Shift+ArrowLeft"] * 6, ["Shift+ArrowUp"] * 18, across, ["Shift+ArrowDown"] * 18):
        for key in keys:
            page.keyboard.press(key)
        page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name=re.compile("^Zone zone-")).last).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Name").fill("by-keys")
    page.keyboard.press("Enter")
    page.get_by_label("Point that counts").select_option("center")
    expect(page.get_by_text("The dots are the centres")).to_be_visible()
    page.get_by_role("button", name="Save rules").press("Enter")
    expect(page.get_by_text("The rules are saved and apply now.").first).to_be_visible()
    line = next(rule for rule in _rules(page) if rule["name"] == "line-1")
    assert line["points"] == [[0.51, 0.05], [0.5, 0.9]]
    zone = next(rule for rule in _rules(page) if rule["name"] == "by-keys")
    assert zone["points"] == [[0.2, 0.95], [0.2, 0.05], [0.8, 0.05], [0.8, 0.95]]
    for rule, words in (("line-1", "crossed line-1"), ("by-keys", "entered by-keys")):
        page.goto(f"{world.dashboard.url}/events?rule={rule}")
        page.locator(".event-main").first.click()
        expect(page.get_by_role("dialog").locator("h2")).to_contain_text(words)


def test_source_is_added_and_removed(world: World) -> None:
    page = world.open("/sources")
    page.get_by_role("button", name="Add a source").click()
    page.get_by_label("Daemon").select_option("barn")
    page.get_by_label("Kind").select_option("synthetic")
    page.get_by_label("Name").fill("extra")
    page.get_by_label("Frames/s", exact=True).fill("2")
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".check")).to_be_visible()
    assert "extra" not in [row["id"] for row in answer_of(page, "/api/sources")]  # a check saves nothing
    page.get_by_role("button", name="Save").click()
    row = page.locator("tr", has=page.get_by_role("link", name="extra"))
    expect(row.locator(".state")).to_have_text("Up")
    row.get_by_role("button", name="Disable").click()
    expect(row.locator(".state")).to_have_text("Disabled")
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Add a source").click()
    page.get_by_label("Name").fill("bad")
    page.get_by_label("Address").fill("gopher://127.0.0.1/")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("dialog")).to_contain_text("url: only rtsp, rtsps")


@pytest.mark.long
def test_form_offers_the_models_of_the_daemon(world: World) -> None:
    """What a source has is kept when another key is changed. A daemon with one model has no such field."""
    page = world.open("/sources?change=barn%2Fbarn-door")
    expect(page.get_by_label("Confidence, from")).to_be_visible()
    expect(page.get_by_role("group", name="Models")).to_have_count(0)

    def change(fill: Callable[[], None], wanted: object) -> None:
        page.goto(f"{world.dashboard.url}/sources?change=shed%2Fshed-door")
        expect(page.get_by_role("group", name="Models").get_by_role("checkbox")).to_have_count(2)
        fill()
        page.get_by_role("button", name="Check").click()
        page.get_by_role("button", name="Save").click()
        page.get_by_role("dialog").wait_for(state="detached")
        config = answer_of(page, "/api/sources/shed/shed-door/config")["config"]
        assert (config["model"], config["confidence"]) == (wanted, 0.3)

    change(lambda: page.get_by_label("Confidence, from").fill("0.3"), "people")
    change(lambda: page.get_by_label("plates").check(), ["people", "plates"])
    page.goto(f"{world.dashboard.url}/camera/shed/shed-door")
    for fact in ("Captured", "Analysed"):  # frames, and not what both models count of them
        expect(page.locator(".facts div", has_text=fact).locator("dd")).to_have_text(
            re.compile(r"^(0\.\d|1|1\.[0-3]) /s$")
        )
    change(lambda: page.get_by_label("plates").uncheck(), "people")


def test_health_shows_which_stage_takes_the_time(world: World) -> None:
    """In charts of medians and of the slowest frames, and in their tables; a window that gets narrower is no narrower
    than they are."""
    page = world.open("/health")
    yard = page.get_by_role("region", name=re.compile("^yard"))
    for title, percentile in (("Latency by stage, median", "p50"), ("Latency by stage, 99 %", "p99")):
        chart = yard.get_by_role("figure").filter(has=page.get_by_role("heading", name=title))
        stages = ["Decode", "Wait for a lane", "Preprocess", "Infer", "Postprocess"]
        expect(chart.locator(".legend li")).to_contain_text(stages)
        chart.get_by_text("As a table").click()
        expect(chart.locator("thead th")).to_have_text(["Time", *stages])
        shown = float(chart.locator("tbody tr").first.locator("td").nth(4).inner_text())
        told = answer_of(page, "/api/health/yard")["series"]["stages"]["infer"][percentile]
        assert min(abs(shown - value) for value in told if value is not None) <= 0.5
    expect(yard.get_by_role("figure").filter(has_text="Waiting to be sent")).to_have_count(1)
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("() => document.documentElement.scrollWidth <= 360")
    page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.long
def test_page_comes_back_by_itself(world: World) -> None:
    page = world.open("/camera/yard/gate")
    page.locator(".picture[data-phase=playing]").wait_for()
    page.evaluate("() => { window.sameDocument = true; }")
    world.daemons["yard"].close()
    expect(page.locator(".connection")).to_contain_text("The daemon yard is away")
    world.start("yard")
    expect(page.locator(".connection")).to_have_text("")
    expect(page.locator(".phase")).to_have_text("Live")
    expect(page.locator(".frame-exact")).to_have_text("Analysed")
    assert page.evaluate("() => window.sameDocument")


def _lines(seed: int, count: int) -> list[list[list[float]]]:
    """Polygons and lines, many of which cross themselves."""
    random = Random(seed)
    coordinate = partial(random.randint, 0, 100)
    return [[[coordinate() / 100, coordinate() / 100] for _ in range(random.randint(3, 7))] for _ in range(count)]


def test_editor_agrees_with_the_daemon(world: World) -> None:
    """Which polygons are refused, which points are inside, which paths cross."""
    page, shapes = world.open("/sources"), _lines(1, 300)
    found = page.evaluate(
        """async (shapes) => {
          const { touchingEdges, isInside, crossing } = await import("/static/editor/geometry.js");
          const [p, q, middle] = [[0.1, 0.111], [0.9, 0.887], [0.503, 0.507]];
          return shapes.map((points) => [touchingEdges(points), isInside(middle, points), crossing(p, q, points)]);
        }""",
        shapes,
    )
    for points, (edges, inside, turn) in zip(shapes, found):
        corners = [(x, y) for x, y in points]
        assert (tuple(edges) if edges else None) == touching_edges(corners), points
        sides = edges_of(corners, closed=True)
        assert inside == is_inside(0.503, 0.507, sides), points
        assert turn == crossing(0.1, 0.111, 0.9, 0.887, sides[0]), points


def _random_rules(random: Random, count: int) -> list[dict[str, Any]]:
    """Triangles, lines and gates with all that changes what they count."""

    def corners(number: int) -> list[list[float]]:
        return [[random.randint(5, 95) / 100, random.randint(20, 98) / 100] for _ in range(number)]

    rules = []
    for number in range(count):
        rule: dict[str, Any] = {"name": f"r{number}", "anchor": random.choice(["bottom", "center", "top"])}
        if random.random() < 0.3:
            rule |= {"labels": ["car"], "min_area": 0.02}
        kind = ("zone", "line", "gate")[number % 3]
        if kind == "zone":
            rule |= {"points": corners(3), "enter_s": random.uniform(0, 1), "exit_s": random.uniform(0, 2)}
        else:
            rule |= {"points": corners(3)} if kind == "line" else {"lines": [corners(2), corners(2)]}
            rule |= {"band": random.uniform(0, 0.5), "confirm_s": random.choice([0, 0.4]), "cooldown_s": number % 2}
        rules.append({"type": kind, **rule})
    return rules


def _random_walk(random: Random, frames: int, size: tuple[int, int]) -> list[Box]:
    """The boxes of one object, which stay away from the picture's edges."""
    width, height = random.randint(40, 120), random.randint(60, 160)
    stops = [(random.uniform(100, size[0] - 100), random.uniform(200, size[1] - 20)) for _ in range(9)]
    boxes = []
    for frame in range(frames):
        leg, share = divmod(8 * frame / frames, 1)
        (x0, y0), (x1, y1) = stops[int(leg)], stops[int(leg) + 1]
        boxes.append(standing_at(x0 + share * (x1 - x0), y0 + share * (y1 - y0), height, width))
    return boxes


def test_editor_counts_as_the_daemon(world: World) -> None:
    """On the same boxes: zones, lines and gates with each anchor, bands, times, labels and areas."""
    random, size, frames, step_s = Random(3), (1000, 500), 160, 0.137
    rules, walks = _random_rules(random, 60), [_random_walk(random, frames, size) for _ in range(10)]
    labels = {id + 1: LABELS[id % 2] for id in range(len(walks))}
    feed = Feed(rules_of(*rules), size)
    for frame in range(frames):
        feed.show(frame * step_s, {id: walks[id - 1][frame] for id in labels}, labels)
    told: Counter[Any] = Counter((event.rule, event.direction or event.phase) for event in feed.events)
    expected = [{key: told[rule["name"], key] for key in COUNTED[rule["type"]]} for rule in rules]
    tracks = [
        {
            "label": labels[id],
            "points": [
                [frame * step_s, (x1 + x2) / 2 / size[0], y2 / size[1], y1 / size[1], (x2 - x1) / size[0]]
                for frame, (x1, y1, x2, y2) in enumerate(walks[id - 1])
            ],
        }
        for id in labels
    ]
    found = world.open("/sources").evaluate(
        """async ([rules, tracks]) => {
          const { wouldCount } = await import("/static/editor/counting.js");
          const { fromConfig } = await import("/static/editor/shapes.js");
          return rules.map((rule) => wouldCount(fromConfig(rule), tracks, 2));
        }""",
        [rules, tracks],
    )
    assert found == expected
    for kind in ("zone", "line", "gate"):
        assert sum(told[rule["name"], key] for rule in rules if rule["type"] == kind for key in COUNTED[kind]) > 20


PAGES = ["/", "/camera/yard/gate", "/events", "/health", "/sources", "/rules/yard/gate"]


def _problems(page: Page) -> dict[str, list[str]]:
    """What axe finds in light, and wrong colours in dark: nothing else depends on it."""
    found = {}
    for scheme, rules in (("dark", ["color-contrast"]), ("light", None)):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        if problems := violations(page, rules):
            found[scheme] = problems
    return found


def test_everybody_can_use_it(world: World) -> None:
    """Axe finds nothing on any page, in light and in dark."""
    found = {}
    for path in PAGES:
        page = world.open(path)
        page.locator("main h1").wait_for()
        if path == "/health":
            page.locator(".chart").first.wait_for()
        if path.startswith("/rules"):
            page.get_by_role("button", name="Line kerb").click()  # its settings
        if problems := _problems(page):
            found[path] = problems
    page = world.open("/sources")
    page.get_by_role("button", name="Add a source").click()
    page.get_by_role("dialog").wait_for()
    assert (found, _problems(page)) == ({}, {})


def test_pages_read_nothing_that_nobody_sends(world: World) -> None:
    """What they take from answers and messages is what real daemons and the page's server send."""
    page = world.context.new_page()
    watch(page)
    page.goto(world.dashboard.url)
    page.locator(".tile .picture[data-phase=playing]").first.wait_for()
    shown = {
        "/camera/yard/gate": ".latest .event",
        "/camera/shed/shed-door": ".frame-exact",
        "/health": ".chart",
        "/rules/yard/gate": ".editor-picture svg",
        "/sources?change=yard%2Fgate": "dialog form",
        "/sources?add=1": "dialog form",
        "/fleet": ".empty",
        "/bridge": ".empty",
        "/events": ".event",
    }
    for path, place in shown.items():
        visit(page, path)
        page.locator(place).first.wait_for()
    page.locator(".event-main").first.click()
    page.locator("dialog .facts").wait_for()
    assert unsent(page) == []
    page.close()


def test_keyboard_walk(world: World) -> None:
    page = world.open("/")
    page.locator(".tile").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    seen = []
    for _ in range(20):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "() => { const now = document.activeElement;"
            " return [now.getAttribute('aria-label') ?? now.innerText, getComputedStyle(now).outlineStyle]; }"
        )
        seen.append(name)
        assert outline != "none", seen
        if page.evaluate("() => Boolean(document.activeElement.closest('.tile'))"):
            break
    assert [name for name in seen if name.strip() in ("Wall", "Events", "Health", "Sources")], seen
    page.keyboard.press("Enter")
    page.locator(".camera").wait_for()
    assert page.evaluate("() => document.activeElement.id") == "main"


@pytest.mark.long
def test_phone(world: World) -> None:
    """No page is wider than a phone."""
    world.page.set_viewport_size({"width": 360, "height": 740})
    for path in PAGES:
        page = world.open(path)
        page.locator("main h1").wait_for()
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= 360, (path, wide)
    world.page.set_viewport_size({"width": 1280, "height": 800})


def test_nothing_leaves_this_host(world: World) -> None:
    """Nothing was asked of another host, and the browser had nothing to complain about but refusals."""
    assert world.requested
    assert all(url.startswith((world.dashboard.url, "blob:")) for url in world.requested)
    harmless = ("Failed to load resource", "WebSocket connection")
    assert [text for text in world.complaints if not text.startswith(harmless)] == []
