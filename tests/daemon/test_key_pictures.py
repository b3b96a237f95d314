"""A camera that sends a key picture every forty seconds: it is waited for, and said what to set."""

from __future__ import annotations

from contextlib import closing

import pytest

from daemon.config.sources import AvConfig
from daemon.errors import DecodeError, NoKeyError
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import next_picture
from tests.daemon.test_capture import Run, ScriptedSource, Silence
from tests.support import clips
from tests.support.clock import ManualClock
from tests.support.hardware import FakeGpu
from tests.support.rtsp_camera import Camera, RtspCamera, at_rate, pictures_of

S = 1_000_000_000  # ns
HINT = "it has sent no key picture yet; set the camera to send one every second or two"


def test_it_is_stalled_until_the_first_key_picture(clock: ManualClock) -> None:
    """Over one connection, however long that takes, and counted as what it is."""
    early = NoKeyError(f"a picture cannot be decoded: {HINT}")
    waiting = [step for _ in range(40) for step in [*[early] * 25, Silence(1.0)]]
    run = Run(ScriptedSource([*waiting, *range(1, 20)]), clock, live=True)
    assert run.states == ["connecting", "stalled", "up", "ended"]
    assert HINT in str(run.said[1][1])
    counts = run.ledger.counts()["cam"]
    assert (counts.dropped.before_key, counts.dropped.decode_error) == (1000, 0)
    assert counts.captured == 1019
    assert not run.hung


def test_what_is_lost_until_the_next_key_picture_is_worth_no_new_connection(clock: ManualClock) -> None:
    """It would begin with another wait for one. Once it has come, and nothing can be decoded either, it is."""
    lost, worse = DecodeError("bad"), DecodeError("worse")
    lost.awaits_key = True
    run = Run(ScriptedSource([1, *[lost] * 900, 2, *[worse] * 400]), clock, live=True)
    assert run.states[:3] == ["connecting", "up", "down"]
    assert "worse" in str(run.said[2][1])
    assert run.ledger.counts()["cam"].captured == 1 + 900 + 1 + 300


@pytest.fixture(scope="module")
def gops(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[bytes]]]:
    """Twenty pictures of each codec, of which the first is a key picture; and H.264 that is refreshed bit by bit."""
    folder = tmp_path_factory.mktemp("gops")
    found = {}
    for name, codec, more in (
        ("h264", "libx264", ["-tune", "zerolatency"]),
        ("h265", "libx265", ["-x265-params", "log-level=none:bframes=0:keyint=1000"]),
        ("refresh", "libx264", ["-tune", "zerolatency", "-x264-params", "intra-refresh=1:keyint=5"]),
    ):
        source = ["-f", "lavfi", "-i", "testsrc2=size=160x96:rate=10:duration=2"]
        coding = ["-c:v", codec, "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "1000"]
        clips.ffmpeg(*source, *coding, *more, folder / f"{name}.mkv")
        found[name] = pictures_of(folder / f"{name}.mkv")
    return found


@pytest.mark.needs("ffmpeg")
@pytest.mark.parametrize("decode", ["cpu", "nvdec"])
@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_nothing_is_decoded_before(gops: dict[str, list[list[bytes]]], codec: str, decode: str) -> None:
    """Four hundred pictures that a decoder would show as grey remains, or as errors; then all twenty are there."""
    gop = gops[codec]
    items = at_rate([*gop[1:11] * 40, *gop, gop[-1]], 10)
    config = AvConfig(id="s", url=Url("rtsp://x"), decode=decode)  # type: ignore[arg-type]
    with RtspCamera(Camera(items, codec=codec)) as server:
        config = AvConfig(id="s", url=Url(server.url()), decode=config.decode)
        with closing(AvSource(config, FakeGpu().pool).open()) as reader:
            for _ in range(400):
                with pytest.raises(NoKeyError, match=HINT):
                    reader.read()
            assert sum(next_picture(reader) is not None for _ in range(20)) == 20


@pytest.mark.needs("ffmpeg")
def test_a_picture_that_is_refreshed_bit_by_bit_needs_none(gops: dict[str, list[list[bytes]]]) -> None:
    gop = gops["refresh"]
    with (
        RtspCamera(Camera(at_rate([*gop[1:], *gop[1:]], 10))) as server,
        closing(AvSource(AvConfig(id="s", url=Url(server.url()))).open()) as reader,
    ):
        found = 0
        while found < 10:
            try:
                found += next_picture(reader) is not None
            except DecodeError:
                continue
