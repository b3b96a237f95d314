"""The rate that a header claims is believed as far as the pictures bear it out."""

from __future__ import annotations

import random
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread

import cv2
import msgspec
import numpy as np
import pytest

from daemon.commands.check import open_once
from daemon.config.sources import AvConfig
from daemon.control.admission import Admission
from daemon.errors import SourceError
from daemon.redact import Url
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.ffmpeg import AvReader, AvSource
from daemon.sources.frame_rate import FrameRate
from daemon.sources.port import Picture, next_picture
from lookout.messages import VideoFormat
from tests.daemon.test_capture import Run, ScriptedReader, ScriptedSource
from tests.support import clips
from tests.support.clock import ManualClock
from tests.support.rtsp_camera import Camera, RtspCamera, at_rate, pictures_of

S = 1_000_000_000  # ns


def corrections(rate: FrameRate, fps: float, seconds: float, begin: float = 0.0, jitter: float = 0.0) -> list[float]:
    """What the rate becomes while pictures come at another."""
    rng = random.Random(1)
    times = (begin + number / fps + rng.uniform(-jitter, jitter) / fps for number in range(round(fps * seconds)))
    return [rate.fps or 0.0 for time in times if rate.add(round(time * S))]


@pytest.mark.parametrize("claim", [90_000.0, 241.0, 0.0, None])
def test_a_rate_that_cannot_be_is_unknown_until_it_is_measured(claim: float | None) -> None:
    rate = FrameRate()
    rate.begin(claim, tolerance=0.1)
    assert rate.fps is None
    assert corrections(rate, 15, 30) == [15.0]


@pytest.mark.parametrize(("claim", "fps"), [(30, 7), (25, 12.5), (5, 30), (30, 25), (240, 1), (50, 49), (29.97, 30)])
def test_a_wrong_rate_is_corrected_once(claim: float, fps: float) -> None:
    """And one that is as good as right stays as it was claimed."""
    rate = FrameRate()
    rate.begin(claim, tolerance=0.1)
    found = corrections(rate, fps, 600, jitter=0.3)
    assert found == pytest.approx([fps] if abs(claim / fps - 1) > 0.1 else [], rel=0.05)
    assert rate.is_measured


def test_a_new_connection_begins_with_the_measured_rate() -> None:
    rate = FrameRate()
    rate.begin(30, tolerance=0.1)
    corrections(rate, 7, 10)
    rate.begin(30, tolerance=0.1)
    assert rate.fps == pytest.approx(7, abs=0.1)
    rate.begin(15, tolerance=0.1)  # somebody has set the camera
    assert rate.fps == 15


def test_a_rate_that_changes_at_night_is_followed_slowly() -> None:
    """One that goes up and down is not."""
    rate = FrameRate()
    rate.begin(25, tolerance=0.1)
    assert corrections(rate, 25, 300) == []
    assert corrections(rate, 12.5, 300, begin=300) == [12.5]
    for minute in range(10, 30):
        assert corrections(rate, 12.5 if minute % 2 else 14.5, 60, begin=60.0 * minute) == []


def test_gaps_and_jumps_are_no_slow_pictures() -> None:
    rate = FrameRate()
    rate.begin(None, tolerance=0.1)
    for begin in (0, 100, 5000, -40, 200):
        corrections(rate, 10, 1.5, begin=begin)
    assert rate.fps is None
    assert corrections(rate, 10, 3, begin=300) == [10.0]


# --- of cameras ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def claiming(clip: Path, tmp_path_factory: pytest.TempPathFactory) -> partial[Camera]:
    """A camera of 15 frames/s whose parameter sets claim another rate."""
    folder = tmp_path_factory.mktemp("rates")

    def camera(claimed: int, fps: float = 15, passes: int = 2) -> Camera:
        path = folder / f"{claimed}.mkv"
        bits = f"h264_metadata=tick_rate={2 * claimed}:fixed_frame_rate_flag=1"
        clips.ffmpeg("-i", clip, "-c", "copy", "-bsf:v", bits, path)
        return Camera(at_rate(pictures_of(path) * passes, fps))

    return partial(camera)


def rates(reader: AvReader, pictures: int) -> list[float | None]:
    """What the reader says, without what it has said before."""
    found = [reader.format.fps]
    for _ in range(pictures):
        assert next_picture(reader)
        found += [reader.format.fps] if reader.format.fps != found[-1] else []
    return found


@pytest.mark.needs("ffmpeg")
@pytest.mark.parametrize(
    ("claimed", "fps", "said"),
    [(90_000, 15, [None, 15.0]), (30, 7, [30.0, 7.0]), (15, 15, [15.0]), (5, 30, [5.0, 30.0])],
)
def test_a_camera_claims_a_rate(claiming: partial[Camera], claimed: int, fps: float, said: list[float | None]) -> None:
    with (
        RtspCamera(claiming(claimed, fps, passes=4)) as server,
        closing(AvSource(AvConfig(id="s", url=Url(server.url()))).open()) as reader,
    ):
        assert rates(reader, 170) == [None if fps is None else pytest.approx(fps, abs=0.1) for fps in said]


