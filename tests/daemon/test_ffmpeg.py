"""Files and URLs that are not what they should be: one reason each, no hang, and decoding goes on where it can."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from contextlib import closing, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Literal

import cv2
import msgspec
import numpy as np
import pytest
from av.video.frame import VideoFrame

from daemon.commands.check import open_once
from daemon.config.sources import AvConfig
from daemon.errors import DecodeError, SourceError
from daemon.redact import Secret, Url
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.ffmpeg import AvReader, AvSource
from daemon.sources.port import next_picture
from tests.support import clips
from tests.support.http_files import Chunked
from tests.support.ports import free_port
from tests.support.rtsp import RtspServer

pytestmark = pytest.mark.needs("ffmpeg")


def play(path: Path | str, **more: object) -> Counter[str]:
    """Frames by size, and errors."""
    seen: Counter[str] = Counter()
    limits: dict[str, object] = {"open_timeout_s": 30, "read_timeout_s": 30}
    config = AvConfig(id="s", url=Url(str(path)), **(limits | more))  # type: ignore[arg-type]
    with closing(AvSource(config).open()) as reader:
        while True:
            try:
                picture = next_picture(reader)
                if picture is None:
                    return seen
                image = picture.load()
                seen[f"{image.width}x{image.height}"] += 1
            except DecodeError:
                seen["error"] += 1


def test_pictures_leave_memory_without_the_garbage_collector(tmp_path: Path) -> None:
    """Collections are rare: a picture of 4K that waits for one is 12 MB. Those of x264 have data beside them."""
    path = tmp_path / "clip.mp4"
    clips.ffmpeg("-f", "lavfi", "-i", "testsrc2=size=160x96:rate=15:duration=4", "-c:v", "libx264", "-g", "5", path)
    gc.collect()
    gc.disable()
    try:
        assert play(path)["160x96"] == 60
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [thing for thing in gc.garbage if isinstance(thing, VideoFrame)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.fixture(scope="session")
def mp4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seconds, with its index at the front."""
    folder = tmp_path_factory.mktemp("mp4")
    plain = clips.pattern(folder / "plain.mp4", seconds=10)
    clips.ffmpeg("-i", plain, "-c", "copy", "-movflags", "+faststart", folder / "clip.mp4")
    return folder / "clip.mp4"


def read_on(reader: AvReader) -> None:
    while next_picture(reader) is not None:
        pass


