"""Small archives of drawn streets, and processes that analyse them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import av
import yaml
from av.video.frame import VideoFrame

from daemon.config.sources import SyntheticConfig
from daemon.sources.synthetic import scene_of
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, ROOT
from tests.support.zygote import Started

RULES = [{"type": "zone", "name": "all", "polygons": [[[0, 0], [1, 0], [1, 1], [0, 1]]], "enter_s": 0}]
TRACKED = {"tracking": True, "rules": RULES}


def draw(path: Path, seed: int, frames: int, size: tuple[int, int] = (160, 96)) -> Path:
    """A recording at 5 frames a second."""
    scene = scene_of(SyntheticConfig(id="street", seed=seed, fps=5, width=size[0], height=size[1], objects=3))
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=5, options={"preset": "ultrafast", "g": "5", "threads": "1"})
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for number in range(frames):
            for packet in stream.encode(VideoFrame.from_ndarray(scene.draw(number), format="bgr24")):
                file.mux(packet)
        for packet in stream.encode(None):
            file.mux(packet)
    return path


def configure(folder: Path, **keys: Any) -> Path:
    """A configuration file for batches."""
    whole = {"model": {"path": str(DEMO_MODEL), "backend": "cpu", "threads": 1}, "sources": [], "capture_processes": 0}
    path = folder / "batch.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in {**whole, **keys}.items() if value is not None}))
    return path


def start(*arguments: str | Path, log: Path) -> Started:
    """`lookout batch` in a process of its own."""
    with log.open("ab") as err:
        return _started(arguments, err.fileno())


def run(*arguments: str | Path) -> tuple[int, str]:
    """The same to its end: exit code, and what it has written."""
    with TemporaryFile() as err:
        code = _started(arguments, err.fileno()).wait(2 * PATIENCE_S)
        err.seek(0)
        return code, err.read().decode()


def _started(arguments: Sequence[str | Path], err: int) -> Started:
    with open(os.devnull) as nothing:
        return Started(["batch", *map(str, arguments)], (nothing.fileno(), err, err), str(ROOT))


def results(folder: Path) -> dict[str, bytes]:
    """Content of each result, by its path."""
    paths = [path for path in folder.rglob("*") if path.is_file() and ".lookout-batch" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> Sequence[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
