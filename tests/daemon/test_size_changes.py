"""A camera that changes its picture between day and night: its format and its packets say so, and video goes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from av.packet import Packet as AvPacket

from daemon.config.sources import AvConfig
from daemon.dashboard.muxer import Fragment, Init, SourceVideo
from daemon.redact import Url
from daemon.sources.bitstream import Bitstream
from daemon.sources.ffmpeg import AvReader, AvSource
from daemon.sources.port import PacketInfo, next_picture
from lookout.messages import Packet, VideoFormat
from tests.support import clips
from tests.support.hardware import FakeGpu
from tests.support.rtsp_camera import Camera, RtspCamera, at_rate, pictures_of

pytestmark = pytest.mark.needs("ffmpeg")
FPS = 10
# Name of a clip: its size, encoder, and what is said of its pixels or of the camera's position.
FORMS = {
    "day": ("160x96", "libx264", ""),
    "night": ("320x192", "libx264", ""),
    "wide": ("160x96", "libx264", "sample_aspect_ratio=2/1"),
    "turned": ("160x96", "libx264", "rotate=90:display_orientation=insert"),
    "day265": ("160x96", "libx265", ""),
    "night265": ("320x192", "libx265", ""),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second of each form, as bare streams and in Matroska."""
    folder = tmp_path_factory.mktemp("forms")
    for name, (size, codec, bits) in FORMS.items():
        source = ["-f", "lavfi", "-i", f"testsrc2=size={size}:rate={FPS}:duration=1"]
        quiet = ["-x265-params", "log-level=none:bframes=0"] if codec == "libx265" else ["-tune", "zerolatency"]
        filters = ["-bsf:v", f"h264_metadata={bits}"] if bits else []
        coding = ["-c:v", codec, "-preset", "ultrafast", "-g", "5", "-pix_fmt", "yuv420p", *quiet]
        clips.ffmpeg(*source, *coding, *filters, folder / f"{name}.mkv")
    return folder


class Watched:
    """Reads a source to a number of pictures, and notes what it says meanwhile."""

    def __init__(self, reader: AvReader, pictures: int) -> None:
        self.packets: list[tuple[PacketInfo, bytes]] = []
        self.formats: list[VideoFormat] = [reader.format]
        self.pictures: list[tuple[int, int]] = []
        reader.set_tap(lambda packet: self._tap(reader, packet))
        for _ in range(pictures):
            picture = next_picture(reader)
            assert picture
            self._note(reader.format)
            image = picture.load()
            self.pictures.append((image.width, image.height))
            del picture, image  # of few buffers
            self._note(reader.format)

    def _tap(self, reader: AvReader, packet: AvPacket[Any]) -> None:
        if packet.size:
            self.packets.append((reader.describe(packet), bytes(packet)))

    def _note(self, format: VideoFormat) -> None:
        if format is not self.formats[-1]:
            self.formats.append(format)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [(format.width, format.height) for format in self.formats]


def watched(folder: Path, names: Sequence[str], decode: str = "cpu", pictures: int = 0) -> Watched:
    """A live camera that sends these clips one after the other."""
    codec = "h265" if names[0].endswith("265") else "h264"
    units = [unit for name in names for unit in pictures_of(folder / f"{name}.mkv")]
    config = AvConfig(id="s", url=Url("rtsp://x"), decode=decode)  # type: ignore[arg-type]
    with RtspCamera(Camera(at_rate(units, FPS), codec=codec)) as server:
        config = AvConfig(id="s", url=Url(server.url()), decode=config.decode, read_timeout_s=2)
        with closing(AvSource(config, FakeGpu().pool).open()) as reader:
            return Watched(reader, pictures or len(units) - 1)


@pytest.mark.parametrize("decode", ["cpu", "nvdec"])
@pytest.mark.parametrize("names", [("day", "night", "day"), ("day265", "night265", "day265")])
def test_the_size_changes(folder: Path, names: Sequence[str], decode: str) -> None:
    seen = watched(folder, names, decode)
    assert seen.sizes == [(160, 96), (320, 192), (160, 96)]
    assert [size for size, _ in groupby(seen.pictures)] == seen.sizes
    described = [(info.width, info.height, info.extradata) for info, _ in seen.packets]
    runs = [(facts, len(list(run))) for facts, run in groupby(described)]
    assert [(*facts[:2], count) for facts, count in runs] == [(160, 96, 10), (320, 192, 10), (160, 96, 9)]
    bits = Bitstream("hevc" if names[0].endswith("265") else "h264", None)
    assert all(
        bits.has_sets(facts[2], _of_stream(folder / f"{name}.mkv")) for (facts, _), name in zip(runs[1:], names[1:])
    )


def _of_stream(clip: Path) -> bytes:
    """The parameter sets of a clip, with start codes."""
    return b"".join(b"\0\0\0\1" + unit for unit in pictures_of(clip)[0])


def test_the_shape_of_pixels_changes(folder: Path) -> None:
    seen = watched(folder, ("day", "wide", "day"))
    assert [format.pixel_aspect for format in seen.formats] == [1.0, 2.0, 1.0]


def test_a_camera_that_is_turned_says_so_itself(folder: Path) -> None:
    """In its pictures, which are shown upright; unless `rotate` says otherwise."""
    seen = watched(folder, ("day", "turned", "night"))
    assert seen.sizes == [(160, 96), (96, 160), (320, 192)]
    assert set(seen.pictures[10:20]) == {(96, 160)}
    assert {info.turns for info, _ in seen.packets[12:20]} == {3}


def test_the_page_goes_on_with_the_new_size(folder: Path) -> None:
    """Its players begin anew at the first picture of it, and lose none."""
    seen = watched(folder, ("day", "night"))
    video, output = SourceVideo(), []
    for number, (info, data) in enumerate(seen.packets):
        facts = {name: getattr(info, name) for name in info.__struct_fields__}
        output += video.add(Packet(instance="i", source="s", session="x", index=number, **facts), data, number)
    assert [(row.width, row.height) for row in output if isinstance(row, Init)] == [(160, 96), (320, 192)]
    # The first picture has no time, so five of the day follow its second key picture; of each size one waits.
    assert sum(isinstance(row, Fragment) for row in output) == 5 - 1 + 9 - 1


def test_a_recording_changes_too(folder: Path, tmp_path: Path) -> None:
    parts = []
    for name in ("day", "night"):
        clips.ffmpeg("-i", folder / f"{name}.mkv", "-c", "copy", "-f", "h264", tmp_path / name)
        parts.append((tmp_path / name).read_bytes())
    (tmp_path / "both.264").write_bytes(b"".join(parts))
    with closing(AvSource(AvConfig(id="s", url=Url(str(tmp_path / "both.264")))).open()) as reader:
        assert Watched(reader, 20).sizes == [(160, 96), (320, 192)]
