"""Recordings that something happened to: flipped bits, lost ends, wrong headers, other pictures in the middle."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.support import clips

Mutate = Callable[[random.Random, bytearray, bytes], bytearray]


def originals(folder: Path) -> list[Path]:
    """Three seconds each: two codecs and three containers, and bare H.264 of two sizes one after the other."""
    h264 = clips.pattern(folder / "h264.mkv", seconds=3)
    made = [h264]
    for name, options in {
        "h264.mp4": ("-c", "copy"),
        "h264.ts": ("-c", "copy", "-bsf:v", "h264_mp4toannexb"),
        "hevc.mkv": ("-c:v", "libx265", "-x265-params", "log-level=none", "-preset", "ultrafast"),
        "h264.h264": ("-c", "copy", "-bsf:v", "h264_mp4toannexb"),
        "small.h264": ("-vf", "scale=176:144", "-c:v", "libx264", "-preset", "ultrafast"),
    }.items():
        clips.ffmpeg("-i", h264, *options, folder / name)
        made.append(folder / name)
    return made


def mutant(number: int, clips_of: list[Path], target: Path) -> Path:
    """The mutant of a number: the same every time."""
    rng = random.Random(number)
    original = clips_of[number % len(clips_of)]
    other = rng.choice(clips_of).read_bytes()
    content = bytearray(original.read_bytes())
    for _ in range(rng.randint(1, 3)):
        content = rng.choice(_MUTATIONS)(rng, content, other)
    path = target / f"{number:04}-{original.name}"
    path.write_bytes(content)
    return path


def _flip(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    """Single bits, anywhere."""
    for _ in range(rng.choice((1, 10, 200))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def _break_header(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    """Bytes where containers and codecs keep what all the rest depends on."""
    for _ in range(rng.choice((1, 4, 16))):
        content[rng.randrange(min(len(content), 1024))] = rng.randrange(256)
    return content


def _cut(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    return content[: rng.randrange(1, len(content) + 1)]


def _lose(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    """A piece out of the middle."""
    start = rng.randrange(len(content))
    del content[start : start + rng.randrange(1, 20_000)]
    return content or bytearray(b"\0")


def _repeat(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    start = rng.randrange(len(content))
    return content + content[start:]


def _graft(rng: random.Random, content: bytearray, other: bytes) -> bytearray:
    """A piece of another recording, parameter sets and all."""
    start, into = rng.randrange(len(other)), rng.randrange(len(content))
    content[into:into] = other[start : start + rng.randrange(1, 50_000)]
    return content


def _fill(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    """A stretch of one value, as a disk that failed leaves it."""
    start = rng.randrange(len(content))
    stretch = min(rng.randrange(1, 5_000), len(content) - start)
    content[start : start + stretch] = bytes([rng.choice((0, 0xFF))]) * stretch
    return content


_MUTATIONS: list[Mutate] = [_flip, _break_header, _cut, _lose, _repeat, _graft, _fill]
