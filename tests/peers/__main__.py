"""Lookout interleaved with other programs over the same recording, and with limits of the hardware.

    python -m tests.peers CLIP --model yolov8n.onnx --sources 28 --ultralytics-python PYTHON --roboflow-python PYTHON

Each program runs as its users run it, with batches where it supports them. Every row says how, or why it did not run.
A report goes to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from daemon.bench.load import Load, check_playable
from daemon.bench.pages import page_of, save
from daemon.bench.repeats import limits_of, runs_of
from daemon.bench.result import Case, Peer, Report, environment_of, settings_of
from daemon.bench.run import Run
from daemon.commands.report.tables import print_line, show
from daemon.errors import LookoutError
from daemon.system.paths import demo_model

Rates = list[tuple[str, float, str]]
_OURS = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_LIMITS = "limits"


def sides_of(
    load: Load, ultralytics: Path | None = None, roboflow: Path | None = None, model: str = "yolov8n.yaml"
) -> dict[str, Callable[[], Rates]]:
    """Programs to interleave with Lookout, by name.

    Args:
        ultralytics, roboflow: interpreters that have these packages.
        model: Ultralytics' name of the model.
    """
    (clip,), weights = load.recordings, (load.model or demo_model()).resolve()
    common = [str(clip.resolve()), "--sources", str(load.sources), "--seconds", str(load.seconds)]

    def plain() -> Rates:
        labels = ["--labels", load.labels] if load.labels else []
        command = [sys.executable, "-m", "tests.peers.plain_loop", *common, "--model", str(weights), *labels]
        return [("OpenCV + onnxruntime", *_rate(command, cwd=_ROOT))]

    def predict(runtime: str, name: str) -> Rates:
        if ultralytics is None:
            raise LookoutError("not asked for: see --ultralytics-python")
        own = ["--runtime", runtime, "--model", model]
        if model.endswith(".yaml"):
            own += ["--weights", str(weights)]
        return [(name, *_foreign(ultralytics, "ultralytics_predict.py", [*common, *own]))]

    def pipeline() -> Rates:
        if roboflow is None:
            raise LookoutError("not asked for: see --roboflow-python")
        found = _foreign(roboflow, "roboflow_pipeline.py", [*common, "--weights", str(weights)])
        return [("Roboflow inference", *found)]

    def limits() -> Rates:
        alone = limits_of(load)
        return [
            ("decoder alone", alone.decode_fps, "lookout bench part decode, as many sessions as sources"),
            ("engine alone", alone.engine_fps, "lookout bench part engine, full batches"),
        ]

    return {
        _LIMITS: limits,
        "plain": plain,
        "ultralytics-engine": lambda: predict("engine", "Ultralytics, its own TensorRT engine"),
        "ultralytics-onnx": lambda: predict("onnx", "Ultralytics, onnxruntime"),
        "ultralytics-torch": lambda: predict("torch", "Ultralytics, PyTorch"),
        "roboflow": pipeline,
    }


def in_turns(
    load: Load,
    sides: dict[str, Callable[[], Rates]],
    repeats: int,
    on_side: Callable[[str], None] = lambda _: None,
    measure: Callable[[Load], list[Run]] = runs_of,
) -> Report:
    """Run all programs interleaved, so that a slower machine slows all of them. A program that cannot run gets a note.

    Raises:
        LookoutError: Lookout itself cannot run.
    """
    rates: dict[str, list[float]] = {}
    notes: dict[str, tuple[bool, str]] = {}  # by row: whether it is a limit, and how it ran
    refused: dict[str, str] = {}
    rounds = []
    for _ in range(repeats):
        rounds.append(measure(load))
        on_side("Lookout")
        for name, run in sides.items():
            try:
                for row, fps, how in run() if name not in refused else ():
                    rates.setdefault(row, []).append(fps)
                    notes[row] = name == _LIMITS, how
            except LookoutError as error:
                refused[name] = f"not run: {error}"
            on_side(name)
    found = [Peer(row, "limit" if notes[row][0] else "peer", fps, notes[row][1]) for row, fps in rates.items()]
    found += [Peer(name, "limit" if name == _LIMITS else "peer", [], why) for name, why in refused.items()]
    return Report("run", environment_of(load), [Case(settings_of(load), rounds)], peers=found)


def _foreign(python: Path, script: str, arguments: Sequence[str]) -> tuple[float, str]:
    """Run a script in another interpreter, without this process's environment, and without downloads."""
    environment = {name: value for name, value in os.environ.items() if name not in _OURS}
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), str(_HERE / script), *arguments]
        return _rate(command, cwd=Path(folder), environment={**environment, "YOLO_OFFLINE": "1"})


def _rate(command: Sequence[str], cwd: Path, environment: dict[str, str] | None = None) -> tuple[float, str]:
    """Frames per second, and how the program ran, from the last line of a script.

    Raises:
        LookoutError: it failed; with its last line of output.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    except OSError as error:
        raise LookoutError(f"{command[0]}: {error.strerror}") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last_line = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise LookoutError(last_line[-1] if last_line else f"exit code {done.returncode}")
    found = json.loads(lines[-1])
    return float(found["fps"]), str(found["how"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--sources", type=int, default=28)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--builder-level", type=int, default=3)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--ultralytics-python", type=Path, help="An interpreter that has ultralytics.")
    parser.add_argument("--ultralytics-model", default="yolov8n.yaml", help="Its own name of the model.")
    parser.add_argument("--roboflow-python", type=Path, help="An interpreter that has inference.")
    parser.add_argument("--only", nargs="+", metavar="SIDE", help="Of those that the report names.")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    args = parser.parse_args()
    load = Load(
        (args.clip,), args.sources, seconds=args.seconds, model=args.model, labels=args.labels, cache=args.cache,
        builder_level=args.builder_level, backend=args.backend, lanes=args.lanes, max_batch=args.max_batch,
    )  # fmt: skip
    try:
        check_playable(load)
        sides = sides_of(load, args.ultralytics_python, args.roboflow_python, args.ultralytics_model)
        if unknown := set(args.only or ()) - set(sides):
            parser.error(f"--only {sorted(unknown)[0]}: there are {', '.join(sides)}")
        chosen = {name: side for name, side in sides.items() if not args.only or name in args.only}
        report = in_turns(load, chosen, args.repeats, on_side=print_line)
    except LookoutError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    written = save(report, args.out)
    show(page_of(report))
    for path in written:
        print_line(str(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
