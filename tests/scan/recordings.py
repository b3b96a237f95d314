"""Recordings as recorders, networks and editors leave them, each with what is to come of it.

How pictures are counted: `shown` is the number of frames that `ffprobe -count_frames` finds in the video that is read.
Of a recording that is joined of several, or whose video goes on in another stream, it is the sum over its parts, each
in a file of its own: ffprobe counts streams apart, and reads one header. Pictures of another video beside the one that
is read are no part of it; its packets are passed over, and compared with `ffprobe -count_packets`.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import av

from tests.scan import parts
from tests.scan.parts import FPS, encoded, muxed, transport, with_sound
from tests.support import surgery
from tests.support.clips import ffmpeg, once


@dataclass(frozen=True)
class Recording:
    """What is to come of a file.

    Attributes:
        path: of the file.
        shown: pictures, published or dropped as corrupt.
        complete: every picture of it is published.
        ended: words in the reason why it is not.
        passed_over: packets by kind.
        undecodable: number of pictures that FFmpeg shows in no way; None for any.
        codecs: of its video, one after the other.
    """

    path: Path
    shown: int
    complete: bool = True
    ended: str = ""
    passed_over: dict[str, int] = field(default_factory=dict)
    undecodable: int | None = 0
    codecs: tuple[str, ...] = ()


Make = Callable[[Path], Recording]
RECORDINGS: dict[str, Make] = {}


def recording(make: Make) -> Make:
    RECORDINGS[make.__name__.replace("_", "-")] = make
    return make


def frames(path: Path, stream: str = "v:0", *, packets: bool = False) -> int:
    """Frames, or packets, of a video stream by ffprobe."""
    what = "packets" if packets else "frames"
    command = ["ffprobe", "-v", "quiet", f"-count_{what}", "-select_streams", stream, "-show_entries",
               f"stream=nb_read_{what}", "-of", "csv=p=0", str(path)]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return int(done.stdout.split()[0].strip(","))


def joined(folder: Path, name: str, *pieces: Path) -> Recording:
    """Files one after the other in one file."""
    path = once(folder, name, lambda path: path.write_bytes(b"".join(piece.read_bytes() for piece in pieces)))
    return Recording(path, sum(map(frames, pieces)))


def cut(folder: Path, whole: Path, share: float, *, ended: str = "cut short: it ends after") -> Recording:
    """The beginning of a file."""
    content = whole.read_bytes()
    path = once(folder, f"cut-{whole.name}", lambda path: path.write_bytes(content[: int(len(content) * share)]))
    return Recording(path, frames(path), complete=False, ended=ended, undecodable=None)


# --- the video goes on in another stream -----------------------------------------------------------------------------


@recording
def pid_changes(folder: Path) -> Recording:
    pieces = transport(folder, "h264"), transport(folder, "h264", pid=0x200, offset=2, version=1)
    return joined(folder, "pid.ts", *pieces)


@recording
def pid_changes_back_and_forth(folder: Path) -> Recording:
    pieces = [transport(folder, "h264", pid=0x100 << n % 2, offset=2 * n, version=n) for n in range(5)]
    return joined(folder, "back-and-forth.ts", *pieces)


@recording
def pid_changes_twice(folder: Path) -> Recording:
    pieces = [transport(folder, "h264", pid=0x100 + 0x50 * n, offset=2 * n, version=n) for n in range(3)]
    return joined(folder, "pid-twice.ts", *pieces)


@recording
def pid_changes_with_the_size(folder: Path) -> Recording:
    pieces = transport(folder, "h264"), transport(folder, "h264", pid=0x200, offset=2, version=1, size="320x180")
    return joined(folder, "pid-size.ts", *pieces)


@recording
def pid_changes_with_the_codec(folder: Path) -> Recording:
    pieces = transport(folder, "h264"), transport(folder, "hevc", pid=0x200, offset=2, version=1)
    return joined(folder, "pid-codec.ts", *pieces)


@recording
def pid_changes_and_time_begins_again(folder: Path) -> Recording:
    pieces = transport(folder, "h264", offset=100), transport(folder, "h264", pid=0x200, version=1)
    return joined(folder, "pid-back.ts", *pieces)


@recording
def pid_changes_without_another_version(folder: Path) -> Recording:
    return joined(folder, "pid-same-version.ts", transport(folder, "h264"), transport(folder, "h264", pid=0x200))


@recording
def program_changes(folder: Path) -> Recording:
    other = transport(folder, "h264", pid=0x200, offset=2, mpegts_pmt_start_pid=0x1100, mpegts_service_id=7)
    pieces = transport(folder, "h264"), other
    return joined(folder, "program.ts", *pieces)


@recording
def pid_changes_with_reordered_pictures(folder: Path) -> Recording:
    pieces = transport(folder, "h264b"), transport(folder, "h264b", pid=0x200, offset=2, version=1)
    return joined(folder, "pid-reordered.ts", *pieces)


@recording
def pid_changes_back_with_another_codec(folder: Path) -> Recording:
    pieces = (transport(folder, "h264"), transport(folder, "h264", pid=0x200, offset=2, version=1),
              transport(folder, "hevc", offset=4, version=2))  # fmt: skip
    found = joined(folder, "pid-back-codec.ts", *pieces)
    return Recording(found.path, found.shown, codecs=("h264", "h264", "hevc"))


@recording
def pid_changes_with_the_codec_and_back(folder: Path) -> Recording:
    pieces = (transport(folder, "hevc"), transport(folder, "h264", pid=0x200, offset=2, version=1),
              transport(folder, "h264", offset=4, version=2))  # fmt: skip
    found = joined(folder, "pid-codec-back.ts", *pieces)
    return Recording(found.path, found.shown, codecs=("hevc", "h264", "h264"))


@recording
def pid_changes_in_m2ts(folder: Path) -> Recording:
    pieces = transport(folder, "h264"), transport(folder, "h264", pid=0x200, offset=2, version=1)
    whole = b"".join(piece.read_bytes() for piece in pieces)
    path = once(folder, "pid.m2ts", lambda path: path.write_bytes(surgery.m2ts(whole)))
    return Recording(path, sum(map(frames, pieces)))


@recording
def stream_of_a_program_stream_changes(folder: Path) -> Recording:
    """From 0xE0 to 0xE1, as when recordings of two cameras are joined."""
    first = muxed(folder, "mpeg2video", "mpg", "-f", "vob")
    content = first.read_bytes().replace(b"\0\0\1\xe0", b"\0\0\1\xe1")
    path = once(folder, "stream.mpg", lambda path: path.write_bytes(first.read_bytes() + content))
    return Recording(path, 2 * frames(first))


# --- the codec changes -----------------------------------------------------------------------------------------------


def _of_codecs(folder: Path, *codecs: str) -> Recording:
    pieces = [transport(folder, codec, offset=2 * n, version=n) for n, codec in enumerate(codecs)]
    found = joined(folder, f"{'-'.join(codecs)}.ts", *pieces)
    return Recording(found.path, found.shown, codecs=codecs)


@recording
def codec_changes_to_hevc(folder: Path) -> Recording:
    return _of_codecs(folder, "h264", "hevc")


@recording
def codec_changes_to_mpeg2_and_back(folder: Path) -> Recording:
    return _of_codecs(folder, "hevc", "mpeg2video", "h264")


@recording
def codec_changes_from_mpeg4(folder: Path) -> Recording:
    return _of_codecs(folder, "mpeg4", "h264", "mpeg4", "mpeg2video")


@recording
def codec_changes_in_flv(folder: Path) -> Recording:
    """On-line recorders append what the encoder sends: the sequence header of another codec, and its pictures."""
    first, second = surgery.flv_of_units(parts.bare(folder, "h264"), FPS), muxed(folder, "flv1", "flv").read_bytes()
    tags = b"".join(surgery.flv_later(second, 1000 * parts.SECONDS))
    path = once(folder, "codec.flv", lambda path: path.write_bytes(surgery.FLV_HEADER + first + tags))
    side = sum(not surgery.is_picture(unit) for unit in surgery.units(parts.bare(folder, "h264")))
    return Recording(path, 2 * parts.PICTURES, passed_over={"no_picture": side}, codecs=("h264", "flv"))


# --- several recordings in one file ----------------------------------------------------------------------------------


@recording
def joined_matroska(folder: Path) -> Recording:
    return joined(folder, "joined.mkv", encoded(folder, "h264"), encoded(folder, "h264"))


@recording
def joined_matroska_of_sizes(folder: Path) -> Recording:
    return joined(folder, "joined-size.mkv", encoded(folder, "h264"), encoded(folder, "h264", size="320x180"))


@recording
def joined_matroska_of_codecs(folder: Path) -> Recording:
    found = joined(folder, "joined-codec.mkv", encoded(folder, "h264"), encoded(folder, "vp9"), encoded(folder, "hevc"))
    return Recording(found.path, found.shown, codecs=("h264", "vp9", "hevc"))


@recording
def joined_mp4(folder: Path) -> Recording:
    return joined(folder, "joined.mp4", muxed(folder, "h264", "mp4"), muxed(folder, "hevc", "mp4"))


@recording
def joined_short_pieces(folder: Path) -> Recording:
    """Shorter than a step back of time may be."""
    return joined(folder, "joined-short.mp4", *(6 * [muxed(folder, "h264b", "mp4", seconds=0.6)]))


@recording
def joined_fragments(folder: Path) -> Recording:
    """Fragmented MP4, each with a header of its own."""
    fragmented = ("-movflags", "+frag_keyframe+empty_moov")
    pieces = muxed(folder, "h264", "mp4", *fragmented), muxed(folder, "h264", "mp4", *fragmented, size="320x180")
    return joined(folder, "joined-fragments.mp4", *pieces)


@recording
def joined_flv(folder: Path) -> Recording:
    return joined(folder, "joined.flv", muxed(folder, "h264", "flv"), muxed(folder, "flv1", "flv"))


@recording
def joined_avi(folder: Path) -> Recording:
    return joined(folder, "joined.avi", muxed(folder, "mjpeg", "avi"), muxed(folder, "mpeg4", "avi"))


@recording
def joined_ogg(folder: Path) -> Recording:
    """Its headers come again, as packets of the video."""
    found = joined(folder, "joined.ogv", muxed(folder, "theora", "ogv"), muxed(folder, "theora", "ogv", size="320x180"))
    return Recording(found.path, found.shown, passed_over={"no_picture": 3})


@recording
def joined_transport_back_in_time(folder: Path) -> Recording:
    return joined(folder, "joined-back.ts", transport(folder, "h264", offset=3600), transport(folder, "h264"))


@recording
def joined_transport_of_hevc(folder: Path) -> Recording:
    """The last picture of the first is whole, though packets seem to be missing behind it."""
    return joined(folder, "joined-hevc.ts", transport(folder, "hevc"), transport(folder, "hevc", offset=9))


# --- other videos beside ---------------------------------------------------------------------------------------------


def _beside(folder: Path, name: str, *options: str, first_s: float = 2, second_s: float = 4) -> Recording:
    """Two videos from the beginning; the first is read."""
    one, two = (encoded(folder, "h264", seconds=seconds) for seconds in (first_s, second_s))
    path = once(
        folder, name, lambda path: ffmpeg("-i", one, "-i", two, "-map", "0", "-map", "1", "-c", "copy", *options, path)
    )
    return Recording(path, frames(path), passed_over={"other_video": frames(path, "v:1", packets=True)})


@recording
def two_videos_mp4(folder: Path) -> Recording:
    return _beside(folder, "two.mp4")


@recording
def two_videos_matroska(folder: Path) -> Recording:
    return _beside(folder, "two.mkv")


@recording
def two_videos_transport(folder: Path) -> Recording:
    return _beside(folder, "two.ts")


@recording
def two_videos_of_different_ends(folder: Path) -> Recording:
    return _beside(folder, "two-ends.ts", first_s=4, second_s=2)


@recording
def two_programs(folder: Path) -> Recording:
    return _beside(folder, "programs.ts", "-program", "program_num=1:st=0", "-program", "program_num=2:st=1")


@recording
def second_video_begins_later(folder: Path) -> Recording:
    """In the same program, beside the first one, which goes on."""
    alone, later = transport(folder, "h264"), encoded(folder, "h264")
    both = once(
        folder, "both.ts",
        lambda path: ffmpeg("-i", later, "-i", later, "-map", "0", "-map", "1", "-c", "copy", "-muxdelay", "0",
                            "-output_ts_offset", "2", path),
    )  # fmt: skip
    path = once(folder, "later.ts", lambda path: path.write_bytes(alone.read_bytes() + both.read_bytes()))
    count = frames(both, "v:1", packets=True)
    return Recording(path, frames(alone) + frames(both), passed_over={"other_video": count})


@recording
def first_track_is_empty(folder: Path) -> Recording:
    def make(path: Path) -> None:
        with av.open(str(encoded(folder, "h264"))) as whole, av.open(str(path), "w", format="matroska") as file:
            source = whole.streams.video[0]
            file.add_stream_from_template(source)
            stream = file.add_stream_from_template(source)
            for packet in whole.demux(source):
                if packet.size:
                    packet.stream = stream
                    file.mux(packet)

    return Recording(once(folder, "empty-track.mkv", make), parts.PICTURES)


def _covered(folder: Path, extension: str) -> Path:
    def make(path: Path) -> None:
        cover = path.with_name("cover.jpg")
        ffmpeg("-f", "lavfi", "-i", "color=red:size=200x200", "-frames:v", "1", cover)
        whole = encoded(folder, "h264")
        ffmpeg(
            "-i", whole, "-i", cover, "-map", "0", "-map", "1", "-c", "copy", "-disposition:v:1", "attached_pic", path
        )

    return once(folder, f"cover.{extension}", make)


@recording
def cover_comes_last(folder: Path) -> Recording:
    return Recording(_covered(folder, "mp4"), parts.PICTURES, passed_over={"attached_picture": 1})


@recording
def cover_comes_first(folder: Path) -> Recording:
    content = surgery.with_cover_first(_covered(folder, "mp4").read_bytes())
    path = once(folder, "cover-first.mp4", lambda path: path.write_bytes(content))
    return Recording(path, frames(path, "v:1"), passed_over={"attached_picture": 1})


@recording
def cover_is_attached(folder: Path) -> Recording:
    def make(path: Path) -> None:
        cover = path.with_name("attached.jpg")
        ffmpeg("-f", "lavfi", "-i", "color=blue:size=200x200", "-frames:v", "1", cover)
        ffmpeg(
            "-i", encoded(folder, "h264"), "-c", "copy", "-attach", cover, "-metadata:s:t", "mimetype=image/jpeg", path
        )

    return Recording(once(folder, "attached.mkv", make), parts.PICTURES, passed_over={"attached_picture": 1})


# --- packets without a picture ---------------------------------------------------------------------------------------


@recording
def units_in_tags_of_their_own(folder: Path) -> Recording:
    data = parts.bare(folder, "h264")
    content = surgery.FLV_HEADER + surgery.flv_of_units(data, FPS)
    side = sum(not surgery.is_picture(unit) for unit in surgery.units(data))
    path = once(folder, "units.flv", lambda path: path.write_bytes(content))
    return Recording(path, parts.PICTURES, passed_over={"no_picture": side})


@recording
def units_of_hevc_in_tags_of_their_own(folder: Path) -> Recording:
    data = parts.bare(folder, "hevc")
    content = surgery.FLV_HEADER + surgery.flv_of_hevc_units(data, FPS)
    side = sum(not surgery.is_picture(unit, hevc=True) for unit in surgery.units(data))
    path = once(folder, "units-hevc.flv", lambda path: path.write_bytes(content))
    return Recording(path, parts.PICTURES, passed_over={"no_picture": side})


@recording
def units_in_blocks_of_their_own(folder: Path) -> Recording:
    """In Matroska."""

    def make(path: Path) -> None:
        with av.open(str(encoded(folder, "h264"))) as whole, av.open(str(path), "w", format="matroska") as file:
            source = whole.streams.video[0]
            stream = file.add_stream_from_template(source)
            for packet in whole.demux(source):
                for unit in surgery.lengthed_units(bytes(packet)):
                    part = av.Packet(len(unit).to_bytes(4, "big") + unit)
                    part.pts, part.dts, part.time_base, part.stream = packet.pts, packet.dts, packet.time_base, stream
                    part.is_keyframe = surgery.is_key(unit)
                    file.mux(part)

    path = once(folder, "units.mkv", make)
    return Recording(path, parts.PICTURES, passed_over={"no_picture": frames(path, packets=True) - parts.PICTURES})


@recording
def pictures_that_are_not_shown(folder: Path) -> Recording:
    """VP8 has pictures that are references alone: the bit that shows them (RFC 6386, 9.1) is not set."""

    def make(path: Path) -> None:
        with av.open(str(encoded(folder, "vp8"))) as whole, av.open(str(path), "w", format="webm") as file:
            source = whole.streams.video[0]
            stream = file.add_stream_from_template(source)
            for number, packet in enumerate(packet for packet in whole.demux(source) if packet.size):
                data = bytes(packet)
                part = av.Packet(bytes([data[0] & ~0x10]) + data[1:] if number % 10 == 5 else data)
                part.pts, part.dts, part.time_base, part.stream = packet.pts, packet.dts, packet.time_base, stream
                part.is_keyframe = packet.is_keyframe
                file.mux(part)

    path = once(folder, "references.webm", make)
    return Recording(path, frames(path), passed_over={"not_shown": parts.PICTURES // 10})


@recording
def cut_by_an_edit_list(folder: Path) -> Recording:
    """Its first pictures are only there because others refer to them."""
    whole = muxed(folder, "h264b", "mp4")
    path = once(folder, "edited.mp4", lambda path: ffmpeg("-ss", "0.5", "-i", whole, "-c", "copy", path))
    return Recording(path, frames(path), passed_over={"not_shown": frames(path, packets=True) - frames(path)})


# --- lengths ---------------------------------------------------------------------------------------------------------


def _long(folder: Path, codec: str, extension: str, sound: str, *options: str) -> Recording:
    path = with_sound(folder, codec, extension, sound, *options)
    return Recording(path, frames(path))


@recording
def longer_sound_matroska(folder: Path) -> Recording:
    return _long(folder, "h264", "mkv", "aac")


@recording
def longer_sound_webm(folder: Path) -> Recording:
    return _long(folder, "vp8", "webm", "libopus")


@recording
def longer_sound_flv(folder: Path) -> Recording:
    return _long(folder, "h264", "flv", "aac", "-ar", "44100")


@recording
def longer_sound_avi(folder: Path) -> Recording:
    return _long(folder, "mpeg4", "avi", "pcm_s16le")


@recording
def longer_sound_mp4(folder: Path) -> Recording:
    return _long(folder, "h264", "mp4", "aac")


@recording
def longer_sound_fragments(folder: Path) -> Recording:
    return _long(folder, "h264", "mp4", "aac", "-movflags", "+frag_keyframe+empty_moov")


@recording
def longer_sound_transport(folder: Path) -> Recording:
    return _long(folder, "h264", "ts", "aac")


@recording
def longer_sound_asf(folder: Path) -> Recording:
    return _long(folder, "wmv2", "wmv", "wmav2")


@recording
def longer_sound_ogg(folder: Path) -> Recording:
    return _long(folder, "theora", "ogv", "libvorbis")


@recording
def longer_subtitles(folder: Path) -> Recording:
    def make(path: Path) -> None:
        words = path.with_name("words.srt")
        words.write_text("1\n00:00:00,000 --> 00:00:01,000\none\n\n2\n00:00:25,000 --> 00:00:29,000\ntwo\n")
        ffmpeg("-i", encoded(folder, "h264"), "-i", words, "-c:v", "copy", "-c:s", "srt", path)

    return Recording(once(folder, "subtitles.mkv", make), parts.PICTURES)


@recording
def stated_length_is_wrong(folder: Path) -> Recording:
    """The header of a Matroska file says twenty times as much; nothing of the file is missing."""
    content = surgery.with_duration(encoded(folder, "vp8").read_bytes(), 20)
    path = once(folder, "claim.mkv", lambda path: path.write_bytes(content))
    return Recording(path, parts.PICTURES)


@recording
def cut_mp4(folder: Path) -> Recording:
    return cut(folder, muxed(folder, "h264", "mp4", "-movflags", "+faststart"), 0.6)


@recording
def cut_mp4_near_its_end(folder: Path) -> Recording:
    return cut(folder, muxed(folder, "hevc", "mp4", "-movflags", "+faststart"), 0.97)


@recording
def cut_fragments(folder: Path) -> Recording:
    return cut(folder, muxed(folder, "h264", "mp4", "-movflags", "+frag_keyframe+empty_moov+default_base_moof"), 0.6)


@recording
def cut_matroska(folder: Path) -> Recording:
    return cut(folder, encoded(folder, "vp9"), 0.6)


@recording
def cut_matroska_with_longer_sound(folder: Path) -> Recording:
    return cut(folder, with_sound(folder, "h264", "mkv", "aac", seconds=6), 0.3)


@recording
def cut_flv(folder: Path) -> Recording:
    return cut(folder, muxed(folder, "h264", "flv"), 0.6)


@recording
def cut_avi(folder: Path) -> Recording:
    return cut(folder, muxed(folder, "mjpeg", "avi"), 0.6)


@recording
def cut_avi_without_index(folder: Path) -> Recording:
    """Each chunk that is left is whole: FFmpeg corrects the length that the header states."""
    content = muxed(folder, "mpeg4", "avi").read_bytes()
    path = once(
        folder, "chunks.avi", lambda path: path.write_bytes(content[: content.index(b"00dc", len(content) // 2)])
    )
    return Recording(path, frames(path), complete=False, ended="the end of its file is missing", undecodable=None)


@recording
def without_its_index(folder: Path) -> Recording:
    """The power was cut when all pictures had been written."""
    content = muxed(folder, "mpeg4", "avi").read_bytes()
    path = once(folder, "index.avi", lambda path: path.write_bytes(content[: content.rindex(b"idx1")]))
    return Recording(path, frames(path))


@recording
def cut_matroska_by_a_picture(folder: Path) -> Recording:
    content = encoded(folder, "h264").read_bytes()
    with av.open(str(encoded(folder, "h264"))) as whole:
        last = max(packet.pos or 0 for packet in whole.demux(video=0))
    path = once(folder, "picture.mkv", lambda path: path.write_bytes(content[:last]))
    return Recording(path, frames(path), complete=False, ended="cut short: it ends after 1.9 s of 2.0 s")


@recording
def zeros_at_the_end(folder: Path) -> Recording:
    """As recorders leave where a file has its size from the beginning."""
    content = transport(folder, "h264").read_bytes() + bytes(188 * 1000)
    path = once(folder, "zeros.ts", lambda path: path.write_bytes(content))
    return Recording(path, parts.PICTURES)


@recording
def zeros_in_the_middle(folder: Path) -> Recording:
    content = transport(folder, "h264").read_bytes()
    later = transport(folder, "h264", offset=9).read_bytes()
    path = once(folder, "gap.ts", lambda path: path.write_bytes(content + bytes(188 * 1000) + later))
    return Recording(path, 2 * parts.PICTURES)


@recording
def cut_ogg(folder: Path) -> Recording:
    return cut(folder, muxed(folder, "theora", "ogv"), 0.6)


@recording
def cut_asf(folder: Path) -> Recording:
    return cut(folder, muxed(folder, "wmv2", "wmv"), 0.6)


# --- times -----------------------------------------------------------------------------------------------------------


@recording
def avi_with_reordered_pictures(folder: Path) -> Recording:
    pictures = surgery.access_units(parts.bare(folder, "h264b"))
    chunks = [b"".join(b"\0\0\0\1" + unit for unit in picture) for picture in pictures]
    content = surgery.avi(chunks, b"H264", (160, 96), FPS)
    path = once(folder, "reordered.avi", lambda path: path.write_bytes(content))
    return Recording(path, frames(path))


@recording
def avi_with_packed_pictures(folder: Path) -> Recording:
    """As DivX wrote them."""
    with av.open(str(muxed(folder, "mpeg4b", "avi"))) as whole:
        packets = [bytes(packet) for packet in whole.demux(video=0) if packet.size]
        packets[0] = (whole.streams.video[0].codec_context.extradata or b"") + packets[0]
    at = packets[0].index(b"\0\0\1\xb6")
    packets[0] = packets[0][:at] + b"\0\0\1\xb2DivX503b1393p" + packets[0][at:]
    content = surgery.avi(surgery.packed(packets), b"DX50", (160, 96), FPS)
    path = once(folder, "packed.avi", lambda path: path.write_bytes(content))
    empty = surgery.packed(packets).count(surgery.EMPTY_VOP)
    return Recording(path, len(packets), passed_over={"no_picture": empty})


@recording
def avi_with_empty_chunks(folder: Path) -> Recording:
    """As capture programs write where nothing has come; and no index."""
    with av.open(str(muxed(folder, "mpeg4", "avi"))) as whole:
        packets = [bytes(packet) for packet in whole.demux(video=0) if packet.size]
    chunks = [chunk for n, packet in enumerate(packets) for chunk in ([packet] if n % 5 else [packet, b""])]
    content = surgery.avi(chunks, b"FMP4", (160, 96), FPS, index=False)
    return Recording(once(folder, "empty.avi", lambda path: path.write_bytes(content)), len(packets))


@recording
def bare_with_reordered_pictures(folder: Path) -> Recording:
    path = once(folder, "reordered.h264", lambda path: path.write_bytes(parts.bare(folder, "h264b")))
    return Recording(path, frames(path))


@recording
def bare_hevc_with_reordered_pictures(folder: Path) -> Recording:
    path = once(folder, "reordered.hevc", lambda path: path.write_bytes(parts.bare(folder, "hevcb")))
    return Recording(path, frames(path))


def _retimed(folder: Path, name: str, codec: str, change: Callable[[int, int], int]) -> Recording:
    content = surgery.with_times(encoded(folder, codec).read_bytes(), change)
    return Recording(once(folder, name, lambda path: path.write_bytes(content)), parts.PICTURES)


@recording
def times_of_decoding_alone(folder: Path) -> Recording:
    """Some muxers write the times of decoding as those of display."""
    return _retimed(folder, "decoding.mkv", "h264b", lambda number, _: number * 1000 // FPS)


@recording
def times_step_back(folder: Path) -> Recording:
    return _retimed(folder, "step.mkv", "h264", lambda number, time: time - 150 * (number % 10 == 5))


@recording
def times_are_equal(folder: Path) -> Recording:
    return _retimed(folder, "equal.mkv", "h264", lambda number, _: number // 2 * 2000 // FPS)


@recording
def times_wrap(folder: Path) -> Recording:
    """The 33 bits of a transport stream's clock overflow."""
    path = transport(folder, "h264", offset=95442.5)
    return Recording(path, frames(path))


