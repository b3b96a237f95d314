"""Recordings played again: every pass has the same packets."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from daemon.config.sources import AvConfig
from daemon.redact import Url
from daemon.sources.packets import Demuxer
from tests.support import clips


@pytest.mark.share(3)
@pytest.mark.needs("ffmpeg")
@pytest.mark.parametrize("container", ["mp4", "mkv", "ts", "h264"])
@pytest.mark.parametrize("first_at", ["0", "5"])
@pytest.mark.parametrize("loop", [False, True])
def test_every_pass_has_the_same_packets(container: str, first_at: str, loop: bool, tmp_path: Path) -> None:
    """With B-frames, whose first times of decoding are negative; with a first time that is not zero; kept or not."""
    path = tmp_path / f"clip.{container}"
    clips.ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=15:duration=6", "-c:v", "libx264", "-bf", "3", "-g", "15",
        "-pix_fmt", "yuv420p", "-output_ts_offset", first_at, path,
    )  # fmt: skip
    with closing(Demuxer(AvConfig(id="s", url=Url(str(path)), loop=loop), live=False)) as demuxer:
        passes = []
        for _ in range(3):
            packets = []
            while (packet := demuxer.next()) is not None:
                if packet.size:
                    demuxer.time_of(packet.pts, packet.time_base)
                    packets.append((packet.pts, bytes(packet)))
            begin = min(time for time, _ in packets if time is not None) if packets[0][0] is not None else 0
            passes.append([(time and time - begin, data) for time, data in packets])
            demuxer.rewind()
        assert demuxer.loops_seamlessly == (loop and container != "h264")
    assert len(passes[0]) >= 90
    assert passes[0] == passes[1] == passes[2]
