"""Repeated runs, each in a new process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

from daemon.bench.load import Load
from daemon.bench.result import Accuracy, Case, HardwareRates, Report, environment_of, read, settings_of
from daemon.bench.run import Run, run
from daemon.errors import LookoutError
from daemon.redact import Url
from daemon.system.paths import demo_model


def repeated(
    load: Load,
    repeats: int = 5,
    *,
    copies: int = 1,
    limits: bool = False,
    labelled: tuple[Path, Path] | None = None,
    frames_out: Path | None = None,
    on_repeat: Callable[[], None] = lambda: None,
) -> Report:
    """Run and measure. A single run of a single daemon happens in this process.

    Args:
        copies: concurrent daemons, each with this load.
        limits: measure decoder and engine alone first.
        labelled: photos and annotations, to measure accuracy first.
        frames_out: file to record every frame of the first repeat in.

    Raises:
        LookoutError: a run failed.
    """
    if load.models and (limits or labelled):
        raise LookoutError("--limits and --images measure one model: give one --model")
    if frames_out and copies > 1:
        raise LookoutError("--frames-out records one daemon: leave out --copies")
    environment, alone = environment_of(load), limits_of(load) if limits else None
    accuracy = _accuracy(load, *labelled) if labelled else None
    rounds = []
    for number in range(repeats):
        record = None if number else frames_out
        single = repeats == copies == 1
        rounds.append([run(load, frames_out=record)] if single else runs_of(load, copies=copies, frames_out=record))
        on_repeat()
    return Report("run", environment, [Case(settings_of(load), rounds, copies)], accuracy=accuracy, limits=alone)


def runs_of(load: Load, *, copies: int = 1, frames_out: Path | None = None) -> list[Run]:
    """Concurrent runs of `lookout bench run --repeats 1`.

    Raises:
        LookoutError: one of them failed.
    """
    clips = [clip.reveal() if isinstance(clip, Url) else str(clip) for clip in load.clips]
    options = {row.name: getattr(load, row.name) for row in fields(load) if row.name not in ("clips", "models")}
    if load.models:
        options["model"] = [f"{name}={path}" for name, path in load.models.items()]

    def one(_: int) -> Run:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.json"
            _command(["bench", "run", *clips], {**options, "repeats": 1, "frames_out": frames_out, "json": file})
            return read(file).cases[0].repeats[0][0]

    with ThreadPoolExecutor(copies) as pool:
        return list(pool.map(one, range(copies)))


def limits_of(load: Load) -> HardwareRates:
    """Rates from `lookout bench part decode` and `lookout bench part engine`.

    Raises:
        LookoutError: one of them failed.
    """
    clip, *others = load.recordings
    if others:
        raise LookoutError("--limits needs a single clip: the decoder's rate depends on it")
    decoding = {"sessions": load.sources, "device": load.device}
    decoded = _figures(["bench", "part", "decode", str(clip)], decoding)
    names = ("labels", "precision", "builder_level", "cache", "max_batch", "device")
    engine = {name: getattr(load, name) for name in names}
    ran = _figures(["bench", "part", "engine", str(load.model or demo_model())], engine)
    return HardwareRates(decoded["rates"][0]["fps"], ran["images_per_s"])


def _accuracy(load: Load, images: Path, annotations: Path) -> Accuracy:
    """COCO AP of the measured engine."""
    names = ("labels", "backend", "precision", "max_batch", "cache", "device")
    options = {name: getattr(load, name) for name in names}
    found = _figures(
        ["evaluate"],
        {
            **options,
            "model": load.model or demo_model(),
            "images": images,
            "annotations": annotations,
            "builder_level": load.builder_level,
        },
    )
    return Accuracy(found["ap"], found["ap50"], found["images"])


def _figures(command: Sequence[str], options: Mapping[str, object]) -> dict[str, Any]:
    """The --json output of a command."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        _command(command, {**options, "json": file})
        figures: dict[str, Any] = json.loads(file.read_text())
        return figures


def _command(command: Sequence[str], options: Mapping[str, object]) -> None:
    """Run a Lookout command. Options None and False are left out; True is a flag, and a list is given value by value.

    Raises:
        LookoutError: it failed; with its last line of output.
    """
    call = [sys.executable, "-m", "daemon", *command]
    for name, row in options.items():
        for value in row if isinstance(row, list) else [row]:
            if value is not None and value is not False:
                call += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = output[-1].removeprefix("lookout: ") if output else f"exit code {done.returncode}"
        raise LookoutError(f"{' '.join(command[:-1] or command)}: {last}")
