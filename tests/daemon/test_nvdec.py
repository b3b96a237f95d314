"""Packets, sessions and surfaces around a hardware decoder, with a stand-in for the hardware."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from av.bitstream import BitStreamFilterContext
from av.video.frame import VideoFrame

from daemon.config.sources import AvConfig
from daemon.errors import DecodeError, SourceError
from daemon.redact import Url
from daemon.sources.bitstream import Bitstream
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.ffmpeg import AvReader, AvSource
from daemon.sources.leases import BufferPool
from daemon.sources.nvdec.capability import Capability, SizeLimits
from daemon.sources.nvdec.costs import decoder_bytes, picture_bytes
from daemon.sources.nvdec.upload import interleave
from daemon.sources.port import DecodeBudget, Skipped, next_picture
from detectors.port import DeviceImage, HostImage
from tests.scan.recordings import RECORDINGS
from tests.support import clips, playing
from tests.support.hardware import FakeGpu, bgr_of

pytestmark = pytest.mark.needs("ffmpeg")
Frames = list[tuple[int | None, tuple[int, ...], float]]


@pytest.fixture(scope="module")
def bframes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """H.264 with B-frames, in MP4."""
    return clips.bframes(tmp_path_factory.mktemp("clips") / "b.mp4")


def source_of(path: Path, gpu: FakeGpu | None, **more: object) -> AvSource:
    config = AvConfig(id="s", url=Url(str(path)), **more)  # type: ignore[arg-type]
    return AvSource(config, gpu.pool if gpu else None)


def play(reader: AvReader, most: int = 10_000) -> Frames:
    """Time, shape and mean of each picture."""
    seen: Frames = []
    while len(seen) < most and (picture := next_picture(reader)) is not None:
        image = bgr_of(picture.load())
        seen.append((picture.pts, image.shape, float(image.mean())))
    return seen


def test_the_same_pictures_at_the_same_times_as_the_cpu(bframes: Path, clip: Path) -> None:
    for path in (bframes, clip):
        with closing(source_of(path, FakeGpu(), decode="nvdec").open()) as reader:
            assert reader.format.decoder == "nvdec"
            ours = play(reader)
        with closing(source_of(path, None, decode="cpu").open()) as reader:
            theirs = play(reader)
        assert [row[:2] for row in ours] == [row[:2] for row in theirs]
        assert np.allclose([row[2] for row in ours], [row[2] for row in theirs], atol=3)


@pytest.mark.parametrize("codec", ["libvpx-vp9", "mjpeg"])
def test_codecs_without_parameter_sets_have_their_size_read(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "clip.mkv"
    source = "testsrc2=size=320x192:rate=15:duration=2"
    clips.ffmpeg(
        "-f", "lavfi", "-i", source, "-c:v", codec, "-pix_fmt", "yuvj420p" if codec == "mjpeg" else "yuv420p", path
    )
    gpu = FakeGpu()
    with closing(source_of(path, gpu, decode="nvdec").open()) as reader:
        assert [shape for _, shape, _ in play(reader)] == [(192, 320, 3)] * 30
    assert len(gpu.sessions) == 1


def test_a_loop_goes_on_with_the_same_decoder(bframes: Path) -> None:
    gpu = FakeGpu()
    with closing(source_of(bframes, gpu, loop=True).open()) as reader:
        times = [pts for pts, _, _ in play(reader, 120)]
    assert len(gpu.sessions) == 1
    assert all(b is not None and a is not None and b > a for a, b in pairwise(times))


@pytest.mark.parametrize("decode", ["nvdec", "cpu"])
@pytest.mark.parametrize(("codec", "group"), [("libx264", 25), ("libx264", 1000), ("libx265", 1000)])
def test_a_recording_that_begins_with_an_idr_picture_is_looped_without_a_seam(
    decode: str, codec: str, group: int, tmp_path: Path
) -> None:
    """The decoder is never emptied, and every pass has the same pictures, at times that go on by one picture."""
    path = tmp_path / "b.mp4"
    clips.ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=size=320x192:rate=15:duration=8", "-c:v", codec, "-bf", "3", "-g", str(group),
        "-pix_fmt", "yuv420p", path,
    )  # fmt: skip
    gpu = FakeGpu() if decode == "nvdec" else None
    with closing(source_of(path, gpu, decode=decode, loop=True).open()) as reader:
        seen = play(reader, 370)
        assert gpu is None or gpu.sessions[0].drained == 0
    passes = [seen[begin : begin + 120] for begin in (0, 120, 240)]
    assert [[row[1:] for row in one] for one in passes] == [[row[1:] for row in passes[0]]] * 3
    steps = [(b or 0) - (a or 0) for (a, *_), (b, *_) in pairwise(seen)]
    assert steps == pytest.approx([1e9 / 15] * 369, abs=1e3)


def test_a_connection_made_anew_has_the_same_decoder(clip: Path) -> None:
    gpu = FakeGpu()
    source = source_of(clip, gpu)
    for _ in range(5):
        with closing(source.open()) as reader:
            play(reader, 7)
    assert len(gpu.sessions) == 1
    gpu.pool.close()
    assert gpu.sessions[0].closed


def test_another_size_in_the_middle_gets_another_decoder_and_loses_nothing(tmp_path: Path) -> None:
    first = clips.pattern(tmp_path / "a.ts", seconds=2)
    second = clips.pattern(tmp_path / "b.ts", seconds=2, size="640x360")
    both = tmp_path / "both.ts"
    both.write_bytes(first.read_bytes() + second.read_bytes())
    gpu = FakeGpu()
    with closing(source_of(both, gpu).open()) as reader:
        shapes = [shape for _, shape, _ in play(reader)]
        assert gpu.pool.memory == decoder_bytes("h264", 640, 360, 4, low_latency=False)
    assert shapes == [(180, 320, 3)] * 30 + [(360, 640, 3)] * 30
    # One source has one decoder: the first is not kept for a size that may never come back.
    assert gpu.opened == 2
    assert sum(not session.closed for session in gpu.sessions) == 1


def test_parameters_that_come_only_with_the_description_are_used(tmp_path: Path) -> None:
    """As many RTSP cameras do: they are in the stream's extradata, and in no packet."""
    whole = clips.pattern(tmp_path / "a.h264", seconds=1)
    stripped = tmp_path / "b.mkv"
    clips.ffmpeg("-r", "15", "-i", whole, "-c", "copy", "-bsf:v", "filter_units=remove_types=7-8", stripped)
    with closing(source_of(stripped, FakeGpu(), decode="nvdec").open()) as reader:
        assert len(play(reader)) == 15


