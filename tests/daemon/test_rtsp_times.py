"""Times of an RTSP camera: its sender reports move no picture, and tell when one was taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import Picture, next_picture
from tests.support.rtsp_camera import Camera, Item, Report, RtspCamera, at_rate, pictures_of

pytestmark = pytest.mark.needs("ffmpeg")
FPS = 15
UTC = 1_800_000_000.0  # seconds, when the camera's RTP time was 1000 s


def read(camera: Camera, count: int) -> list[Picture]:
    with RtspCamera(camera) as server, closing(AvSource(AvConfig(id="s", url=Url(server.url()))).open()) as reader:
        found = [picture for picture in (next_picture(reader) for _ in range(count)) if picture]
        assert [request.uri.rpartition("/")[2] for request in server.requests if request.method == "SETUP"] == ["video"]
    return found


def reported(clip: Path, late: tuple[float, float]) -> Iterator[Item]:
    """Three seconds with reports twice a second, every other of which is late by so much."""
    for number, picture in enumerate(at_rate(pictures_of(clip), FPS)):
        if number % 7 == 3:
            utc = UTC + picture.at - 1000 + late[number // 7 % 2]
            yield Report(picture.at, utc)
            yield Report(picture.at - 500, utc, "audio")
        yield picture


@pytest.mark.parametrize("late", [(0.0, 0.12), (0.12, 0.0), (0.0, 5.0)])
def test_reports_that_are_stamped_late_move_no_picture(clip: Path, late: tuple[float, float]) -> None:
    """Sound is not asked for: beside it FFmpeg takes times from reports."""
    found = read(Camera([*reported(clip, late)], audio=True), 45)
    times = [picture.pts for picture in found[1:] if picture.pts is not None]  # FFmpeg gives the first one none
    assert len(times) == 44
    assert {round((b - a) * FPS / 1e9, 2) for a, b in pairwise(times)} == {1.0}


def test_reports_tell_when_a_picture_was_taken(clip: Path) -> None:
    found = read(Camera([*reported(clip, (0.0, 0.0))], audio=True), 45)
    known = [(number, picture.sent_at) for number, picture in enumerate(found) if picture.sent_at is not None]
    assert len(known) > 30
    assert all(at == pytest.approx((UTC + number / FPS) * 1e9, abs=2e6) for number, at in known[1:])


def test_sound_alone_is_no_video() -> None:
    sdp = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=cam\r\nt=0 0\r\nm=audio 0 RTP/AVP 8\r\na=control:audio\r\n"
    with RtspCamera(Camera(sdp=sdp)) as server, pytest.raises(SourceError, match="it offers no video"):
        AvSource(AvConfig(id="s", url=Url(server.url()))).open()
