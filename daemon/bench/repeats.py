"""Repeated runs, each in a new process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import fields
from pathlib import Path
from time import monotonic
from typing import Any

from daemon.bench.load import Load
from daemon.bench.result import Accuracy, Case, HardwareRates, Report, environment_of, read, settings_of
from daemon.bench.run import Run, run
from daemon.errors import LookoutError
from daemon.progress import Tell
from daemon.redact import Url
from daemon.system.paths import demo_model

_POLL_S = 0.25
_BEGIN_S = 3.0  # that a process takes before it measures, and behind
_ALMOST = 0.99  # of the time that is expected: it may take longer


def repeated(
    load: Load,
    repeats: int = 5,
    *,
    copies: int = 1,
    limits: bool = False,
    labelled: tuple[Path, Path] | None = None,
    frames_out: Path | None = None,
    tell: Tell | None = None,
) -> Report:
    """Run and measure. A single run of a single daemon happens in this process.

    Args:
        copies: concurrent daemons, each with this load.
        limits: measure decoder and engine alone first.
        labelled: photos and annotations, to measure accuracy first.
        frames_out: file to record every frame of the first repeat in.
        tell: called with the repeats that are done, with a share of the present one; of a single run with seconds.

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
    if repeats == copies == 1:
        rounds.append([run(load, frames_out=frames_out, tell=tell)])
        return Report("run", environment, [Case(settings_of(load), rounds, copies)], accuracy=accuracy, limits=alone)
    for number in range(repeats):
        record = None if number else frames_out
        rounds.append(runs_of(load, copies=copies, frames_out=record, tell=_part_of(tell, number, repeats)))
    return Report("run", environment, [Case(settings_of(load), rounds, copies)], accuracy=accuracy, limits=alone)


def _part_of(tell: Tell | None, number: int, repeats: int) -> Tell | None:
    """Tells of one repeat as a part of all."""
    return None if tell is None else lambda done, of: tell(number + (done / of if of else 0.0), repeats)


def runs_of(load: Load, *, copies: int = 1, frames_out: Path | None = None, tell: Tell | None = None) -> list[Run]:
    """Concurrent runs of `lookout bench run --repeats 1`.

    Args:
        tell: called while they run with the share that is done, as far as time says it.

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
            wanted = {**options, "repeats": 1, "frames_out": frames_out, "json": file}
            _command(["bench", "run", *clips], wanted, children)
            return read(file).cases[0].repeats[0][0]

    children = Children()
    pool, began = ThreadPoolExecutor(copies), monotonic()
    expected = load.warm_up + load.seconds + _BEGIN_S
    try:
        running = [pool.submit(one, number) for number in range(copies)]
        while wait(running, _POLL_S).not_done:
            if tell is not None:
                tell(min(monotonic() - began, _ALMOST * expected), expected)
        if tell is not None:
            tell(expected, expected)
        return [each.result() for each in running]
    finally:
        children.kill()
        pool.shutdown()


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


class Children:
    """Processes that are killed together; one that begins later is killed at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[str]] = []
        self._is_over = False

    def add(self, child: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.append(child)
            if self._is_over:
                child.kill()

    def kill(self) -> None:
        with self._lock:
            self._is_over = True
            for child in self._running:
                child.kill()  # nothing where it has ended


def _command(command: Sequence[str], options: Mapping[str, object], children: Children | None = None) -> None:
    """Run a Lookout command. Options None and False are left out; True is a flag, and a list is given value by value.

    Args:
        children: gets the process, for one who must end it.

    Raises:
        LookoutError: it failed; with its last line of output.
    """
    call = [sys.executable, "-m", "daemon", *command]
    for name, row in options.items():
        for value in row if isinstance(row, list) else [row]:
            if value is not None and value is not False:
                call += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        if children is not None:
            children.add(running)
        try:
            out, err = running.communicate()
        except BaseException:
            running.kill()
            raise
    if running.returncode:
        output = (err.strip() or out.strip()).splitlines()
        last = output[-1].removeprefix("lookout: ") if output else f"exit code {running.returncode}"
        raise LookoutError(f"{' '.join(command[:-1] or command)}: {last}")