def test_a_decoder_that_gives_up_is_replaced_by_the_cpu_and_says_why(clip: Path) -> None:
    gpu = FakeGpu(refuse="the GPU's decoder gave up: a test")
    source = source_of(clip, gpu)
    with closing(source.open()) as reader, pytest.raises(SourceError, match=r"cannot be decoded: .*: a test"):
        next_picture(reader)
    assert gpu.sessions[0].closed
    with closing(source.open()) as reader:
        assert (reader.format.decoder, reader.format.decoder_reason) == ("cpu", "the GPU's decoder gave up: a test")
        assert len(play(reader)) == 45


def test_what_the_cpu_decodes_is_brought_to_the_gpu_by_who_decodes_it(clip: Path) -> None:
    """The same pictures as without a GPU, where lanes have them at once; the room is given back."""
    gpu = FakeGpu(refuse="a test")
    source = source_of(clip, gpu)
    with closing(source.open()) as reader, pytest.raises(SourceError):
        next_picture(reader)
    with closing(source.open()) as reader:
        assert reader.format.decoder == "cpu"
        assert gpu.pool.memory == 4 * picture_bytes(320, 180)
        first = next_picture(reader)
        assert first is not None
        held = first.load()
        assert isinstance(held, DeviceImage)
        before = bgr_of(held).copy()
        theirs = play(reader)
        assert np.array_equal(bgr_of(held), before)
    with closing(source_of(clip, None, decode="cpu").open()) as reader:
        ours = play(reader)[1:]
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    assert np.allclose([row[2] for row in ours], [row[2] for row in theirs], atol=3)
    assert gpu.pool.memory == 0
    assert [target.closed for target in gpu.targets] == [False]  # somebody still looks
    del first, held
    gpu.pool.close()
    assert [target.closed for target in gpu.targets] == [True]


@pytest.mark.parametrize("pixels", ["yuv420p10le", "yuv422p"])
def test_pictures_that_are_not_nv12s_stay_in_host_memory(pixels: str, tmp_path: Path) -> None:
    path = tmp_path / "clip.mkv"
    clips.ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=size=320x192:rate=15:duration=1", "-c:v", "libx264", "-pix_fmt", pixels, path
    )
    gpu = FakeGpu()
    with closing(source_of(path, gpu).open()) as reader:
        picture = next_picture(reader)
        assert picture is not None
        assert isinstance(picture.load(), HostImage)
        assert "only 8-bit 4:2:0" in str(reader.format.decoder_reason)
    assert not gpu.targets


@pytest.mark.parametrize(
    "gpu", [FakeGpu(limit=100), FakeGpu(capability=Capability(7, {}), full=True)], ids=["plan", "driver"]
)
def test_where_the_gpu_has_no_room_pictures_stay_in_host_memory(gpu: FakeGpu, clip: Path) -> None:
    with closing(source_of(clip, gpu).open()) as reader:
        picture = next_picture(reader)
        assert picture is not None
        assert isinstance(picture.load(), HostImage)
    assert gpu.pool.memory == 0


