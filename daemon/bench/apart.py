"""Benchmarks that others build on, each in a process of its own, so that nothing of one is left for the next."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.bench.load import Load
from daemon.errors import LookoutError
from daemon.paths import demo_model

if TYPE_CHECKING:
    from daemon.bench.streams import Streams


@dataclass(frozen=True)
class Limits:
    """What the GPU does when one thing is asked of it alone.

    Attributes:
        decode_fps: pictures of the recording, by as many sessions as there are sources.
        engine_fps: images in full batches.
    """

    decode_fps: float
    engine_fps: float


def limits_of(load: Load) -> Limits:
    """Measured by `lookout bench decode` and `lookout bench engine`.

    Raises:
        LookoutError: one of them failed.
    """
    decoded = measured("decode", [str(load.recording)], {"sessions": load.sources})
    ran = measured("engine", [str(load.model or demo_model())], _engine(load))
    return Limits(decoded["rates"][0]["fps"], ran["images_per_s"])


def streams_of(load: Load, *, copies: int = 1, frames_out: Path | None = None) -> list[Streams]:
    """`lookout bench streams`, so many at once.

    Raises:
        LookoutError: one of them failed.
    """
    from daemon.bench.streams import Streams

    options = {field.name.replace("_", "-"): getattr(load, field.name) for field in fields(load)}
    options["frames-out"] = frames_out
    del options["clip"]
    with ThreadPoolExecutor(copies) as pool:
        runs = list(pool.map(lambda _: measured("streams", [load.url.reveal()], options), range(copies)))
    return [msgspec.convert(run, Streams) for run in runs]


def _engine(load: Load) -> dict[str, object]:
    return {
        "labels": load.labels,
        "precision": load.precision,
        "builder-level": load.builder_level,
        "cache": load.cache,
        "max-batch": load.max_batch,
    }


def measured(command: str, arguments: Sequence[str], options: dict[str, object]) -> dict[str, Any]:
    """What a benchmark, or `lookout evaluate`, writes. Of options, None is left out and True is a flag.

    Raises:
        LookoutError: it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        group = [] if command == "evaluate" else ["bench"]
        call = [sys.executable, "-m", "daemon", *group, command, *arguments, "--json", str(file)]
        for name, value in options.items():
            if value is True:
                call.append(f"--{name}")
            elif value is not None and value is not False:
                call += [f"--{name}", str(value)]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise LookoutError(f"bench {command}: {said[-1] if said else f'exit code {done.returncode}'}")
        figures: dict[str, Any] = json.loads(file.read_text())
        return figures
