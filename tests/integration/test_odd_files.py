"""Recordings as they come: every picture that a player shows is published once, upright, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from daemon.commands.check import open_once
from daemon.config.sources import AvConfig
from daemon.redact import Url
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.ffmpeg import AvReader, AvSource
from daemon.sources.port import next_picture
from detectors.matching import match
from detectors.port import DeviceImage, Image
from lookout.messages import Detections, Status
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout, is_state, receive_until
from tests.support.hardware import FakeGpu
from tests.support.http_files import Chunked, Quiet
from tests.support.odd_clips import FRAMES, HEIGHT, ODD, WIDTH, drawn, shown_frames, shown_size

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.slow]
_OVER_HTTP = ("wrapped.ts", "list.m3u8")
_ASPECT = {"anamorphic.mp4": 2.0}
_OTHER_PICTURES = ("variable.mkv", "cut.mp4", "interlaced.mp4", "interlaced.ts")  # or some of them
_LEAST_ALIKE = {"anamorphic.mp4": 0.7}  # of the boxes in each other's place: squeezed things are seen less well
_USUALLY_ALIKE = 0.9


@dataclass
class Played:
    """What came of all clips in one lossless run."""

    folder: Path
    messages: dict[str, list[Detections]]
    statuses: dict[str, list[Status]]
    code: int


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("odd")
    base = drawn(folder / "base.mp4")
    for name, make in ODD.items():
        make(base, folder / name)
    servers = []
    for handler in (Quiet, Chunked):
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
    urls = {name: str(folder / name) for name in ("base.mp4", *ODD)}
    plain, chunked = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    urls |= {"http-list.m3u8": f"{plain}/list.m3u8", "http-wrapped.ts": f"{chunked}/wrapped.ts"}
    try:
        yield _played(folder, urls)
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _played(folder: Path, urls: dict[str, str]) -> Played:
    config: dict[str, object] = {
        "sources": [
            {"id": name, "type": "av", "url": url, "pace": "fast", "kind": "recording"} for name, url in urls.items()
        ],
        "board": {"mode": "lossless"},
        "model": {"path": str(DEMO_MODEL), "threads": 1},
        "publisher": {"wait_for_subscriber_s": PATIENCE_S, "high_water_mark": 100_000},
    }
    messages: dict[str, list[Detections]] = {name: [] for name in urls}
    statuses: dict[str, list[Status]] = {name: [] for name in urls}
    with Lookout(folder, config) as lookout, lookout.subscribe("detections", "status") as subscriber:
        left = set(urls)
        while left:
            message = receive_until(subscriber, lambda _: True, timeout_s=5 * PATIENCE_S)[-1]
            if isinstance(message, Detections):
                messages[message.source].append(message)
            elif isinstance(message, Status):
                statuses[message.source].append(message)
                left -= {message.source} if message.state == "ended" else set()
        return Played(folder, messages, statuses, lookout.process.wait(PATIENCE_S))


_NAMES = ("base.mp4", *ODD, "http-list.m3u8", "http-wrapped.ts")


@pytest.mark.share(2)
@pytest.mark.parametrize("name", _NAMES)
def test_every_picture_is_published_once_and_upright(played: Played, name: str) -> None:
    path = played.folder / name.removeprefix("http-")
    messages = played.messages[name]
    assert played.code == 0
    assert len(messages) == shown_frames(path) == messages[-1].seq + 1
    assert [message.seq for message in messages] == list(range(len(messages)))
    assert set(msgspec.structs.astuple(messages[-1].dropped)) == {0}
    (image,) = {message.image for message in messages}
    assert (image.width, image.height) == shown_size(path)
    assert image.pixel_aspect == _ASPECT.get(name, 1.0)
    states = [status.state for status in played.statuses[name]]
    assert states[-1] == "ended"
    assert "down" not in states
    assert played.statuses[name][-1].reason is None  # such as that it were cut short


@pytest.mark.parametrize("name", [name for name in ODD if name not in _OTHER_PICTURES])
def test_boxes_are_where_they_are_in_the_street(played: Played, name: str) -> None:
    """Of every picture, in parts of it, however it was stored."""
    truth, found = played.messages["base.mp4"], played.messages[name]
    assert sum(len(message.detections) for message in truth) > FRAMES
    hits = wanted = 0
    for theirs, ours in zip(truth, found):
        pairs = match(*_boxes(ours), *_boxes(theirs), 0.5)
        hits, wanted = hits + len(pairs), wanted + len(theirs.detections)
    assert hits >= _LEAST_ALIKE.get(name, _USUALLY_ALIKE) * wanted


def _boxes(message: Detections) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Corners in the street's own pixels, and classes."""
    scale = np.array([WIDTH / message.image.width, HEIGHT / message.image.height] * 2)
    corners = np.array([row.box for row in message.detections]).reshape(-1, 4) * scale
    return corners.astype(np.float32), np.array([row.class_id for row in message.detections], np.int32)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tracks.mp4", "it has 2 video tracks; the first is read"),
        ("late.mkv", "its video begins 2.0 s after its sound"),
        ("late.mp4", "its video begins 2.0 s after its sound"),
    ],
)
def test_check_says_what_is_odd(played: Played, name: str, words: str) -> None:
    opened = open_once(AvConfig(id="odd", url=Url(str(played.folder / name))), NoHardwareDecoder("none"))
    assert opened.format is not None
    assert opened.format.notes == (words,)


