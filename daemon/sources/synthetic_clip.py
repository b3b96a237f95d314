"""A synthetic recording, for benchmarks without one and for the demo's page: a drawn street, as H.264."""

from __future__ import annotations

import os
from pathlib import Path

import av
import av.error
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from daemon.config.sources import SyntheticConfig
from daemon.errors import LookoutError
from daemon.sources.synthetic import scene_of
from detectors.port import cache_folder

_SECONDS = 8


def synthetic_clip() -> Path:
    """The clip's path: 640x360 at 15 frames per second, drawn once and cached.

    Raises:
        LookoutError: it cannot be written.
    """
    path = cache_folder() / "bench-street.mp4"
    if path.is_file():
        return path
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _draw(part)
        part.replace(path)
    except (OSError, av.error.FFmpegError) as error:
        raise LookoutError(
            f"the synthetic clip cannot be made at {path}: {error}; name a recording of yours"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return path


def _draw(path: Path) -> None:
    config = SyntheticConfig(id="street", seed=1001, fps=15)
    scene = scene_of(config)
    with av.open(str(path), "w", format="mp4") as file:
        stream: VideoStream = file.add_stream("libx264", rate=15, options={"preset": "veryfast", "g": "30"})
        stream.width, stream.height, stream.pix_fmt = scene.width, scene.height, "yuv420p"
        for number in range(_SECONDS * 15):
            for packet in stream.encode(VideoFrame.from_ndarray(scene.draw(number), format="bgr24")):
                file.mux(packet)
        for packet in stream.encode(None):
            file.mux(packet)