@pytest.mark.needs("ffmpeg")
def test_check_waits_until_it_knows(claiming: partial[Camera]) -> None:
    """One may be asked for 90,000 frames/s otherwise, or be left out of the sum."""
    with RtspCamera(claiming(90_000)) as server:
        opened = open_once(AvConfig(id="s", url=Url(server.url())), NoHardwareDecoder("not asked for"))
    assert opened.problem is None
    assert opened.format
    assert opened.format.fps == pytest.approx(15, abs=0.1)


@pytest.mark.needs("ffmpeg")
@pytest.mark.parametrize("form", ["mpjpeg", "mjpeg", "h264"])
def test_a_live_stream_without_times_has_none(form: str, clip: Path, tmp_path: Path) -> None:
    """FFmpeg invents 25 a second. Arrival counts, so 4,000 pictures a second are no rate either."""
    if form == "h264":
        clips.ffmpeg("-i", clip, "-c", "copy", "-f", "h264", tmp_path / "clip")
        body = (tmp_path / "clip").read_bytes()
    else:
        jpeg = cv2.imencode(".jpg", np.random.default_rng(1).integers(0, 255, (96, 160, 3), np.uint8))[1].tobytes()
        head = b"--cut\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg)
        body = b"".join([head + jpeg + b"\r\n" if form == "mpjpeg" else jpeg] * 60)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            kind = {"mpjpeg": "multipart/x-mixed-replace;boundary=cut", "mjpeg": "video/x-motion-jpeg"}.get(form)
            self.send_header("Content-Type", kind or "video/h264")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        config = AvConfig(id="s", url=Url(f"http://127.0.0.1:{server.server_port}/live.{form}"), read_timeout_s=1)
        with closing(AvSource(config).open()) as reader:
            found = [next_picture(reader) for _ in range(30)]
            assert reader.format.fps is None
        server.shutdown()
    assert [picture.pts for picture in found if picture] == [None] * 30


# --- in the capture --------------------------------------------------------------------------------------------------


class Changing(ScriptedReader):
    """A reader whose format is another one after some pictures."""

    def __init__(self, source: ScriptedSource, steps: list[object], formats: dict[int, VideoFormat]) -> None:
        super().__init__(source, steps)
        self._formats, self._read = formats, count()

    def read(self) -> Picture | None:
        self.format = self._formats.get(next(self._read), self.format)
        picture = super().read()
        assert picture is None or isinstance(picture, Picture)
        return picture


class Camera30(ScriptedSource):
    """Claims 30 frames/s and turns out to have another rate after 50 pictures."""

    live = True

    def __init__(self, fps: float) -> None:
        super().__init__([number * S // 10 for number in range(100)])
        self.format = VideoFormat("script", 6, 4, 30.0, "none")
        self._formats = {50: msgspec.structs.replace(self.format, fps=fps)}

    def open(self, budget: object = None) -> ScriptedReader:
        reader = super().open()
        return Changing(self, reader._steps, self._formats)


def asked(admission: Admission, fps: float) -> SourceError | None:
    answer: Future[None] = admission.admit("other", fps, lambda _: None)
    error = answer.exception()
    assert error is None or isinstance(error, SourceError)
    return error


def test_a_corrected_rate_is_announced_once_and_admitted_anew(clock: ManualClock) -> None:
    """Of 45 frames/s this one asks for 30, and another that wants 30 finds no room; of 7 it leaves the rest."""
    admission, refusals = Admission("refuse", capacity=45 / 0.9), list[SourceError | None]()
    source = Camera30(7.0)
    source.on_load = lambda time: (
        refusals.append(asked(admission, 30.0)) if time in (40 * S // 10, 60 * S // 10) else None
    )
    run = Run(source, clock, admission=admission)
    assert run.states == ["connecting", "up", "up", "ended"]
    assert isinstance(refusals[0], SourceError)
    assert refusals[1] is None


def test_a_source_that_asks_for_more_than_it_claimed_is_refused_then(clock: ManualClock) -> None:
    admission = Admission("refuse", capacity=45 / 0.9)
    run = Run(Camera30(60.0), clock, admission=admission)
    assert run.states[:3] == ["connecting", "up", "down"]
    assert "not admitted: it asks for 60 frames/s" in str(run.said[2][1])


def test_a_source_of_unknown_rate_is_let_in(clock: ManualClock) -> None:
    """As one of 30; others get back what it does not need."""
    admission = Admission("refuse", capacity=45 / 0.9)
    source = Camera30(7.0)
    source.format = msgspec.structs.replace(source.format, fps=None)
    assert Run(source, clock, admission=admission).states[:3] == ["connecting", "up", "up"]