@pytest.mark.parametrize(("rotate", "size"), [(0, (WIDTH, HEIGHT)), (90, (HEIGHT, WIDTH)), (180, (WIDTH, HEIGHT))])
def test_whoever_knows_better_says_how_to_turn(played: Played, rotate: int, size: tuple[int, int]) -> None:
    config = AvConfig(id="odd", url=Url(str(played.folder / "base.mp4")), rotate=rotate)  # type: ignore[arg-type]
    opened = open_once(config, NoHardwareDecoder("none"))
    assert opened.format is not None
    assert opened.image is not None
    assert (opened.format.width, opened.format.height) == (opened.image.width, opened.image.height) == size


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("pattern", ["", "*.m*"])
def test_a_folder_is_one_source(pattern: str, processes: int, played: Played, tmp_path: Path) -> None:
    """Its recordings by name, each a session of its own; what is none is passed over, and said at the end."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    for name, clip in (("1.mp4", "whole.mp4"), ("3.mkv", "10-bit.mkv"), ("4.mp4", "turned-90.mp4")):
        (folder / name).symlink_to(played.folder / clip)
    (folder / "2.mp4").write_text("no recording")
    (folder / "notes.txt").write_text("none either")
    config: dict[str, object] = {
        "sources": [{"id": "all", "type": "av", "url": str(folder / pattern), "pace": "fast"}],
        "board": {"mode": "lossless"},
        "capture_processes": processes,
        "model": {"path": "none", "backend": "fake"},
        "publisher": {"wait_for_subscriber_s": PATIENCE_S},
    }
    with Lookout(tmp_path, config) as lookout, lookout.subscribe("detections", "status") as subscriber:
        messages = receive_until(subscriber, is_state("all", "ended"), timeout_s=2 * PATIENCE_S)
        assert lookout.process.wait(PATIENCE_S) == 0
        assert "passed over: cannot open" in lookout.log()
    frames = [message for message in messages if isinstance(message, Detections)]
    assert [message.seq for message in frames] == list(range(3 * FRAMES))
    sessions = list(dict.fromkeys(message.session for message in frames))
    assert [sum(message.session == session for message in frames) for session in sessions] == [FRAMES] * 3
    ended = messages[-1]
    assert isinstance(ended, Status)
    assert "2.mp4" in str(ended.reason)


@pytest.mark.parametrize("name", ["base.mp4", "cut.mp4", "turned-90.mp4", "turned-270.mp4"])
def test_a_gpus_decoder_gives_the_same_pictures(played: Played, name: str) -> None:
    """By a stand-in, which like the real one knows neither edit lists nor how a recording is turned."""
    config, card = AvConfig(id="odd", url=Url(str(played.folder / name)), decode="nvdec"), FakeGpu(surfaces=2 * FRAMES)
    with closing(AvSource(config, card.pool).open()) as reader:
        pictures = list(_loaded(reader))
    assert len(pictures) == shown_frames(played.folder / name)
    assert {(image.width, image.height) for image in pictures} == {shown_size(played.folder / name)}
    turns = {"turned-90.mp4": {3}, "turned-270.mp4": {1}}.get(name, {0})  # back
    assert {image.turns for image in pictures if isinstance(image, DeviceImage)} == turns
    card.pool.close()


def _loaded(reader: AvReader) -> Iterator[Image]:
    while picture := next_picture(reader):
        yield picture.load()


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("none")
    opened = open_once(AvConfig(id="none", url=Url(str(tmp_path))), NoHardwareDecoder("none"))
    assert opened.problem == f"{tmp_path} holds no recording"
