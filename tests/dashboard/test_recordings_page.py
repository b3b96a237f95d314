"""The past in a browser: the timeline and the player, before a real daemon. Recorded pictures tell their number."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import av
import pytest

from tests.dashboard.past_world import iso, past_world, say, served_with_login
from tests.dashboard.unsent import unsent, visit, watch
from tests.support import browsing
from tests.support.browsing import violations
from tests.support.numbered import COLOUR, box_of
from tests.support.recorded import SECOND

with suppress(ImportError):  # without it all of these are skipped
    from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.dashboard.past_world import PastWorld

pytestmark = [pytest.mark.needs("chromium", "playwright", "ffmpeg"), pytest.mark.slow(7)]
FOLLOW = Path(__file__).with_name("follow.js").read_text()
SCRIPT = FOLLOW + Path(__file__).with_name("past.js").read_text()
DOOR = "/recordings/here/door"
PICTURE = SECOND // 25
PLAYED = f"{DOOR}?at={{at}}&zoom=200"
VIEWS: list[tuple[str, Literal["light", "dark"], int]] = [
    ("/recordings", "light", 1280), ("/recordings", "dark", 390), (PLAYED, "dark", 1280), (PLAYED, "light", 390),
]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, folder_of_all: Path) -> Iterator[PastWorld]:
    with past_world(tmp_path_factory.mktemp("past"), folder_of_all) as found:
        yield found
        assert not found.complaints


@pytest.fixture
def tab(world: PastWorld) -> Iterator[Tab]:
    tab = world.open(f"{DOOR}?at={world.at(1)}&zoom=200")
    tab.evaluate(SCRIPT)
    tab.locator(".past-shown").wait_for()
    yield tab
    tab.close()


@pytest.fixture(scope="module")
def scripts(world: PastWorld) -> Iterator[Tab]:
    """Nothing of the page but its scripts, which a test calls by itself."""
    tab = world.open("/static/icon.svg")
    tab.evaluate(SCRIPT)
    yield tab
    tab.close()


def _seek(tab: Tab, at: str) -> Any:
    found = tab.evaluate("(path) => seekTo(path)", f"{DOOR}?at={at}")
    assert not found.get("isLate"), (at, found)
    return found


def _frames(tab: Tab) -> list[Any]:
    found: list[Any] = tab.evaluate("() => frames_.splice(0)")
    return found


def _check_order(frames: list[Any]) -> None:
    """Pictures follow each other. A busy browser may show one of them again."""
    back = [(before, after) for before, after in pairwise(frames) if after["ms"] < before["ms"] - 41]
    assert not back, str(
        [(row["ms"] - frames[0]["ms"], row["session"], row["number"], round(row["at"])) for row in frames]
    )


def check_seeks(world: PastWorld, tab: Tab, count: int, seed: int) -> list[float]:
    """Seek to random pictures: that one is shown, and its boxes are on its object. Returns ms of each."""
    random, took = Random(seed), []
    shown = world.past.shown["door"]
    borders = [n for n in range(1, len(shown)) if shown[n].number == 0]
    chosen = [random.randrange(len(shown)) for _ in range(count - 8)]
    chosen += [max(0, min(len(shown) - 1, random.choice(borders) + random.choice((-1, 0)))) for _ in range(8)]
    for place in [one for one, before in zip(chosen, [None, *chosen]) if one != before]:
        one = shown[place]
        found = _seek(tab, world.at((one.at - world.begin) / SECOND + 0.02))
        wanted = world.numbers[one.session, one.pts]
        assert found["session"] == one.session
        assert abs(found["number"] - wanted) <= 1, (found, wanted)
        assert abs(found["pts"] - one.pts) <= PICTURE + 2_000_000, (found, one)
        assert found["kind"] == "exact", found
        size = (480, 270) if one.session == "c3" else (320, 180)
        (boxed,) = found["boxed"]
        assert boxed["box"] == pytest.approx(box_of(found["number"], *size), abs=0.02)
        assert boxed["colour"] == pytest.approx(COLOUR, abs=40), found
        took.append(found["took"])
    return took


def test_each_seek_shows_its_picture_with_its_boxes(world: PastWorld, tab: Tab) -> None:
    took = check_seeks(world, tab, 20, 1)
    frame, video, canvas = tab.evaluate("() => placesOf('.picture', '.picture video', '.picture canvas')")
    assert frame[2] > 480  # larger than the video
    assert video == pytest.approx(frame, abs=0.5)
    assert canvas == pytest.approx(frame, abs=0.5)
    say(f"seek to shown picture: median {median(took):.0f} ms, most {max(took):.0f} ms")


def test_a_moment_that_is_not_recorded_says_why(world: PastWorld, tab: Tab) -> None:
    tab.goto(f"{world.page.url}{DOOR}?at={world.at(45)}")
    expect(tab.locator(".picture-note")).to_have_text("Not recorded: the camera gave no video (no answer)")
    tab.goto(f"{world.page.url}{DOOR}?at={world.at(100)}")
    expect(tab.locator(".picture-note")).to_have_text("Not recorded: the disk was full")


@pytest.mark.long
def test_playing_goes_over_borders_and_gaps(world: PastWorld, tab: Tab) -> None:
    _seek(tab, world.at(19.5))
    _frames(tab)
    tab.keyboard.press("Space")
    tab.wait_for_function("() => frames_.some((one) => one.number >= 506)")  # the second file
    frames = _frames(tab)
    _check_order(frames)
    numbers = [row["number"] for row in frames]
    assert all(450 <= number <= 500 or number >= 500 for number in numbers)
    tab.get_by_label("Speed").select_option("4")
    tab.evaluate("(path) => void seekTo(path)", f"{DOOR}?at={world.at(38)}")
    tab.wait_for_function("() => frames_.some((one) => one.session === 'b2')")
    expect(tab.locator(".past-transport [role=status]")).to_contain_text(
        "10 seconds were left out. Not recorded: the camera"
    )
    tab.get_by_label("Speed").select_option("16")
    tab.evaluate("(path) => void seekTo(path)", f"{DOOR}?at={world.at(66)}")
    tab.wait_for_function("() => frames_.some((one) => one.session === 'd4')")  # over sizes and another gap
    tab.keyboard.press("k")
    expect(tab.get_by_role("button", name="Play", exact=True)).to_be_visible()


@pytest.mark.parametrize(("moment", "is_ready"), [(40_000, False), (39_995, True)])
def test_a_video_that_came_to_its_end_before_a_late_turn_is_right(scripts: Tab, moment: int, is_ready: bool) -> None:
    """It is not sought where the clock was: in a busy browser it would come to its end again, and so on. And it may
    stand just before its end."""
    scripts.evaluate("([moment, isReady]) => playLate(moment, isReady)", [moment, is_ready])
    scripts.wait_for_function("() => told_.length > 1")
    assert scripts.evaluate("() => told_") == [38000, 50000]


def test_a_video_that_is_where_nothing_is_comes_back(world: PastWorld, tab: Tab) -> None:
    """Chromium plays past the end of what is there, or jumps to the end of all time, when it has much to do."""
    _seek(tab, world.at(34))
    tab.get_by_label("Speed").select_option("2")
    tab.keyboard.press("Space")
    tab.wait_for_function("() => isAhead(10)")  # what is behind the gap is there
    tab.evaluate("() => void (document.querySelector('.past-picture video').currentTime += 6)")
    tab.wait_for_function("() => frames_.some((one) => one.session === 'b2')")


def test_a_step_to_another_stream_is_no_gap(world: PastWorld) -> None:
    """Half a second has no picture, and is not told as a gap. Over a shorter hole Chromium does not play by itself."""
    begin = world.begin + 200 * SECOND
    world.past.write("step", world.clip("plain", 0, 2), begin)
    world.past.write("step", world.clip("plain", 200, 2, session="f6"), begin + 2 * SECOND + SECOND // 2, cause=None)
    world.past.write(
        "step", world.clip("plain", 400, 2, session="g7"), begin + 4 * SECOND + SECOND * 65 // 100, cause=None
    )
    tab = world.open(f"/recordings/here/step?at={iso(begin + SECOND)}")
    tab.evaluate(SCRIPT)
    tab.locator(".past-shown").wait_for()
    tab.keyboard.press("Space")
    tab.wait_for_function("() => frames_.some((one) => one.session === 'f6')")
    expect(tab.locator(".past-transport [role=status]")).not_to_contain_text("left out")
    tab.wait_for_function("() => frames_.some((one) => one.session === 'g7')")
    tab.close()


def test_nothing_is_loaded_twice(world: PastWorld, tab: Tab) -> None:
    """Also while it plays before a gap, and what lies behind it is there."""
    asked: list[str] = []
    tab.on("requestfinished", lambda one: asked.append(f"{one.url} {one.headers.get('range')}"))
    _seek(tab, world.at(37))
    tab.get_by_label("Speed").select_option("2")
    tab.keyboard.press("Space")
    tab.wait_for_function("() => frames_.some((one) => one.session === 'b2')")
    loaded = [one for one in asked if "/files/" in one]
    assert len(loaded) == len(set(loaded)), loaded


def test_pictures_and_events_forwards_and_back(world: PastWorld, tab: Tab) -> None:
    _seek(tab, world.at(19.89))
    for key, number in (("ArrowRight", 498), (".", 499), (".", 500), (",", 499), ("ArrowLeft", 498)):
        tab.keyboard.press(key)
        tab.wait_for_function("(number) => shownNumber().number === number", arg=number)
    tab.keyboard.press("n")
    expect(tab.locator(".past-clock")).to_have_attribute("datetime", world.at(25))
    tab.keyboard.press("P")
    expect(tab.locator(".past-clock")).to_have_attribute("datetime", world.at(5))
    expect(tab.locator(".past-transport [role=status]")).to_contain_text("kerb")
    tab.wait_for_function("() => shownNumber().number === 125")
    tab.evaluate("() => stepFrom(0.2)")  # it counts from the picture that is there, of which the page is not told yet
    tab.wait_for_function("() => shownNumber().number === 131")


def test_a_moment_whose_video_does_not_come_holds_up_no_later_one(world: PastWorld, tab: Tab) -> None:
    _seek(tab, world.at(2))
    _frames(tab)
    tab.route("**/files/**", lambda route: route.fulfill(status=404))
    tab.evaluate("() => press('l', 'j')")  # ten seconds on, which is not here yet, and back
    tab.wait_for_function("() => frames_.length > 0")


@pytest.mark.long
def test_the_newest_picture_is_followed(world: PastWorld, tab: Tab) -> None:
    """The file that is being written grows while it is played."""
    begin = time.time_ns() - 8 * SECOND
    file = world.past.write("live", world.clip("plain", 0, 4), begin, is_open=True)
    tab.goto(f"{world.page.url}/recordings/here/live?at={iso(begin + 2 * SECOND)}")
    tab.evaluate(SCRIPT)
    tab.locator(".past-shown").wait_for()
    tab.get_by_role("button", name="Play", exact=True).click()
    tab.get_by_text("This is the newest picture.").wait_for()
    assert tab.evaluate("() => shownNumber().number") in (98, 99)
    world.past.go_on("live", file, world.clip("plain", 100, 4), begin + 4 * SECOND)
    tab.wait_for_function("() => shownNumber().number >= 150")
    expect(tab.get_by_role("link", name="Live")).to_have_attribute("href", "/camera/here/live")


@pytest.mark.long
def test_stills_stand_in_for_video_that_the_browser_does_not_play(world: PastWorld, tab: Tab) -> None:
    tab.goto(f"{world.page.url}/recordings/here/hevc?at={world.at(1.01)}")
    tab.evaluate(SCRIPT)
    expect(tab.get_by_text("This browser cannot play hvc1")).to_be_visible()
    picture = tab.locator(".past-picture img")
    tab.wait_for_function("() => document.querySelector('.past-picture img').naturalWidth === 320")
    before = picture.get_attribute("src")
    tab.keyboard.press(".")
    expect(picture).not_to_have_attribute("src", before or "")
    expect(tab.locator(".past-clock")).to_have_attribute("datetime", re.compile(r"\.0\d\dZ|\.1\d\dZ"))
    tab.keyboard.press("k")
    tab.wait_for_function("(at) => timesOf('.past-clock')[0] > at", arg=world.at(1.6))
    tab.keyboard.press("k")
    tab.evaluate("(path) => void follow(path)", f"/recordings/here/hevc?at={world.at(61)}")  # of a type that it plays
    tab.wait_for_function("() => shownNumber().number === 25")
    expect(picture).to_be_hidden()
    expect(tab.get_by_text("This browser cannot play hvc1")).to_have_count(0)


def test_a_moment_is_kept_copied_and_saved_by_keys_alone(world: PastWorld) -> None:
    """From the login to a clip on the disk, without a mouse."""
    with served_with_login(world) as url:
        tab = world.context.new_page()
        tab.goto(url + "/recordings")
        tab.get_by_label("Token").wait_for()
        _press_until(tab, "Tab", "document.activeElement.tagName === 'INPUT'")
        tab.keyboard.type(browsing.OPERATE)
        tab.keyboard.press("Enter")
        tab.get_by_role("slider").first.wait_for()
        _press_until(tab, "Tab", "document.activeElement.getAttribute('role') === 'slider'")
        tab.keyboard.press("Home")
        tab.keyboard.press("Shift+Tab")  # to the link with the name of the camera
        tab.keyboard.press("Enter")
        tab.locator(".past-shown").wait_for()
        _press_until(tab, "Tab", "document.activeElement.getAttribute('role') === 'slider'")
        for _ in range(4):
            tab.keyboard.press("+")
        tab.evaluate("() => document.activeElement.blur()")
        for step, mark in (("j", "i"), ("l", None), ("ArrowLeft", "o")):
            before = tab.locator(".past-shown").get_attribute("datetime")
            tab.keyboard.press(step)
            expect(tab.locator(".past-shown")).not_to_have_attribute("datetime", before or "")
            if mark:
                tab.keyboard.press(mark)
        _press_until(tab, "Tab", "document.activeElement.textContent === 'Download as MP4'")
        with tab.expect_download() as download:
            tab.keyboard.press("Enter")
        with av.open(str(download.value.path())) as container:
            assert 200 <= sum(1 for _ in container.decode(video=0)) <= 300
        _press_until(tab, "Tab", "document.activeElement.textContent === 'Keep this'")
        tab.keyboard.press("Enter")
        tab.get_by_role("dialog").wait_for()
        tab.keyboard.type("case 17")
        tab.keyboard.press("Enter")
        expect(tab.get_by_text("case 17 (guard)")).to_be_visible()
        _press_until(tab, "Tab", "document.activeElement.textContent === 'Unlock'")
        tab.keyboard.press("Enter")
        expect(tab.get_by_text("case 17 (guard)")).to_have_count(0)
        tab.close()


def _press_until(tab: Tab, key: str, condition: str) -> None:
    for _ in range(120):
        tab.keyboard.press(key)
        if tab.evaluate(f"() => {condition}"):
            return
    raise AssertionError(condition)


@pytest.mark.long
def test_a_link_and_a_picture_of_a_moment(world: PastWorld, tab: Tab) -> None:
    _seek(tab, world.at(3))
    tab.get_by_role("button", name="Copy link to this moment").click()
    expect(tab.get_by_text("The link is copied.").first).to_be_visible()
    assert tab.evaluate("() => navigator.clipboard.readText()") == f"{world.page.url}{DOOR}?at={world.at(3)}"
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Save picture", exact=True).click()
    with av.open(str(download.value.path())) as container:
        (frame,) = container.decode(video=0)
        assert (frame.width, frame.height) == (320, 180)


@pytest.mark.long
def test_a_range_that_is_too_long_says_so(world: PastWorld, tab: Tab) -> None:
    _seek(tab, world.at(3))
    tab.keyboard.press("i")
    tab.get_by_role("slider", name="Recordings of door").focus()
    for _ in range(16):
        tab.keyboard.press("Shift+ArrowRight")
    tab.keyboard.press("o")
    tab.get_by_role("button", name="Download as MP4").click()
    expect(tab.get_by_role("alert")).to_contain_text("600 s")


@pytest.mark.long
def test_several_cameras_are_on_one_clock(world: PastWorld, tab: Tab) -> None:
    _seek(tab, world.at(12 + 0.02))
    tab.get_by_label("Add a camera").select_option("here/yard")
    tab.wait_for_function("() => document.querySelectorAll('.past-shown').length === 2")
    shown = tab.locator(".past-shown")
    expect(shown.nth(1)).to_have_attribute("datetime", world.at(12))
    tab.keyboard.press("Space")
    tab.wait_for_function("(at) => timesOf('.past-shown').every((one) => one > at)", arg=world.at(14))
    first, second = tab.evaluate("() => timesOf('.past-shown').map(Date.parse)")
    assert abs(first - second) < 1000
    tab.keyboard.press("Space")
    assert "also=here%2Fyard" in tab.url
    _seek(tab, world.at(39))  # where the second has nothing
    expect(tab.locator(".past-picture").nth(1).locator(".picture-note")).to_contain_text("Not recorded")
    tab.goto(f"{world.page.url}{DOOR}?at={world.at(3)}&also=100%25,here/door,here%2Fyard")
    expect(tab.locator(".past-picture figcaption b")).to_have_text(["door", "yard"])


def test_a_moment_that_one_camera_does_not_have_is_that_of_the_clock(world: PastWorld) -> None:
    """Its video stays where it was, and no clock goes by that."""
    tab = world.open(f"/recordings/here/yard?at={world.at(25)}&also=here/door")
    tab.evaluate(SCRIPT)
    tab.wait_for_function("(at) => String(timesOf('.past-shown')) === `${at},${at}`", arg=world.at(25))
    tab.get_by_label("Speed").select_option("8")
    tab.evaluate("(path) => void follow(path)", f"/recordings/here/yard?at={world.at(8)}")
    expect(tab.locator(".picture-note")).to_contain_text("Not recorded")
    _frames(tab)
    tab.keyboard.press("Space")
    tab.wait_for_function(
        "(at) => timesOf('.past-shown').length === 2 && timesOf('.past-clock')[0] > at", arg=world.at(12)
    )
    tab.keyboard.press("Space")
    assert tab.evaluate("() => timesOf('.past-clock')[0]") < world.at(20)
    tab.close()


@pytest.mark.long
def test_two_stores_are_one_timeline(world: PastWorld, tab: Tab) -> None:
    """Where one has a gap, the other one is played."""
    tab.goto(f"{world.page.url}/recordings/here/hall?at={world.at(3.01)}&zoom=60")
    tab.evaluate(SCRIPT)
    tab.locator(".past-shown").wait_for()
    tab.get_by_text("As a list").click()
    rows = tab.locator(".past-list tbody tr", has_text=re.compile("Recorded$"))
    expect(rows).to_have_count(1)
    tab.keyboard.press("k")
    tab.wait_for_function("() => frames_.some((one) => one.number > 205)")
    frames = _frames(tab)
    _check_order(frames)
    numbers = [row["number"] for row in frames]
    assert {number // 100 for number in numbers} == {0, 1, 2}


def test_the_later_owner_wins(scripts: Tab) -> None:
    """Of two members of a fleet that both have a time: the one of the higher epoch, and the other around it."""
    fragments, spans = scripts.evaluate("() => ofTwoOwners()")
    assert fragments == ["old0", "old1", "new2", "new3", "old4", "old5"]
    assert spans == [[0, 7, "video", None], [7, 9, "gap", "disk_full"]]


def test_an_answer_that_is_cut_off_is_asked_for_again(scripts: Tab) -> None:
    """It says nothing of the video: only what the browser does not play is shown as stills."""
    assert scripts.evaluate("() => askCutOff()") == [0, "The page's server does not answer."]


@pytest.mark.long
def test_the_bar_is_read_zoomed_and_kept_in_the_address(tab: Tab) -> None:
    bar = tab.get_by_role("slider", name="Recordings of door")
    bar.focus()
    bar.press("+")
    tab.wait_for_function("() => new URLSearchParams(location.search).get('zoom') === '100'")
    expect(bar).to_have_attribute("aria-valuetext", re.compile("Recorded"))
    for _ in range(9):
        bar.press("-")
    tab.wait_for_function("() => Number(new URLSearchParams(location.search).get('zoom')) > 50000")
    tab.reload()
    bar.wait_for()
    assert float(re.findall(r"zoom=(\d+)", tab.url)[0]) > 50_000
    day = tab.get_by_label("Day", exact=True)
    today = day.input_value()
    tab.get_by_role("button", name="Day before").click()
    expect(day).not_to_have_value(today)  # the day of the bar, and not of the picture
    tab.get_by_role("button", name="Day after").click()
    expect(day).to_have_value(today)
    tab.get_by_role("button", name="Minute").click()
    tab.get_by_text("As a list").click()
    expect(tab.locator(".past-list tbody tr", has_text="Recorded").first).to_be_visible()


def test_axe_finds_nothing(world: PastWorld, tab: Tab) -> None:
    for path, scheme, width in VIEWS:
        tab.set_viewport_size({"width": width, "height": 800})
        tab.emulate_media(color_scheme=scheme)
        tab.goto(world.page.url + path.format(at=world.at(22)))
        tab.get_by_role("slider").first.wait_for()
        assert violations(tab) == []
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= width


def test_they_read_nothing_that_nobody_sends(world: PastWorld) -> None:
    tab = world.context.new_page()
    watch(tab)
    tab.goto(f"{world.page.url}/recordings")
    tab.get_by_role("slider").first.wait_for()
    for source in ("door", "hevc", "hall"):
        visit(tab, f"/recordings/here/{source}?at={world.at(2)}&zoom=200")
        tab.locator(".past-shown").wait_for()
        tab.keyboard.press("i")
        tab.keyboard.press("n" if source == "door" else ".")
        tab.wait_for_function("() => document.querySelector('.past-shown')")
        tab.keyboard.press("o")
    tab.locator(".past-list summary").first.click()
    assert unsent(tab) == []
    tab.close()


def test_no_request_is_large(world: PastWorld) -> None:
    assert max(world.sizes.values()) < 200_000
