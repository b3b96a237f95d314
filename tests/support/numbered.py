"""Recordings whose pictures tell their number: by a row of black and white squares, and by where an object is."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import av
import msgspec
import numpy as np

from daemon.recording.records import Sample, Stream
from tests.support.clips import once
from tests.support.recorded import SECOND, Clip

BITS = 12
RATE = 25
COLOUR = (230, 60, 200)  # of the object: red, green, blue
_ENCODERS = {"plain": ["-bf", "0"], "b": ["-bf", "2", "-b_strategy", "0"]}


def box_of(number: int, width: int, height: int) -> tuple[int, int, int, int]:
    """Where the object is in a picture, px."""
    side = height // 4
    left = (number * 7) % (width - side)
    top = height // 3 + (number * 3) % (height // 3)
    return left, top, left + side, top + side


def drawn(number: int, width: int, height: int) -> np.ndarray:
    """A picture, BGR."""
    picture = np.full((height, width, 3), 90, np.uint8)
    side = width // BITS
    for bit in range(BITS):
        picture[: height // 5, bit * side : (bit + 1) * side] = 235 if number >> bit & 1 else 16
    left, top, right, bottom = box_of(number, width, height)
    picture[top:bottom, left:right] = COLOUR[::-1]
    return picture


def _encode(path: Path, kind: str, first: int, seconds: int, size: tuple[int, int]) -> None:
    width, height = size
    command = [
        "ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "bgr24", "-s", f"{width}x{height}",
        "-r", str(RATE), "-i", "-", "-c:v", "libx264", "-preset", "veryfast", *_ENCODERS[kind], "-g", str(RATE),
        "-keyint_min", str(RATE), "-sc_threshold", "0", "-crf", "20", "-pix_fmt", "yuv420p", "-f", "mpegts", str(path),
    ]  # fmt: skip
    pictures = b"".join(drawn(first + number, width, height).tobytes() for number in range(seconds * RATE))
    subprocess.run(command, input=pictures, check=True, timeout=120)


def numbered(
    folder: Path, kind: str, *, first: int = 0, seconds: int, size: tuple[int, int] = (320, 180), session: str = "5e55"
) -> Clip:
    """A clip with a key picture each second.

    Args:
        kind: plain, or b with B-frames.
        first: number of its first picture.
    """
    name = f"numbered-{kind}-{first}-{seconds}-{size[0]}.ts"
    path = once(folder, name, partial(_encode, kind=kind, first=first, seconds=seconds, size=size))
    return clip_of(path, RATE, session)


def clip_of(path: Path, rate: int, session: str = "5e55") -> Clip:
    """The packets of a video as a camera would send them."""
    with av.open(str(path)) as container:
        video = container.streams.video[0]
        context, unit = video.codec_context, video.time_base
        assert unit is not None
        packets = [packet for packet in container.demux(video) if packet.size]
        extradata, ticks = bytes(context.extradata or b""), unit.as_integer_ratio()
        stream = Stream(session, context.name, extradata, ticks, context.width, context.height, 0)
        samples = []
        for packet in packets:
            assert packet.pts is not None
            assert packet.dts is not None
            pts, dts = (int(time * unit * SECOND) for time in (packet.pts, packet.dts))
            samples.append(Sample(pts, dts, SECOND // rate, packet.is_keyframe, memoryview(bytes(packet))))
    return Clip(stream, samples)


def of_session(found: Clip, session: str) -> Clip:
    """The same video in another connection."""
    return Clip(msgspec.structs.replace(found.stream, session=session), found.samples)


def stretched(found: Clip, factor: int) -> Clip:
    """The same pictures, which last so many times as long."""
    samples = [
        msgspec.structs.replace(
            sample, pts=sample.pts * factor, dts=sample.dts * factor, duration=sample.duration * factor
        )
        for sample in found.samples
    ]
    return Clip(found.stream, samples)