def test_planes_are_interleaved_whatever_their_size() -> None:
    frame = VideoFrame(35, 17, "yuv420p")
    planes = []
    for number, plane in enumerate(frame.planes):
        rows = np.arange(plane.buffer_size, dtype=np.uint32).reshape(-1, plane.line_size) % (250 - number)
        plane.update(rows.astype(np.uint8).tobytes())
        planes.append(rows[: plane.height, : plane.width])
    found = np.zeros((17 + 9, 36), np.uint8)
    interleave(frame, found)
    assert np.array_equal(found[:17, :35], planes[0])
    assert np.array_equal(found[17:, 0::2], planes[1])
    assert np.array_equal(found[17:, 1::2], planes[2])


def test_what_is_asked_for_is_not_replaced(clip: Path) -> None:
    config = AvConfig(id="s", url=Url(str(clip)), decode="nvdec")
    with pytest.raises(SourceError, match=r"decode: nvdec is not possible for .*: no such card"):
        AvSource(config, NoHardwareDecoder("no such card")).open()


def test_auto_says_why_the_cpu_decodes(clip: Path) -> None:
    with closing(source_of(clip, None).open()) as reader:
        assert (reader.format.decoder, reader.format.decoder_reason) == ("cpu", "not asked for")


def test_no_room_is_a_reason(clip: Path) -> None:
    one = decoder_bytes("h264", 320, 180, 4, low_latency=False)
    gpu = FakeGpu(limit=one * 3 // 2)
    with closing(source_of(clip, gpu).open()):
        assert gpu.pool.memory == one
        with pytest.raises(SourceError, match="no room: it needs"):
            source_of(clip, gpu, decode="nvdec").open()
    with closing(source_of(clip, gpu, decode="nvdec").open()) as reader:
        assert len(play(reader)) == 45


def test_memory_is_what_the_stream_s_own_parameters_ask_for(clip: Path) -> None:
    """A camera refers to fewer pictures than recordings usually do, or says nothing, and may refer to many."""

    def planned(**more: int) -> int:
        return decoder_bytes("h264", 320, 180, 4, low_latency=False, **more)

    usual = planned()
    for dpb_size in (2, 17):
        gpu = FakeGpu(limit=planned(dpb_size=17), dpb_size=dpb_size)
        with closing(source_of(clip, gpu, decode="nvdec").open()) as reader:
            assert gpu.pool.memory == usual
            play(reader, 1)
            assert gpu.pool.memory == planned(dpb_size=dpb_size) != usual
        assert gpu.pool.memory == 0
    gpu = FakeGpu(limit=planned(dpb_size=16), dpb_size=17)
    source = source_of(clip, gpu)
    with closing(source.open()) as reader, pytest.raises(SourceError, match="no room: it needs"):
        play(reader)
    with closing(source.open()) as reader:
        assert (reader.format.decoder, len(play(reader))) == ("cpu", 45)
        assert "no room" in str(reader.format.decoder_reason)


def test_pictures_stay_as_they_are_while_somebody_holds_them(clip: Path) -> None:
    gpu = FakeGpu(surfaces=3)
    with closing(source_of(clip, gpu).open()) as reader:
        held = []
        for _ in range(2):
            picture = next_picture(reader)
            assert picture is not None
            image = picture.load()
            held.append((image, bgr_of(image).copy()))
        del image, picture
        play(reader, 20)
        for image, before in held:
            assert np.array_equal(bgr_of(image), before)
    # The source is gone, its decoder is not: somebody still reads from it.
    gpu.pool.close()
    assert not gpu.sessions[0].closed
    del image, held


def test_surfaces_come_home_by_themselves() -> None:
    ring = BufferPool([1, 2])
    first, second = ring.acquire(), ring.acquire()
    assert {first.slot, second.slot} == {1, 2}
    assert not ring.all_free
    del first
    third = ring.acquire()
    del second, third
    assert ring.all_free


def test_a_recording_without_parameters_ends_with_a_reason(tmp_path: Path) -> None:
    """Of which not even the form of its pictures is known."""
    whole = clips.pattern(tmp_path / "whole.mkv", seconds=1)
    with av.open(str(whole)) as container:
        parameters = container.streams.video[0].codec_context.extradata
    assert parameters
    content = whole.read_bytes()
    assert content.count(parameters) == 1
    path = tmp_path / "clip.mkv"
    path.write_bytes(content.replace(parameters, parameters[:6] + bytes(len(parameters) - 6)))
    with closing(source_of(path, FakeGpu(), decode="nvdec").open()) as reader, pytest.raises(DecodeError):
        play(reader)


def test_what_the_card_cannot_is_said() -> None:
    gpu = Capability(7, {"h264": SizeLimits((48, 16), (4096, 4096))})
    assert gpu.unsupported_reason("h264", 1920, 1080, "yuv420p") is None
    assert gpu.unsupported_reason("av1", 1920, 1080, "yuv420p") == "the GPU does not decode av1, only h264"
    assert "8-bit 4:2:0" in str(gpu.unsupported_reason("h264", 1920, 1080, "yuv420p10le"))
    assert "from 48x16 to 4096x4096" in str(gpu.unsupported_reason("h264", 8192, 4320, None))


@pytest.mark.parametrize("decode", ["nvdec", "cpu"])
def test_who_is_late_leaves_out_what_nobody_needs(bframes: Path, decode: str) -> None:
    """B-frames alone, once it has been late for a while: what is decoded decodes as if they were there."""

    def is_left_out(reader: AvReader) -> bool:
        picture = reader.read()
        assert picture is not None
        return isinstance(picture, Skipped)

    gpu = FakeGpu() if decode == "nvdec" else None
    with closing(source_of(bframes, gpu, decode=decode, loop=True).open(DecodeBudget(late=500_000_000))) as reader:
        assert not any(is_left_out(reader) for _ in range(5))
        while not is_left_out(reader):
            pass
        assert 15 <= sum(is_left_out(reader) for _ in range(45)) <= 35


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
@pytest.mark.parametrize("container", ["mp4", "mkv"])
def test_packets_are_converted_as_ffmpeg_converts_them(codec: str, container: str, tmp_path: Path) -> None:
    path = tmp_path / f"clip.{container}"
    clips.ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=size=320x192:rate=15:duration=3", "-c:v", codec, "-bf", "3", "-g", "15",
        "-pix_fmt", "yuv420p", path,
    )  # fmt: skip
    with av.open(str(path)) as opened:
        stream = opened.streams.video[0]
        name = stream.codec_context.name
        bitstream, after = Bitstream(name, stream.codec_context.extradata), Bitstream(name, None)
        convert = BitStreamFilterContext(f"{name}_mp4toannexb", stream)
        disposable, parameters = 0, set()
        for packet in opened.demux(stream):
            if not packet.size:
                continue
            raw, key = bytes(packet), packet.is_keyframe
            ours = bytes(bitstream.to_annex_b(raw, key=key))
            (theirs,) = convert.filter(packet)
            assert _units(ours) == _units(bytes(theirs))  # parameters may come before other units
            assert bitstream.is_disposable(raw) == after.is_disposable(ours)
            disposable += bitstream.is_disposable(raw)
            parameters.add(after.parameters(ours))
    assert 15 <= disposable <= 35
    assert len(parameters - {b""}) == 1


