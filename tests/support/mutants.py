"""Corrupt recordings: flipped bits, cut ends, wrong headers, other pictures in the middle."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from lookout.messages import Detections, Dropped, Message, Metrics, Status
from tests.support import clips
from tests.support.daemon import Lookout, lost

_HANG_S = 60.0  # without a message of a source that has begun and not ended
_START_S = 60.0  # more until it begins: capture processes start first
DIED = "capture process ended"
Mutate = Callable[[random.Random, bytearray, bytes], bytearray]


def originals(folder: Path) -> list[Path]:
    """Originals of three seconds: two codecs, three containers, and bare H.264 of two sizes in one file."""
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
    """The mutant of a number; reproducible."""
    rng = random.Random(number)
    original = clips_of[number % len(clips_of)]
    other = rng.choice(clips_of).read_bytes()
    content = bytearray(original.read_bytes())
    for _ in range(rng.randint(1, 3)):
        content = rng.choice(_MUTATIONS)(rng, content, other)
    path = target / f"{number:04}-{original.name}"
    path.write_bytes(content)
    return path


def play(paths: list[Path], folder: Path, model: dict[str, object], processes: int | str) -> list[str]:
    """Play all of them at once, as fast as possible, beside a camera; each must end, or be given up with a reason.

    Returns:
        A line for each capture process that died, and what Python was doing.
    """
    names = {f"m{number}": path for number, path in enumerate(paths)}
    sources = [{"id": name, "type": "av", "url": str(path), "pace": "fast"} for name, path in names.items()]
    neighbour = {"id": "neighbour", "type": "synthetic", "fps": 10, "width": 64, "height": 36}
    config: dict[str, object] = {
        "model": model,
        "capture_processes": processes,
        "sources": [neighbour, *sources],
        # A recording that cannot be opened is retried for ever: here the first refusal counts as its end.
        "reconnect": {"initial_s": 60, "max_s": 60},
        "monitor": {"interval_s": 1},
        "publisher": {"wait_for_subscriber_s": 20},
    }
    open_ones = set(names)
    heard: dict[str, float] = {}
    camera: list[Detections] = []  # detections of the neighbour
    last: Metrics | None = None
    with Lookout(folder, config, {"PYTHONFAULTHANDLER": "1"}) as lookout, lookout.subscribe() as subscriber:
        began = monotonic()
        while open_ones or len(camera) < 30:
            message = subscriber.receive(0.5)
            assert lookout.process.poll() is None, (names, lookout.log()[-3000:])
            now = monotonic()
            quiet = {name: str(names[name]) for name in open_ones if now - heard.get(name, began + _START_S) > _HANG_S}
            assert not quiet, f"nothing for {_HANG_S} s of {quiet}: {lookout.log()[-3000:]}"
            assert now - began < 600
            _note(message, open_ones, heard, camera)
            last = message if isinstance(message, Metrics) else last
        assert lookout.stop() == 0
        log = lookout.log()
    unforeseen = [line for line in log.splitlines() if "Traceback" in line or "unexpectedly" in line]
    assert not unforeseen, (names, unforeseen)
    # The camera beside them: every frame is published, or dropped for lack of time.
    assert last is not None
    account = last.sources["neighbour"]
    none = Dropped(superseded=account.dropped.superseded, stale=account.dropped.stale)
    assert account.dropped == none
    assert account.captured == account.published + none.superseded + none.stale + account.in_flight
    assert lost(camera, "neighbour") == 0
    assert len({frame.session for frame in camera}) == 1
    traces = ("Fatal Python error", "Current thread", "  File ")
    return [line for line in log.splitlines() if DIED in line or line.startswith(traces)]


def _note(message: Message | None, open_ones: set[str], heard: dict[str, float], camera: list[Detections]) -> None:
    if isinstance(message, Detections) and message.source == "neighbour":
        camera.append(message)
    elif isinstance(message, Detections | Status) and message.source != "neighbour":
        heard[message.source] = monotonic()
        if isinstance(message, Status) and message.state in ("ended", "down"):
            open_ones.discard(message.source)


def _flip(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    """Flip single bits, anywhere."""
    for _ in range(rng.choice((1, 10, 200))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def _break_header(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    """Flip bytes of headers."""
    for _ in range(rng.choice((1, 4, 16))):
        content[rng.randrange(min(len(content), 1024))] = rng.randrange(256)
    return content


def _cut(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    return content[: rng.randrange(1, len(content) + 1)]


def _lose(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    """Cut a piece out of the middle."""
    start = rng.randrange(len(content))
    del content[start : start + rng.randrange(1, 20_000)]
    return content or bytearray(b"\0")


def _repeat(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    start = rng.randrange(len(content))
    return content + content[start:]


def _graft(rng: random.Random, content: bytearray, other: bytes) -> bytearray:
    """Insert a piece of another recording, with its parameter sets."""
    start, into = rng.randrange(len(other)), rng.randrange(len(content))
    content[into:into] = other[start : start + rng.randrange(1, 50_000)]
    return content


def _fill(rng: random.Random, content: bytearray, _other: bytes) -> bytearray:
    """Overwrite a stretch with one value, as a failed disk does."""
    start = rng.randrange(len(content))
    stretch = min(rng.randrange(1, 5_000), len(content) - start)
    content[start : start + stretch] = bytes([rng.choice((0, 0xFF))]) * stretch
    return content


_MUTATIONS: list[Mutate] = [_flip, _break_header, _cut, _lose, _repeat, _graft, _fill]
