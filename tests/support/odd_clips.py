"""Unusual recordings, as from telephones, televisions, editors and the web: the same drawn street in each."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import av

from daemon.sources.scene import Scene
from tests.support.clips import ffmpeg

FRAMES, RATE, WIDTH, HEIGHT = 20, 15, 640, 360
SECONDS = FRAMES / RATE
_H264 = ("-c:v", "libx264", "-preset", "ultrafast", "-crf", "15", "-g", str(RATE))
_TONE = ("-f", "lavfi", "-i", f"sine=duration={SECONDS + 2}")


def drawn(path: Path) -> Path:
    """The street, with as little loss as possible."""
    scene = Scene(WIDTH, HEIGHT, seed=77, objects=4)
    command = ["ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "bgr24", "-s", f"{WIDTH}x{HEIGHT}",
               "-r", str(RATE), "-i", "-", *_H264, "-pix_fmt", "yuv420p", str(path)]  # fmt: skip
    raw = b"".join(scene.draw(number).tobytes() for number in range(FRAMES))
    subprocess.run(command, input=raw, check=True, capture_output=True, timeout=120)
    return path


def shown_frames(path: Path) -> int:
    """Pictures of the first video track, by ffprobe."""
    command = ["ffprobe", "-v", "error", "-count_frames", "-select_streams", "v:0", "-show_entries",
               "stream=nb_read_frames", "-of", "csv=p=0", str(path)]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return int(done.stdout.split()[0].strip(","))


def shown_size(path: Path) -> tuple[int, int]:
    """Width and height as ffmpeg shows them: upright."""
    command = ["ffmpeg", "-v", "error", "-i", str(path), "-frames:v", "1", "-f", "image2pipe", "-c:v", "ppm", "-"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120)
    width, height = done.stdout.split(b"\n")[1].split()
    return int(width), int(height)


def _encoded(base: Path, path: Path, *options: str) -> None:
    ffmpeg("-i", base, *options, path)


def _turned(base: Path, path: Path, filters: str, degrees: int) -> None:
    """Stored sideways, with rotation metadata."""
    stored = path.with_name(f"stored-{path.name}")
    ffmpeg("-i", base, "-vf", filters, *_H264, stored)
    ffmpeg("-i", stored, "-c", "copy", "-metadata:s:v:0", f"rotate={degrees}", path)
    stored.unlink()


def _late(base: Path, path: Path) -> None:
    """Sound begins two seconds before the pictures."""
    ffmpeg("-itsoffset", "2", "-i", base, *_TONE, "-map", "0:v", "-map", "1:a", "-c:v", "copy", path)


def _two_tracks(base: Path, path: Path) -> None:
    other = ("-f", "lavfi", "-i", f"testsrc2=size=320x180:rate={RATE}:duration={SECONDS / 2}")
    ffmpeg("-i", base, *other, "-map", "0:v", "-map", "1:v", *_H264, path)


def _jumping(base: Path, path: Path) -> None:
    """An hour is missing in its middle."""
    with av.open(str(base)) as whole, av.open(str(path), "w") as jumping:
        stream = jumping.add_stream_from_template(whole.streams.video[0])
        for number, packet in enumerate(packet for packet in whole.demux(video=0) if packet.size):
            if number >= FRAMES // 2 and packet.pts is not None and packet.dts is not None:
                hour = round(3600 / float(packet.time_base or 1))
                packet.pts, packet.dts = packet.pts + hour, packet.dts + hour
            packet.stream = stream
            jumping.mux(packet)


def _playlist(base: Path, path: Path) -> None:
    ffmpeg("-i", base, "-c", "copy", "-f", "hls", "-hls_time", "1", "-hls_playlist_type", "vod",
           "-hls_segment_filename", path.with_name("part-%d.ts"), path)  # fmt: skip


Make = Callable[[Path, Path], None]


def _with(*options: str) -> Make:
    return lambda base, path: _encoded(base, path, *options)


ODD: dict[str, Make] = {
    "whole.mp4": _with("-c", "copy"),
    "cut.mp4": lambda base, path: ffmpeg("-ss", "0.7", "-i", base, "-c", "copy", path),
    "turned-90.mp4": partial(_turned, filters="transpose=clock", degrees=90),
    "turned-180.mp4": partial(_turned, filters="hflip,vflip", degrees=180),
    "turned-270.mp4": partial(_turned, filters="transpose=cclock", degrees=270),
    "anamorphic.mp4": _with("-vf", "scale=320:360,setsar=2/1", *_H264),
    "variable.mkv": _with("-vf", "select='not(mod(n,3))+eq(n,1)'", "-vsync", "vfr", *_H264),
    "interlaced.mp4": _with("-vf", "tinterlace=interleave_top", "-flags", "+ilme+ildct", *_H264),
    "interlaced.ts": _with(
        "-vf", "tinterlace=interleave_top", "-flags", "+ilme+ildct", "-c:v", "mpeg2video", "-r", "25"
    ),
    "reordered.mp4": _with("-c:v", "libx264", "-bf", "3", "-pix_fmt", "yuv420p"),
    "10-bit.mkv": _with("-c:v", "libx265", "-x265-params", "log-level=error", "-pix_fmt", "yuv420p10le"),
    "422.mp4": _with(*_H264, "-pix_fmt", "yuv422p"),
    "wrapped.ts": _with("-c", "copy", "-muxdelay", "0", "-output_ts_offset", "95442.5"),
    "motion.avi": _with("-c:v", "mjpeg", "-q:v", "3", "-pix_fmt", "yuvj420p"),
    "small.gif": _with("-vf", "scale=320:180"),
    "single.png": _with("-frames:v", "1"),
    "late.mkv": _late,
    "late.mp4": _late,
    "odd.mkv": _with("-vf", "scale=641:361", *_H264, "-pix_fmt", "yuv444p"),
    "tracks.mp4": _two_tracks,
    "vp9.webm": _with("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"),
    "av1.mkv": _with("-c:v", "libaom-av1", "-cpu-used", "8", "-usage", "realtime"),
    "list.m3u8": _playlist,
    "jumping.mkv": _jumping,
}