def _units(data: bytes) -> list[bytes]:
    """Those behind start codes, sorted."""
    return sorted(unit.rstrip(b"\0") for unit in data.split(b"\0\0\1"))


def test_parameters_that_change_all_the_time_do_not_pile_up_decoders(tmp_path: Path) -> None:
    raw = clips.pattern(tmp_path / "a.h264", seconds=3)
    data = bytearray(raw.read_bytes())
    at = -1
    for number in range(3):
        at = data.find(b"\0\0\1\x67", at + 1)
        assert at >= 0
        data[at + 6] ^= number + 1  # the level
    raw.write_bytes(data)
    gpu = FakeGpu()
    with closing(source_of(raw, gpu, decode="nvdec").open()) as reader:
        while True:
            try:
                if next_picture(reader) is None:
                    break
            except DecodeError:
                continue
    assert gpu.opened == 1
    assert sum(not session.closed for session in gpu.sessions) == 1


@pytest.mark.parametrize("name", ["codec-changes-to-hevc", "pid-changes-with-the-size", "joined-matroska-of-codecs"])
def test_a_recording_that_goes_on_as_another_gets_another_decoder(name: str, tmp_path: Path) -> None:
    """Every picture of both; nothing is left behind on the GPU."""
    expected, gpu = RECORDINGS[name](tmp_path), FakeGpu()
    played = playing.play(expected.path, gpu.pool, decode="nvdec")
    assert (played.pictures, played.reason, played.dropped.total()) == (expected.shown, None, 0)
    assert {format.decoder for format in played.formats} == {"nvdec"}
    assert len(played.formats) > 1
    assert gpu.pool.memory == 0
    assert all(session.all_free for session in gpu.sessions)


def test_pictures_with_errors_are_dropped_or_marked(tmp_path: Path) -> None:
    """The transport says which; of a decoder session see `tests.support.decoding`."""
    expected = RECORDINGS["lost-packets-of-hevc"](tmp_path)
    dropped = playing.play(expected.path, FakeGpu().pool, decode="nvdec")
    marked = playing.play(expected.path, FakeGpu().pool, decode="nvdec", corrupt="mark")
    assert dropped.dropped["corrupt"] == marked.marked > 0
    assert dropped.pictures + marked.marked == marked.pictures == expected.shown