def test_an_empty_file_and_a_file_of_text(tmp_path: Path) -> None:
    for content in (b"", b"this is not a video\n" * 50):
        file = tmp_path / "clip.mp4"
        file.write_bytes(content)
        with pytest.raises(SourceError, match="empty, cut short or not a video"):
            play(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        play(tmp_path / "nothing.mp4")


def test_audio_only(tmp_path: Path) -> None:
    clips.ffmpeg("-f", "lavfi", "-i", "sine=d=1", tmp_path / "a.m4a")
    with pytest.raises(SourceError, match=r"no video in .*: it holds audio"):
        play(tmp_path / "a.m4a")


def test_a_clip_cut_off_in_the_middle(mp4: Path, tmp_path: Path) -> None:
    """FFmpeg ends it silently; we do not."""
    cut = tmp_path / "cut.mp4"
    content = mp4.read_bytes()
    cut.write_bytes(content[: len(content) // 2])
    with pytest.raises(SourceError, match=r"cut short: it ends after .* s of 10\.0 s"):
        play(cut)


def test_corrupt_bytes_in_the_middle(mp4: Path, tmp_path: Path) -> None:
    """Decoding goes on behind them, and every packet is a frame or an error."""
    content = bytearray(mp4.read_bytes())
    rng = random.Random(1)
    for position in range(len(content) // 2, len(content) // 2 + 20_000):
        content[position] = rng.randrange(256)
    (tmp_path / "bad.mp4").write_bytes(content)
    seen = play(tmp_path / "bad.mp4")
    assert seen["error"] > 0
    assert seen["320x180"] + seen["error"] == pytest.approx(150, abs=2)
    assert seen["320x180"] > 75


def test_a_change_of_resolution_in_the_middle(tmp_path: Path) -> None:
    first = clips.pattern(tmp_path / "1.ts", seconds=1)
    second = clips.pattern(tmp_path / "2.ts", seconds=1, size="640x480")
    (tmp_path / "both.ts").write_bytes(first.read_bytes() + second.read_bytes())
    seen = play(tmp_path / "both.ts")
    assert seen == {"320x180": 15, "640x480": 15}


@pytest.mark.parametrize(("size", "suffix"), [((1, 1), "png"), ((7680, 4320), "jpg")])
def test_the_smallest_and_the_largest_frame(tmp_path: Path, size: tuple[int, int], suffix: str) -> None:
    still = tmp_path / f"still.{suffix}"
    cv2.imwrite(str(still), np.full((size[1], size[0], 3), 90, np.uint8))
    clips.ffmpeg("-loop", "1", "-framerate", "5", "-i", still, "-t", "0.6", "-c:v", "copy", tmp_path / "clip.mkv")
    assert play(tmp_path / "clip.mkv") == {f"{size[0]}x{size[1]}": 3}


def test_nobody_listens() -> None:
    with pytest.raises(SourceError, match="Connection refused") as caught:
        play(f"rtsp://user:pa55@127.0.0.1:{free_port()}/x")
    assert "pa55" not in str(caught.value)


def test_no_such_host() -> None:
    with pytest.raises(SourceError, match="host name may be wrong"):
        play("rtsp://user:pa55@camera.invalid/x")


def test_a_server_that_accepts_and_says_nothing() -> None:
    """The open time limit holds."""
    import socket

    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(SourceError, match=r"no complete answer from .* within 2 s"),
    ):
        play(f"rtsp://127.0.0.1:{silent.getsockname()[1]}/x", open_timeout_s=2)


@pytest.mark.needs("ffmpeg", "rtsp")
def test_a_recording_that_is_a_list_of_others_is_none(mp4: Path, tmp_path: Path) -> None:
    """Whoever may put recordings somewhere may not have any other file played."""
    (tmp_path / "list.mp4").write_text(f"ffconcat version 1.0\nfile {mp4.name}\n")
    (tmp_path / mp4.name).symlink_to(mp4)
    with pytest.raises(SourceError, match="its format is not allowed for files"):
        AvSource(AvConfig(id="s", url=Url(str(tmp_path / "list.mp4")))).open()


def test_a_recording_that_is_sent_in_chunks_ends(tmp_path: Path) -> None:
    """FFmpeg 9 takes the end of such an answer for a break, unless it may ask for more over the connection."""
    clips.ffmpeg("-f", "lavfi", "-i", "testsrc2=duration=1:rate=10", "-c:v", "mpeg2video", tmp_path / "a.ts")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Chunked, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        counts = play(f"http://127.0.0.1:{server.server_port}/a.ts", kind="recording")
        server.shutdown()
    assert counts == {"320x240": 10}


def test_a_camera_that_redirects_is_not_followed(mp4: Path) -> None:
    """To wherever it may like; unless that is what was asked for."""
    asked: list[str] = []

    class Camera(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302 if self.path == "/cam" else 200)
            if self.path == "/cam":
                self.send_header("Location", "/internal?do=reboot")
            self.end_headers()
            if self.path != "/cam":
                self.wfile.write(mp4.read_bytes())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Camera) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = AvConfig(id="s", url=Url(f"http://127.0.0.1:{server.server_port}/cam"))
        with pytest.raises(SourceError, match=r"it redirects to /internal\?do=reboot, .* or options: \{max_redirects"):
            AvSource(config).open()
        assert set(asked) == {"/cam"}
        follows = msgspec.structs.replace(config, options={"max_redirects": Secret("3")})
        with suppress(SourceError):  # the clip may be of a form that cannot be read in one go
            AvSource(follows).open().close()
        assert "/internal?do=reboot" in asked
        server.shutdown()


@pytest.mark.parametrize("second", ["redirects", "says nothing"])
def test_a_recording_is_looked_at_under_the_same_limits(mp4: Path, second: str, tmp_path: Path) -> None:
    """The connection that finds out how a recording is turned goes nowhere else, and waits no longer."""
    clips.ffmpeg("-i", mp4, "-c", "copy", tmp_path / "clip.ts")
    asked: list[str] = []
    over = threading.Event()

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if len(asked) > 1 and second == "says nothing":
                over.wait(60)
                return
            self.send_response(302 if len(asked) > 1 else 200)
            self.send_header("Location", "/internal?do=reboot")
            self.end_headers()
            if len(asked) == 1:
                self.wfile.write((tmp_path / "clip.ts").read_bytes())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = Url(f"http://127.0.0.1:{server.server_port}/clip.ts")
        config = AvConfig(id="s", url=url, kind="recording", open_timeout_s=2, read_timeout_s=2)
        with closing(AvSource(config).open()) as reader:
            assert len(asked) == 2
            assert set(asked) == {"/clip.ts"}
            assert next_picture(reader) is not None
        over.set()
        server.shutdown()


def test_a_camera_without_key_pictures_is_told_of(long_clip: Path, tmp_path: Path) -> None:
    """Nothing can be decoded; `lookout check` says why."""
    clips.ffmpeg("-i", long_clip, "-c", "copy", "-bsf:v", "noise=drop=key", tmp_path / "cam.ts")
    config = AvConfig(id="s", url=Url(str(tmp_path / "cam.ts")), kind="live")
    problem = open_once(config, NoHardwareDecoder("not asked for")).problem
    assert problem is not None
    assert "it has sent no key picture yet" in problem


@pytest.mark.parametrize("says_its_length", [True, False])
def test_a_web_page_is_told(says_its_length: bool) -> None:
    """U22: the address of a camera's own page is what people try first."""
    page = b"<html><body>Welcome to your camera</body></html>"

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if says_its_length:
                self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(SourceError, match="web page"):
            AvSource(AvConfig(id="s", url=Url(f"http://127.0.0.1:{server.server_port}/"))).open()
        server.shutdown()


def test_a_variable_without_braces_is_told() -> None:
    url = Url(f"rtsp://me:$CAMERA_PASSWORD@127.0.0.1:{free_port()}/x")
    with pytest.raises(SourceError, match=r"the URL has \$CAMERA_PASSWORD: for a variable write \$\{CAMERA_PASSWORD\}"):
        AvSource(AvConfig(id="s", url=url)).open()


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_a_camera_that_freezes(long_clip: Path, transport: Literal["tcp", "udp"]) -> None:
    """While it sends, and while it is to answer: the limit is that of the source, and the reason says so."""
    server = RtspServer({"cam": long_clip})
    url = Url(server.url("cam"))
    source = AvSource(AvConfig(id="s", url=url, transport=transport, open_timeout_s=20, read_timeout_s=3))
    try:
        with closing(source.open()) as reader:
            assert next_picture(reader) is not None
            server.freeze()
            with pytest.raises(SourceError, match=r"no data from .* for \d+\.\d s"):
                read_on(reader)
        with pytest.raises(SourceError, match=r"no complete answer from .* within 3 s"):
            source.open()
    finally:
        server.kill()


def test_a_file_without_times_gets_them_from_its_rate(clip: Path, tmp_path: Path) -> None:
    """So that it can be paced and looped."""
    clips.ffmpeg("-i", clip, "-c", "copy", "-f", "h264", tmp_path / "bare.264")
    config = AvConfig(id="s", url=Url(str(tmp_path / "bare.264")), loop=True)
    with closing(AvSource(config).open()) as reader:
        times = [picture.pts or 0 for picture in (next_picture(reader) for _ in range(100)) if picture]
        step = 1e9 / (reader.format.fps or 0)
    assert times == pytest.approx([number * step for number in range(100)], abs=1e6)


def test_a_looped_clip_goes_on_in_time(clip: Path) -> None:
    """Three passes: times keep growing by one frame over the seam."""
    config = AvConfig(id="s", url=Url(str(clip)), loop=True)
    with closing(AvSource(config).open()) as reader:
        times = [
            picture.pts for picture in (next_picture(reader) for _ in range(135)) if picture and picture.pts is not None
        ]
    assert len(times) == 135
    assert all(abs(b - a - 1e9 / 15) < 2e6 for a, b in pairwise(times))