# --- damage ----------------------------------------------------------------------------------------------------------


def _noise(data: bytes, every: int, *, hevc: bool = False) -> bytes:
    """The middle third of each Nth slice that is no key picture becomes noise."""
    rng, changed, number, at = random.Random(5), bytearray(data), 0, 0
    for unit in surgery.units(data):
        at = data.index(unit, at)
        if surgery.is_picture(unit, hevc=hevc) and not surgery.is_key(unit, hevc=hevc):
            number += 1
            if number % every == 0:
                for place in range(at + len(unit) // 3, at + 2 * len(unit) // 3):
                    changed[place] = rng.randrange(1, 256)
        at += len(unit)
    return bytes(changed)


@recording
def damaged_pictures(folder: Path) -> Recording:
    content = _noise(parts.bare(folder, "h264"), 7)
    path = once(folder, "damaged.h264", lambda path: path.write_bytes(content))
    return Recording(path, frames(path), complete=False)


@recording
def lost_packets(folder: Path) -> Recording:
    content = surgery.without(transport(folder, "h264").read_bytes(), lambda number, _: number % 40 == 0)
    path = once(folder, "lost.ts", lambda path: path.write_bytes(content))
    return Recording(path, frames(path), complete=False, undecodable=None)


@recording
def lost_packets_of_hevc(folder: Path) -> Recording:
    """FFmpeg's decoder does not notice; its demuxer does."""
    content = surgery.without(transport(folder, "hevc").read_bytes(), lambda number, _: number % 40 == 0)
    path = once(folder, "lost-hevc.ts", lambda path: path.write_bytes(content))
    return Recording(path, frames(path), complete=False, undecodable=None)


@recording
def overwritten_mp4(folder: Path) -> Recording:
    content = bytearray(muxed(folder, "h264", "mp4", "-movflags", "+faststart").read_bytes())
    rng = random.Random(1)
    for place in range(len(content) // 2, len(content) // 2 + 8_000):
        content[place] = rng.randrange(256)
    path = once(folder, "overwritten.mp4", lambda path: path.write_bytes(content))
    return Recording(path, frames(path), complete=False, undecodable=None)


@recording
def begins_without_a_key_picture(folder: Path) -> Recording:
    """As a recorder's ring does; nothing of it is damaged."""
    units = surgery.units(parts.bare(folder, "h264"))
    keys = [number for number, unit in enumerate(units) if surgery.is_key(unit)]
    begin = keys[1] - 9
    content = b"".join(b"\0\0\0\1" + unit for unit in units[begin:])
    path = once(folder, "ring.h264", lambda path: path.write_bytes(content))
    return Recording(path, frames(path), complete=False, undecodable=None)


# --- other containers and codecs, as they are ------------------------------------------------------------------------


def _plain(name: str, codec: str, extension: str, *options: str) -> None:
    def make(folder: Path) -> Recording:
        path = muxed(folder, codec, extension, *options)
        return Recording(path, frames(path))

    RECORDINGS[name] = make


_plain("vp9-ivf", "vp9", "ivf")
_plain("av1-mp4", "av1", "mp4")
_plain("av1-obu", "av1", "obu")
_plain("hevc-flv-less", "hevc", "mov")
_plain("mpeg2-program-stream", "mpeg2video", "vob")
_plain("nut", "h264b", "nut")
_plain("motion-jpeg", "mjpeg", "mov")
_plain("3gp", "mpeg4", "3gp")


@recording
def asf_with_delimiters(folder: Path) -> Recording:
    """FFmpeg gives them as packets of their own."""
    path = muxed(folder, "h264", "asf")
    side = frames(path, packets=True) - frames(path)
    return Recording(path, frames(path), passed_over={"no_picture": side})


@recording
def dahua(folder: Path) -> Recording:
    content = surgery.dav(parts.bare(folder, "h264"), (160, 96), FPS)
    return Recording(once(folder, "export.dav", lambda path: path.write_bytes(content)), parts.PICTURES)


@recording
def animated_gif(folder: Path) -> Recording:
    path = once(folder, "animated.gif", lambda path: ffmpeg("-i", encoded(folder, "h264"), "-vf", "fps=10", path))
    return Recording(path, frames(path))


@recording
def interlaced_transport(folder: Path) -> Recording:
    def make(path: Path) -> None:
        ffmpeg("-i", encoded(folder, "h264"), "-vf", "tinterlace=interleave_top", "-flags", "+ilme+ildct", "-c:v",
               "mpeg2video", "-r", "25", path)  # fmt: skip

    path = once(folder, "interlaced.ts", make)
    return Recording(path, frames(path))
