"""Benchmarks that others build on, each in a process of its own, so that nothing of one is left for the next."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.bench.harness import Load
from daemon.errors import LookoutError
from daemon.paths import demo_model


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
    decoded = _measured("decode", str(load.clip), {"sessions": load.sources})
    ran = _measured("engine", str(load.model or demo_model()), _engine(load))
    return Limits(decoded["rates"][0]["fps"], ran["images_per_s"])


def streams_of(load: Load) -> dict[str, Any]:
    """The figures of `lookout bench streams`, see `daemon.bench.streams.Streams`.

    Raises:
        LookoutError: it failed.
    """
    rest = {
        "sources": load.sources,
        "paced": load.paced,
        "seconds": load.seconds,
        "model": load.model,
        "backend": load.backend,
        "lanes": load.lanes,
        "decode": load.decode,
        "processes": load.processes,
        "mps": load.mps,
        "memory-limit": load.memory_limit,
    }
    return _measured("streams", str(load.clip), {**_engine(load), **rest})


def _engine(load: Load) -> dict[str, object]:
    return {
        "labels": load.labels,
        "precision": load.precision,
        "builder-level": load.builder_level,
        "cache": load.cache,
        "max-batch": load.max_batch,
    }


def _measured(command: str, argument: str, options: dict[str, object]) -> dict[str, Any]:
    """What a benchmark writes. Of options, None is left out and True is a flag."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        call = [sys.executable, "-m", "daemon", "bench", command, argument, "--json", str(file)]
        for name, value in options.items():
            if value is True:
                call.append(f"--{name}")
            elif value is not None and value is not False:
                call += [f"--{name}", str(value)]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LookoutError(f"bench {command}: {done.stderr.strip() or done.stdout.strip()}")
        figures: dict[str, Any] = json.loads(file.read_text())
        return figures
