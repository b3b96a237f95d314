"""What people use instead of Lookout, over the same recordings, beside the limits of the hardware."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from daemon.bench.apart import limits_of, measured, streams_of
from daemon.bench.load import Load
from daemon.bench.result import Case, Peer, Report, environment_of, load_of
from daemon.errors import LookoutError
from daemon.paths import demo_model

_OURS = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
_SCRIPT = Path(__file__).with_name("ultralytics_predict.py")


@dataclass(frozen=True)
class Ultralytics:
    """How to run it.

    Attributes:
        python: an interpreter that has it.
        model: anything it takes; one that ends in .yaml takes its weights from the load's model.
    """

    python: Path
    model: str = "yolov8n.yaml"


def peers(
    load: Load,
    *,
    repeats: int = 3,
    ultralytics: Ultralytics | None = None,
    on_side: Callable[[str], None] = lambda _: None,
) -> Report:
    """All sides in turns, so that a machine that slows down slows all of them. A side that cannot run says why.

    Raises:
        LookoutError: Lookout itself cannot.
    """
    load = replace(load, paced=False)
    sides: dict[str, Callable[[], list[tuple[str, float]]]] = {
        "limits": lambda: _limits(load),
        "OpenCV + onnxruntime": lambda: [("OpenCV + onnxruntime", _opencv(load))],
    }
    if ultralytics:
        sides["Ultralytics predict"] = lambda: [("Ultralytics predict", _ultralytics(load, ultralytics))]
    rates: dict[str, list[float]] = {}
    refused: dict[str, str] = {} if ultralytics else {"Ultralytics predict": "not asked for: see --ultralytics-python"}
    rounds = []
    for _ in range(repeats):
        rounds.append(streams_of(load))
        on_side("Lookout")
        for name, run in sides.items():
            if name not in refused:
                try:
                    for row, fps in run():
                        rates.setdefault(row, []).append(fps)
                except LookoutError as error:
                    refused[name] = str(error)
            on_side(name)
    found = [Peer(name, _KINDS.get(name, "peer"), fps, _NOTES.get(name, "")) for name, fps in rates.items()]
    found += [Peer(name, _KINDS.get(name, "peer"), [], f"not run: {why}") for name, why in refused.items()]
    return Report("peers", environment_of(load), [Case(load_of(load), rounds)], peers=found)


_KINDS: dict[str, Literal["peer", "limit"]] = {"limits": "limit", "decoder alone": "limit", "engine alone": "limit"}
_NOTES = {
    "decoder alone": "lookout bench decode, as many sessions as sources",
    "engine alone": "lookout bench engine, full batches",
    "OpenCV + onnxruntime": "one loop: VideoCapture of each source in turns, letterbox, inference and NMS on the CPU",
    "Ultralytics predict": "every frame, FP16 where there is a GPU, a batch of all sources",
}


def _limits(load: Load) -> list[tuple[str, float]]:
    alone = limits_of(load)
    return [("decoder alone", alone.decode_fps), ("engine alone", alone.engine_fps)]


def _opencv(load: Load) -> float:
    found = measured(
        "loop",
        [str(load.recording)],
        {"model": load.model, "labels": load.labels, "sources": load.sources, "seconds": load.seconds},
    )
    return float(found["fps"])


def _ultralytics(load: Load, how: Ultralytics) -> float:
    call = [str(how.python), str(_SCRIPT.resolve()), str(load.recording.resolve()), "--sources", str(load.sources)]
    call += ["--seconds", str(load.seconds), "--model", how.model, "--auto"]
    if how.model.endswith(".yaml"):
        call += ["--weights", str((load.model or demo_model()).resolve())]
    # What this process needs is not for another interpreter; and what needs no download is not to look for one.
    surroundings = {name: value for name, value in os.environ.items() if name not in _OURS}
    if how.model.endswith(".yaml"):
        surroundings["YOLO_OFFLINE"] = "1"
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=folder, env=surroundings)
    except OSError as error:
        raise LookoutError(f"{how.python}: {error.strerror}") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise LookoutError(said[-1] if said else f"exit code {done.returncode}")
    return float(json.loads(lines[-1])["fps"])
