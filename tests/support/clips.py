"""Clips for tests, made by ffmpeg."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path


def ffmpeg(*arguments: str | Path) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-y", *map(str, arguments)], check=True, capture_output=True, timeout=120)


def once(folder: Path, name: str, make: Callable[[Path], object]) -> Path:
    """A clip that several processes use: the first process makes it, the others wait."""
    path = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            begun = path.with_name(f"begun-{name}")
            make(begun)
            begun.rename(path)
    return path


def pattern(path: Path, *, seconds: float, size: str = "320x180", fps: int = 15, codec: str = "libx264") -> Path:
    """ffmpeg's moving test picture; H.264 with a key frame a second and no B-frames, as cameras send."""
    options = ["-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p"] if codec == "libx264" else []
    source = f"testsrc2=size={size}:rate={fps}:duration={seconds}"
    ffmpeg("-f", "lavfi", "-i", source, "-c:v", codec, "-g", str(fps), *options, path)
    return path


def bframes(path: Path) -> Path:
    """Three seconds of H.264 with B-frames, which no other picture needs."""
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=15:duration=3", "-c:v", "libx264", "-bf", "3", "-g", "15",
        "-pix_fmt", "yuv420p", path,
    )  # fmt: skip
    return path
