"""Recordings of drawn streets: pictures whose objects are known by their colour."""

from __future__ import annotations

import subprocess
from pathlib import Path

from daemon.sources.scene import Scene

FPS = 8
SEED = 1791  # a yellow car, a cyan car and a purple bus on the grey street, each in a band of its own
OBJECTS = 3


def scene_of_clips() -> Scene:
    return Scene(640, 360, seed=SEED, objects=OBJECTS, fps=FPS)


def colours() -> list[tuple[int, int, int]]:
    """The colour of each object's body, as red, green and blue."""
    picture, boxes = scene_of_clips().draw(0), scene_of_clips().truth(0)
    found = []
    for box in boxes:
        x1, y1, x2, y2 = box.xyxy
        blue, green, red = (int(value) for value in picture[y1 + (y2 - y1) * 62 // 100, x1 + (x2 - x1) // 2])
        found.append((red, green, blue))
    return found


def street(path: Path, *, seconds: float, codec: str = "libx264", times: int = 1) -> Path:
    """A recording of a drawn street as cameras send it: a key picture every two seconds, no B-frames.

    Args:
        times: that the same seconds follow each other; they are drawn and encoded once.
    """
    once = path.with_name(f"once-{path.name}") if times > 1 else path
    scene = scene_of_clips()
    options = ["-preset", "ultrafast", "-tune", "zerolatency"]
    options += ["-x265-params", "log-level=none"] if codec == "libx265" else []
    command = [
        "ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "bgr24", "-s", "640x360", "-r", str(FPS),
        "-i", "-", "-c:v", codec, *options, "-pix_fmt", "yuv420p", "-g", str(2 * FPS), str(once),
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for number in range(round(seconds * FPS)):
            process.stdin.write(scene.draw(number).tobytes())
        process.stdin.close()
        assert process.wait(120) == 0
    if times > 1:
        again = ["-stream_loop", str(times - 1), "-i", str(once), "-c", "copy", str(path)]
        subprocess.run(["ffmpeg", "-v", "error", "-y", *again], check=True, timeout=120)
        once.unlink()
    return path
