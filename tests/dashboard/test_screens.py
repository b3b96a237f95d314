"""Walls that fill their screens, troubles, the camera's page: in a browser, with cameras of several shapes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.support.browsing import violations

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.dashboard.screens import Screens

pytestmark = [pytest.mark.needs("chromium", "playwright"), pytest.mark.slow(2)]


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screens]:
    from tests.dashboard.screens import screening  # needs Playwright

    with screening(tmp_path_factory.mktemp("screens")) as found:
        yield found


def _problems(tab: Tab, scheme: Literal["light", "dark"] = "light") -> list[str]:
    """What axe finds in light or in dark colours."""
    tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    return violations(tab)


_PLACED = """async (walls) => {
  const { placed } = await import("/static/wall/layout.js");
  return walls.map(({ ratios, layout, room }) => {
    const { tiles, height } = placed([{ name: "", tiles: ratios.map((ratio, key) => ({ key, ratio })) }], layout, room);
    return { height, tiles: ratios.map((_, key) => tiles.get(key)) };
  });
}"""


def test_tiles_use_the_screen_whatever_their_number_and_shapes(screens: Screens) -> None:
    random = Random(5)
    rooms = [(1280, 680), (1920, 1080), (3840, 2000), (1080, 1900)]
    walls: list[dict[str, Any]] = []
    for number in range(120):
        width, height = rooms[number % len(rooms)]
        ratios = [random.choice([16 / 9, 16 / 9, 4 / 3, 9 / 16, 1.0, 3.2]) for _ in range(1 + number % 30)]
        layout = ("auto", "3x3", "1+5", "1+7", "1")[number % 5]
        walls.append(
            {"ratios": ratios, "layout": layout, "room": {"width": width, "height": height, "gap": 6, "heading": 34}}
        )
    walls.append(
        {"ratios": [16 / 9] * 6, "layout": "auto", "room": {**walls[0]["room"], "width": 3840, "height": 2000}}
    )
    tab = screens.open("/sources")
    used = []
    for wall, found in zip(walls, tab.evaluate(_PLACED, walls)):
        room, rows = wall["room"], found["tiles"]
        for one, a in enumerate(rows):
            assert a["left"] >= -0.01, wall
            assert a["left"] + a["width"] <= room["width"] + 0.01, wall
            for b in rows[:one]:
                apart = a["left"] >= b["left"] + b["width"] or b["left"] >= a["left"] + a["width"]
                assert apart or a["top"] >= b["top"] + b["height"] or b["top"] >= a["top"] + a["height"], wall
        if wall["layout"] == "auto":
            shapes = [row["width"] / row["height"] for row in rows]
            assert shapes == pytest.approx(wall["ratios"]), wall
            assert found["height"] <= room["height"] + 0.01, wall
            used.append(sum(row["width"] * row["height"] for row in rows) / room["width"] / room["height"])
    assert used[-1] > 0.7  # six cameras at 4K
    assert sorted(used)[len(used) // 2] > 0.75, used  # one camera of 9:16 cannot fill a wide screen


@pytest.mark.long
def test_a_link_gives_the_same_wall(screens: Screens) -> None:
    from playwright.sync_api import expect

    tab = screens.open("/?live=off")
    tab.locator(".tile .state-up").nth(4).wait_for()
    tab.get_by_label("Layout").select_option("1+5")
    tab.get_by_role("button", name="Pin tower-0").click()
    tab.get_by_role("button", name="Pin lost").click()
    tab.get_by_label("Order").select_option("name")
    wanted = ["tower-0", "lost", "street-0", "street-1", "street-2", "street-3"]
    expect(tab.locator(".tile-name")).to_have_text(wanted)
    first, second = (tab.locator(".tile").nth(n).bounding_box() for n in (0, 1))
    assert first is not None
    assert second is not None
    assert first["width"] > 1.9 * second["width"]
    tab.get_by_role("button", name="Views").click()
    tab.get_by_role("textbox", name="Name").fill("night")
    tab.get_by_role("button", name="Keep this view").click()
    assert _problems(tab) == []
    link = tab.url
    tab.goto(screens.server.url + "/?layout=2x2")
    expect(tab.locator(".wall")).to_have_attribute("data-layout", "2x2")
    tab.get_by_role("button", name="Views").click()
    tab.get_by_role("link", name="night").click()
    expect(tab.locator(".tile-name")).to_have_text(wanted)
    tab.evaluate("() => localStorage.clear()")  # somebody else
    tab.goto(link)
    expect(tab.locator(".tile-name")).to_have_text(wanted)
    expect(tab.get_by_role("button", name="Pin tower-0")).to_have_attribute("aria-pressed", "true")


def test_a_wall_without_its_header_fills_the_screen(screens: Screens) -> None:
    from playwright.sync_api import expect

    tab = screens.open("/?layout=auto&full=1&live=off", 1600, 900)
    tab.locator(".tile .state-up").nth(4).wait_for()
    expect(tab.locator(".top")).to_have_count(0)
    boxes = [tile.bounding_box() for tile in tab.locator(".tile .picture").all()]
    used = sum(box["width"] * box["height"] for box in boxes if box)
    assert used / 1600 / 900 > 0.7
    assert _problems(tab) == []
    # A tile that moves to another group stays the same element: its picture is not black for a moment.
    tab.evaluate("() => { window.before = document.querySelector('img[alt=\"Camera tower-0\"]'); }")
    tab.keyboard.press("Escape")
    tab.locator(".top").wait_for()
    tab.wait_for_function("() => document.documentElement.scrollHeight <= innerHeight")  # nothing to scroll
    tab.get_by_label("Group").select_option("prefix")
    expect(tab.locator(".wall-heading h2").first).to_contain_text("lost")
    assert tab.evaluate("() => window.before === document.querySelector('img[alt=\"Camera tower-0\"]')")
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.wait_for_function("() => !document.querySelector('.wall-filled')")  # a phone scrolls
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= 390


_TELL = """async ({ kind, ...message }) => {
  const { feed } = await import("/static/feed.js");
  feed.tell({ kind, daemon: "here", ...message });
}"""  # as if the server had said it


def test_a_tray_says_what_is_wrong_since_when_and_why(screens: Screens) -> None:
    from playwright.sync_api import expect

    tab = screens.open("/events", fresh=True)
    button = tab.get_by_role("button", name="1 trouble")
    button.wait_for()
    assert tab.title() == "(1) Events – Lookout"
    button.press("Enter")
    row = tab.locator(".trouble")
    expect(row).to_contain_text("Camera lost")
    expect(row).to_contain_text("nothing answers there (connection refused)")
    expect(row).to_contain_text("Since ")
    tab.wait_for_function("() => /Next try in|It is tried now/.test(document.querySelector('.trouble').innerText)")
    assert _problems(tab) + _problems(tab, "dark") == []
    # A store that is not written to, and a link that was too slow, which is told for a while and counts as nothing.
    entry = screens.server.get("/api/daemons")[0]
    store = {"name": "disk-a", "cause": "disk_full", "reason": "[Errno 28] No space left on device", "since": 1.0}
    tab.evaluate(_TELL, {"kind": "daemon", **entry, "stores": [store]})
    tab.evaluate(_TELL, {"kind": "skipped", "messages": 197, "lost": 0})
    expect(tab.locator(".trouble", has_text="disk-a")).to_contain_text("Nothing is recorded there: the disk is full")
    expect(tab.locator(".trouble.is-note")).to_contain_text("197 messages")
    expect(tab.locator(".spoken[aria-live]")).to_contain_text("New trouble: Recordings in disk-a")
    expect(tab.locator(".tray-button")).to_have_text("2 troubles")
    tab.clock.install()
    tab.clock.fast_forward(90_000)
    expect(tab.locator(".trouble.is-note")).to_have_count(0)
    tab.keyboard.press("Escape")
    expect(tab.locator(".trouble")).to_have_count(0)
    assert tab.evaluate("() => document.activeElement.className").startswith("tray-button")
    tab.close()


_ZOOM = "() => new DOMMatrix(getComputedStyle(document.querySelector('.picture-media')).transform).a"


@pytest.mark.long
def test_a_picture_is_looked_at_more_closely_and_kept(screens: Screens) -> None:
    from playwright.sync_api import expect

    tab = screens.open("/camera/here/street-1", 800, 600)
    picture = tab.get_by_role("group", name="Picture of street-1")
    tab.wait_for_function("() => document.querySelector('.stage img')?.naturalWidth > 0")
    picture.hover()
    tab.mouse.wheel(0, -240)
    tab.wait_for_function(f"() => ({_ZOOM})() > 1.4")
    assert tab.evaluate("() => scrollY") == 0
    picture.focus()
    before = tab.evaluate(_ZOOM.replace(".a", ".e"))
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function(f"before => ({_ZOOM.replace('.a', '.e')})() < before", arg=before)
    tab.keyboard.press("0")
    tab.wait_for_function(f"() => ({_ZOOM})() === 1")
    tab.get_by_role("button", name="Zoom in").click()
    tab.wait_for_function(f"() => ({_ZOOM})() === 1.25")
    # Two fingers: twice as far apart, in their middle.
    tab.keyboard.press("Escape")
    tab.evaluate(
        """() => {
          const frame = document.querySelector(".zoom");
          const box = frame.getBoundingClientRect();
          frame.setPointerCapture = () => {};
          const clientY = box.top + box.height / 2;
          const say = (name, pointerId, x, buttons = 1) => frame.dispatchEvent(
            new PointerEvent(name, { pointerId, clientX: box.left + x * box.width, clientY, button: 0, buttons }));
          say("pointerdown", 1, 0.4);
          say("pointerdown", 2, 0.6);
          say("pointermove", 1, 0.3);
          say("pointermove", 2, 0.7);
          say("pointerup", 1, 0.3);
          say("pointerup", 2, 0.7);
          say("pointerdown", 3, 0.4);
          say("pointermove", 3, 0.9, 0);  // it was let go outside
        }"""
    )
    tab.wait_for_function(f"() => Math.abs(({_ZOOM})() - 2.5) < 0.01")
    width = tab.evaluate("() => document.querySelector('.picture-media').offsetWidth")
    assert tab.evaluate(_ZOOM.replace(".a", ".e")) == pytest.approx(-0.75 * width, abs=2)
    assert _problems(tab) == []
    with tab.expect_download() as kept:
        tab.get_by_role("button", name="Download the picture").click()
    assert kept.value.suggested_filename.startswith("street-1-20")
    content = kept.value.path().read_bytes()
    assert content[:3] == b"\xff\xd8\xff"
    tab.get_by_label("Boxes").uncheck()
    with tab.expect_download() as without:
        tab.get_by_role("button", name="Download the picture").click()
    assert without.value.path().read_bytes()[:3] == b"\xff\xd8\xff"
    # All of it, in its own pixels, however closely it is looked at.
    size = tab.evaluate(
        """async () => {
          const { download } = await import("/static/camera/snapshot.js");
          const make = URL.createObjectURL;
          let blob = null;
          URL.createObjectURL = (one) => make(blob = one);
          const element = new Image();
          element.src = "/api/still/here/street-1";
          await element.decode();
          await download({ id: "x", pixel_aspect: 1 }, { element, turns: 1, scene: null, age: 0 });
          URL.createObjectURL = make;
          const image = await createImageBitmap(blob);
          return [image.width, image.height];
        }"""
    )
    assert size == [90, 160]
    expect(tab.get_by_role("link", name="See the past")).to_have_count(0)  # there is none
    entry = screens.server.get("/api/daemons")[0]
    tab.evaluate(_TELL, {"kind": "daemon", **entry, "recordings": True})
    expect(tab.get_by_role("link", name="See the past")).to_have_attribute("href", "/recordings/here/street-1")
    tab.evaluate(
        """() => new MutationObserver((_, watcher) => {
          if (!document.querySelector("h1")?.innerText.includes("street-2")) return;
          watcher.disconnect();
          document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "p", bubbles: true }));
        }).observe(document.body, { childList: true, subtree: true, characterData: true })"""
    )  # a key as soon as the next camera is there
    tab.get_by_role("link", name="Next camera: street-2").click()
    tab.wait_for_url("**/camera/here/street-1")


def test_a_camera_that_is_down_is_not_one_without_packets(screens: Screens) -> None:
    from playwright.sync_api import expect

    row = {"id": "usb", "type": "camera", "device": "/dev/video99"}
    assert screens.server.client.post("/api/sources/here", json=row).is_success
    tab = screens.open("/camera/here/usb", 800, 600)
    expect(tab.locator(".notice-warning")).to_contain_text("Since ")
    expect(tab.locator(".stage-line")).to_contain_text("Waiting for the source, which is")
    expect(tab.locator(".stage-line")).not_to_contain_text("packets")
    assert screens.server.client.delete("/api/sources/here/usb").is_success


def test_boxes_stay_a_moment_while_analysis_is_not_here_yet(screens: Screens) -> None:
    tab = screens.open("/camera/here/street-0", 800, 600)
    tab.locator(".frame-exact").wait_for()
    script = """async () => {
      const { Painter } = await import("/static/picture.js");
      const { frameLog } = await import("/static/model.js");
      const row = { daemon: "here", id: "drawn", width: 100, height: 100 };
      const image = { width: 100, height: 100, pixel_aspect: 1 };
      const detections = [{ box: [10, 10, 50, 50], label: "car", confidence: 1, track_id: 1 }];
      const times = { session: "s", seq: 1, index: 1, pts: 0, dropped: {}, clock: { kind: "file" } };
      frameLog("here", "drawn").add({ ...times, image, detections });
      const painter = new Painter(document.createElement("canvas"), row, {});
      const shown = [0, 40e6].map((pts) => (painter.frame(pts, "s", pts / 1e9), painter.boxes.length));
      painter.held.at -= 400;
      painter.frame(80e6, "s", 0.08);
      painter.close();
      return [...shown, painter.boxes.length];
    }"""
    assert tab.evaluate(script) == [1, 1, 0]
    assert screens.errors == []


@pytest.mark.long
def test_the_page_can_be_installed_and_notifies_of_events(screens: Screens) -> None:
    from playwright.sync_api import expect

    tab = screens.open("/health", fresh=True)
    found = tab.evaluate(
        """async () => {
          const link = document.querySelector("link[rel=manifest]");
          const manifest = await (await fetch(link.href)).json();
          const sizes = await Promise.all(manifest.icons.map(async ({ src, type }) => {
            const image = await createImageBitmap(await (await fetch(src)).blob()).catch(() => ({ width: type }));
            return image.width;
          }));
          return [manifest.display, manifest.start_url, sizes, Boolean(navigator.serviceWorker?.controller)];
        }"""
    )
    assert found == ["standalone", "/", [192, 512, 512, "image/svg+xml"], False]
    tab.evaluate(
        """() => {
          window.told = [];
          window.Notification = class {
            static permission = "default";
            static async requestPermission() { return (this.permission = "granted"); }
            constructor(title, options) { window.told.push([title, options.body]); }
          };
        }"""
    )  # the browser's own asks a person
    tab.locator(".tray-button").click()
    switch = tab.get_by_role("switch", name="Notify me of events")
    assert _problems(tab) == []
    switch.click()
    expect(switch).to_be_checked()
    event = {
        "id": "1",
        "source": "street-0",
        "kind": "zone",
        "phase": "entered",
        "rule": "yard",
        "label": "car",
        "at": 1,
    }
    tell = "[document.hasFocus = () => false, document.hidden]"
    tab.evaluate(f"() => {tell}")
    tab.clock.install()
    for number in range(3):
        tab.evaluate(_TELL, {"kind": "event", "message": {**event, "id": str(number)}})
    tab.clock.run_for(5000)
    assert tab.evaluate("() => window.told") == [["car entered yard", "street-0, and 2 more"]]
    tab.evaluate("() => Object.defineProperty(window, 'isSecureContext', { value: false })")
    tab.locator(".tray-button").click()
    tab.locator(".tray-button").click()
    expect(tab.locator("#notify-why")).to_contain_text("with TLS alone")
    expect(switch).to_be_disabled()
    tab.close()


def _at(tab: Tab, x: float, y: float) -> tuple[float, float]:
    box = tab.locator(".editor-picture svg").bounding_box()
    assert box is not None
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def _rules(screens: Screens, source: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = screens.server.get(f"/api/sources/here/{source}/config")["config"]["rules"]
    return found


@pytest.mark.long
def test_the_editor_does_what_hands_do(screens: Screens) -> None:
    """Double clicks, Ctrl-Z, Escape, another tool, and fingers."""
    from playwright.sync_api import expect

    tab = screens.open("/rules/here/street-2")
    tab.get_by_role("button", name="Line", exact=True).click()
    tab.mouse.click(*_at(tab, 0.2, 0.2))
    tab.mouse.dblclick(*_at(tab, 0.8, 0.8))  # ends the line, and is one point
    expect(tab.get_by_role("button", name="Line line-1")).to_be_visible()
    expect(tab.locator(".point")).to_have_count(2)
    tab.get_by_role("button", name="Zone", exact=True).click()
    tab.mouse.click(*_at(tab, 0.3, 0.3))
    tab.mouse.click(*_at(tab, 0.5, 0.3))
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("alert")).to_have_text("It needs 3 points or more.")
    tab.keyboard.press("Control+z")  # a point of what is drawn, and not the line
    expect(tab.locator(".shape.is-new .point")).to_have_count(1)
    expect(tab.get_by_role("button", name="Line line-1")).to_be_visible()
    with tab.expect_event("dialog") as asked:
        tab.once("dialog", lambda dialog: dialog.dismiss())
        tab.get_by_role("button", name="Gate", exact=True).click()
    assert "Give up" in asked.value.message
    tab.keyboard.press("Enter")
    expect(tab.locator(".shape.is-new .point")).to_have_count(1)
    tab.locator(".editor-picture svg").focus()
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("alert")).to_have_count(0)
    expect(tab.locator(".shape.is-new")).to_have_count(0)
    tab.once("dialog", lambda dialog: dialog.accept())  # it has a line that is not saved
    screens.open("/sources")
    context = screens.context.browser.new_context(
        viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True
    )
    phone = context.new_page()
    phone.goto(f"{screens.server.url}/rules/here/street-2")
    phone.get_by_role("button", name="Zone", exact=True).tap()
    for x, y in ((0.2, 0.2), (0.8, 0.2), (0.5, 0.8)):
        phone.touchscreen.tap(*_at(phone, x, y))
    phone.get_by_role("button", name="Done").tap()
    expect(phone.get_by_role("button", name="Zone zone-1")).to_be_visible()
    small = phone.evaluate(
        """() => [...document.querySelectorAll("main button, main .button, main select, .reach")]
          .map((one) => [one.className || one.textContent, one.getBoundingClientRect()])
          .filter(([, { width, height }]) => height && Math.min(height, width) < 43.9).map(([name]) => name)"""
    )
    assert small == []
    assert phone.evaluate("() => document.documentElement.scrollWidth") <= 390
    context.close()


_NIGHT = {"active": "mon-fri 22:00-06:00", "timezone": "Europe/Berlin"}


@pytest.mark.long
def test_all_of_a_rule_is_in_the_editor(screens: Screens) -> None:
    from playwright.sync_api import expect

    long = "n" * 64
    rules = [
        {"type": "object", "name": "any-car", "labels": ["dark"]},
        {"type": "line", "name": "kerb", "points": [[0.5, 0], [0.5, 1]], "min_area": 0.01, **_NIGHT},
        {"type": "line", "name": long, "points": [[0.4, 0], [0.4, 1]]},
    ]
    change = {"rules": rules, "tracking": True}
    answer = screens.served.client.patch("/api/v1/sources/street-3", json=change)
    assert answer.is_success, answer.text
    tab = screens.open("/rules/here/street-3")
    expect(tab.locator(".rule-list")).to_contain_text("any-car")
    kerb = tab.get_by_role("button", name="Line kerb")
    expect(kerb).to_contain_text("Its hours are not looked at.")
    kerb.click()
    expect(tab.get_by_label("Times")).to_have_value(_NIGHT["active"])
    expect(tab.get_by_label("Box from")).to_have_value("1")
    area = tab.get_by_label("Box up to")
    area.fill("a lot")
    area.press("Enter")
    expect(tab.get_by_role("alert")).to_have_text("This is no number.")
    assert _problems(tab) == []
    area.fill("12,5")
    area.press("Enter")
    expect(tab.get_by_role("alert")).to_have_count(0)
    tab.get_by_role("button", name="Object any-car").click()
    tab.get_by_label("Labels").fill("bright")
    tab.get_by_label("Labels").press("Enter")
    tab.get_by_role("button", name="Save rules").click()
    expect(tab.get_by_text("The rules are saved and apply now.").first).to_be_visible()
    saved = {rule["name"]: rule for rule in _rules(screens, "street-3")}
    assert (saved["any-car"]["labels"], saved["kerb"]["max_area"]) == (["bright"], 0.125)
    assert (saved["kerb"]["active"], saved["kerb"]["min_area"]) == (_NIGHT["active"], 0.01)
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= 1280  # whatever a rule is called


@pytest.mark.long
def test_a_key_that_is_taken_out_of_more_keys_is_gone(screens: Screens) -> None:
    def config() -> dict[str, Any]:
        found: dict[str, Any] = screens.server.get("/api/sources/here/tower-0/config")["config"]
        return found

    usual = config()["seed"]
    assert screens.served.client.patch("/api/v1/sources/tower-0", json={"seed": 77}).is_success
    tab = screens.open("/sources?change=here%2Ftower-0")
    tab.get_by_text("More keys").click()
    tab.get_by_label("More keys").fill("{}")
    tab.get_by_role("button", name="Check").click()
    tab.get_by_role("button", name="Save").click()
    tab.get_by_role("dialog").wait_for(state="detached")
    assert config()["seed"] == usual


def test_what_counts_as_trouble_is_steady(screens: Screens) -> None:
    """A camera that is tried again and again is one trouble; one that has just begun is none."""
    row = {"daemon": "here", "id": "cam", "enabled": True, "reason": None}
    daemon = {"name": "here", "state": "up", "since": 0, "reason": None, "stores": []}
    states: list[dict[str, Any]] = [
        {"state": "connecting", "trouble": {"since": 95, "reason": None, "retry_at": None}},
        {"state": "connecting", "trouble": {"since": 80, "reason": None, "retry_at": None}},
        {"state": "down", "trouble": {"since": 80, "reason": "[Errno 113] No route to host", "retry_at": 104}},
        {"state": "connecting", "trouble": {"since": 80, "reason": "[Errno 113] No route to host", "retry_at": None}},
        {"state": "up", "trouble": None, "reason": "at 5 of 25 frames/s"},
    ]
    away = {**daemon, "state": "away", "reason": "[Errno 111] Connection refused", "since": 90}
    tab = screens.open("/health")
    found = tab.evaluate(
        """async ([rows, daemon, away]) => {
          const { troublesOf } = await import("/static/troubles.js");
          const given = { connection: { open: true, tries: 0 }, slowRows: [] };
          const say = (daemonRows, sourceRows) => troublesOf({ ...given, daemonRows, sourceRows }, 100)
            .map(({ title, words, since, retryAt, isNote }) => [title, words, since, retryAt, isNote]);
          return [...rows.map((row) => say([daemon], [row])), say([away], rows)];
        }""",
        [[{**row, **state} for state in states], daemon, away],
    )
    route = "there is no way to that address (no route)"
    assert found == [
        [],
        [["Camera cam", "Connecting, and nothing came yet", 80, None, False]],
        [["Camera cam", f"Down: {route}", 80, 104, False]],
        [["Camera cam", f"Connecting: {route}", 80, None, False]],
        [["Camera cam", "Up, but at 5 of 25 frames/s", None, None, True]],
        [["Daemon here", "Away: nothing answers there (connection refused)", 90, None, False]],
    ]


@pytest.mark.long
def test_a_camera_that_changes_its_size_changes_its_tile(screens: Screens) -> None:
    tab = screens.tab
    tab.route(
        "**/api/still/here/street-0", lambda route: route.continue_(url=route.request.url.replace("street", "tower"))
    )
    screens.open("/?live=off")
    tab.wait_for_function(
        """() => {
          const box = document.querySelector("img[alt='Camera street-0']")?.closest(".picture").getBoundingClientRect();
          return box && Math.abs(box.width / box.height - 9 / 16) < 0.02;
        }"""
    )
    tab.unroute_all()


def test_an_address_that_leads_nowhere_is_said_to(screens: Screens) -> None:
    from playwright.sync_api import expect

    tab = screens.open("/camera/only-a-daemon")
    expect(tab.locator("main")).to_contain_text("This address leads nowhere.")
    assert screens.server.client.get("/nowhere").status_code == 404
    answer = screens.server.client.get("/api/nowhere")
    assert (answer.status_code, answer.json()) == (404, {"error": "no such address"})
    # On a phone each row of the sources has its actions on the screen.
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.goto(screens.server.url + "/sources")
    remove = tab.get_by_role("button", name="Remove").first
    remove.wait_for()
    box = remove.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
