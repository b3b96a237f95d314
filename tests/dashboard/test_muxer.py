"""Packets to fragmented MP4: nothing is encoded, every picture keeps its time, and a loss is no broken picture."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import av
import msgspec
import pytest

from daemon.config.sources import AvConfig
from daemon.dashboard.muxer import Fragment, Init, Lost, Output, SourceVideo, Unplayable
from daemon.redact import Url
from daemon.sources.ffmpeg import AvSource
from daemon.sources.port import next_picture
from lookout.messages import Packet
from tests.support import clips

pytestmark = pytest.mark.needs("ffmpeg")


def _annex_b(path: Path) -> Path:
    """The same pictures with start codes, as a camera sends them."""
    made = path.with_suffix(".ts")
    clips.ffmpeg("-i", path, "-c", "copy", "-bsf:v", "h264_mp4toannexb", made)
    return made


def _packets(path: Path) -> tuple[list[tuple[Packet, bytes]], list[int]]:
    """What the daemon publishes of a clip, and the pts of its detections."""
    rows: list[tuple[Packet, bytes]] = []
    reader = AvSource(AvConfig(id="cam", url=Url(str(path)))).open()

    def tap(packet: Any) -> None:
        if packet.size:
            info = msgspec.structs.asdict(reader.describe(packet))
            rows.append((Packet(instance="i", source="cam", session="s", index=len(rows), **info), bytes(packet)))

    reader.set_tap(tap)
    times = [picture.pts for picture in iter(lambda: next_picture(reader), None)]
    reader.close()
    return rows, [time for time in times if time is not None]


def _outputs(rows: list[tuple[Packet, bytes]]) -> Iterator[Output]:
    video = SourceVideo()
    for at, (header, data) in enumerate(rows):
        yield from video.add(header, data, at)


def _shown(outputs: list[Output]) -> list[int]:
    """The pts of the pictures that a browser shows."""
    init = next(row for row in outputs if isinstance(row, Init))
    blob = init.segment + b"".join(row.data for row in outputs if isinstance(row, Fragment))
    with av.open(io.BytesIO(blob)) as container:
        return [init.base_pts + round(float(frame.time or 0) * 1e9) for frame in container.decode(video=0)]


@pytest.fixture(scope="module", params=["plain", "bframes", "start codes", "hevc"])
def clip_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("muxer") / "clip.mkv"
    if request.param == "bframes":
        return clips.bframes(path)
    codec = "libx265" if request.param == "hevc" else "libx264"
    clips.pattern(path, seconds=2, codec=codec)
    return _annex_b(path) if request.param == "start codes" else path


def test_every_picture_keeps_its_time(clip_of: Path) -> None:
    rows, times = _packets(clip_of)
    outputs = [*_outputs(rows)]
    shown = _shown(outputs)
    assert len(shown) >= len(rows) - 3  # the last picture waits for its successor
    assert max(min(abs(pts - time) for time in times) for pts in shown) < 12_000  # a tick of 90 kHz
    (init,) = [row for row in outputs if isinstance(row, Init)]
    assert init.mime.startswith('video/mp4; codecs="' + ("hvc1.1.6.L" if rows[0][0].codec == "hevc" else "avc1."))


def test_a_loss_ends_at_the_next_key_picture(clip: Path) -> None:
    rows, _ = _packets(clip)
    keys = [at for at, (header, _) in enumerate(rows) if header.key]
    assert len(keys) >= 3
    outputs = [*_outputs(rows[: keys[1] + 3] + rows[keys[1] + 5 :])]
    (lost,) = [at for at, row in enumerate(outputs) if isinstance(row, Lost)]
    behind = keys[2] - keys[1]
    assert outputs[lost] == Lost(behind - 3)
    assert next(row.key for row in outputs[lost + 2 :] if isinstance(row, Fragment))
    with pytest.raises(StopIteration):
        next(row for row in outputs[1:] if isinstance(row, Init))


def test_a_new_session_is_a_new_stream(clip: Path) -> None:
    rows, _ = _packets(clip)
    again = [(msgspec.structs.replace(header, session="t"), data) for header, data in rows]
    outputs = [*_outputs(rows[:5] + again[1:])]
    sessions = [row.session for row in outputs if isinstance(row, Init)]
    assert sessions == ["s", "t"]


def test_a_stream_that_cannot_be_shown_says_so_once(clip: Path) -> None:
    rows, _ = _packets(clip)
    odd = [(msgspec.structs.replace(header, codec="mjpeg"), data) for header, data in rows]
    assert [*_outputs(odd)] == [Unplayable("its codec, mjpeg, is not one that the page plays")]
    untimed = [(msgspec.structs.replace(header, pts=None, dts=None), data) for header, data in rows]
    assert [*_outputs(untimed)] == []  # a camera's first ones may have none
    assert [*_outputs(untimed * 3)] == [Unplayable("its packets have no timestamps")]


def test_garbage_gives_no_picture_and_no_error(clip: Path) -> None:
    rows, _ = _packets(clip)
    header = rows[0][0]
    for data in (b"", b"\0", b"\0\0\1", b"\xff" * 1000, bytes(range(256)) * 40):
        change = partial(msgspec.structs.replace, header)
        odd = [(change(index=0, extradata=b""), data), (change(index=1, extradata=data[:50]), data), *rows]
        outputs = [*_outputs(odd)]
        assert any(isinstance(row, Fragment) for row in outputs)
