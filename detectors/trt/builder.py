"""Builds a plan from an ONNX file with TensorRT's builder, in a child process.

The builder keeps gigabytes of GPU and host memory, ignores signals and may crash, so it does not run in a daemon.
Progress and result come over a pipe as JSON lines, because libraries print to stdout; the plan comes as a file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from detectors.cuda import Device
from detectors.port import DetectorError
from detectors.trt import compat
from detectors.trt.cards import split
from detectors.trt.engine import Build, Built, Progress
from detectors.trt.files import locked, write_whole
from detectors.trt.hooks import make_collector
from detectors.trt.library import load
from detectors.trt.products import backend_of
from detectors.trt.reading import read_model
from detectors.trt.recipe import Recipe

_DIE_WITH_PARENT = 1  # prctl(2): PR_SET_PDEATHSIG


class _BuildRequest(msgspec.Struct, frozen=True):
    """The child's task."""

    onnx: str
    recipe: Recipe
    device: int
    folder: str
    target: str


class _BuildEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the child; one field is set."""

    progress: str = ""
    precision_mode: str = ""
    error: str = ""


def builder(folder: Path, device: int) -> Build:
    """A function that builds plans, with the TensorRT that the recipe names.

    Args:
        folder: of timing caches, which speed up later builds.
        device: number of the GPU.
    """

    def build(path: Path, recipe: Recipe, progress: Progress) -> Built:
        with tempfile.TemporaryDirectory(prefix="lookout-") as scratch:
            target = Path(scratch) / "plan"
            request = _BuildRequest(str(path.resolve()), recipe, device, str(folder.resolve()), str(target))
            last = _listen(request, target.with_name("errors"), progress)
            if last.error:
                raise DetectorError(last.error)
            return Built(target.read_bytes(), last.precision_mode)

    return build


def _listen(request: _BuildRequest, errors: Path, progress: Progress) -> _BuildEvent:
    """Run the child to its end; returns its last event."""
    last = _BuildEvent()
    reading, writing = os.pipe()
    command = [sys.executable, "-m", __spec__.name, msgspec.json.encode(request).decode(), str(writing)]
    with errors.open("wb") as output, open(reading, "rb") as events:
        try:
            child = subprocess.Popen(command, stdout=output, stderr=output, pass_fds=[writing])
        finally:
            os.close(writing)
        with child:
            try:
                for line in events:
                    last = msgspec.json.decode(line, type=_BuildEvent)
                    if last.progress:
                        progress.update(last.progress)
            except BaseException:  # such as KeyboardInterrupt
                child.kill()
                raise
    if child.returncode == 0 and (last.precision_mode or last.error):
        return last
    lines = errors.read_text(errors="replace").strip().splitlines() or ["no output"]
    raise DetectorError(
        f"{request.recipe.builder} ended with {child.returncode} while building {request.onnx}: {lines[-1]}"
    )


# --- the child -------------------------------------------------------------------------------------------


def main() -> None:
    """Run the child."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would wait for the builder to return
    request, pipe = msgspec.json.decode(sys.argv[1], type=_BuildRequest), int(sys.argv[2])

    def send(event: _BuildEvent) -> None:
        os.write(pipe, msgspec.json.encode(event) + b"\n")

    try:
        trt = load(backend_of(request.recipe.builder)).trt
        device = None if request.recipe.portable else Device(request.device)
        built = _build(trt, request, lambda text: send(_BuildEvent(progress=text)))
        if device:
            device.close()
    except DetectorError as error:
        send(_BuildEvent(error=str(error)))
        return
    Path(request.target).write_bytes(built.plan)
    send(_BuildEvent(precision_mode=built.precision_mode))


def _build(trt: Any, request: _BuildRequest, on_progress: Callable[[str], None]) -> Built:
    recipe, errors = request.recipe, list[str]()
    logger = make_collector(trt, errors)
    maker = trt.Builder(logger)
    network = compat.make_network(trt, maker)
    parser = trt.OnnxParser(network, logger)
    in_graph = recipe.precision != "fp32" and compat.is_strongly_typed(trt)
    if reason := read_model(parser, request.onnx, in_graph=in_graph):
        raise DetectorError(f"{recipe.builder} cannot read {request.onnx}: {reason}")
    config = maker.create_builder_config()
    config.builder_optimization_level = recipe.level
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # for `lookout engine show --layers`; costs nothing
    compat.set_architectures(trt, config, split(recipe.architecture))
    compat.use_given_memory(trt, config)
    compat.set_tactics(trt, config)
    compat.share_profiles(trt, config)
    compat.limit_streams(config)
    compat.monitor(trt, config, on_progress)
    precision_mode = compat.set_precision(trt, config, network, recipe.precision)
    if recipe.dynamic or len(recipe.sizes) > 1:
        for size in recipe.sizes:
            config.add_optimization_profile(_profile(maker, network, recipe, size))
    timings = Path(request.folder) / f"timing-{recipe.builder}-{recipe.gpu}.cache".replace(" ", "_")
    times = not compat.is_rtx(trt)  # which times nothing at a build
    if times:
        _load_timings(config, timings)
    plan = maker.build_serialized_network(network, config)
    if plan is None:
        raise DetectorError(f"{recipe.builder} cannot build {request.onnx} for {recipe.card}: {' '.join(errors[-2:])}")
    if times:
        _save_timings(config, timings)
    return Built(bytes(plan), precision_mode)


def _profile(maker: Any, network: Any, recipe: Recipe, size: tuple[int, int]) -> Any:
    """Batches of one input size, from 1 to the largest; tactics are optimised for half of it."""
    width, height = size
    batches = (1, max(1, recipe.max_batch // 2), recipe.max_batch) if recipe.dynamic else (recipe.max_batch,) * 3
    profile = maker.create_optimization_profile()
    for number in range(network.num_inputs):
        entry = network.get_input(number)
        row = tuple(entry.shape)[1:]
        row = (3, height, width) if len(row) == 3 else row
        profile.set_shape(entry.name, *((batch, *row) for batch in batches))
    return profile


def _load_timings(config: Any, path: Path) -> None:
    """Load timings of the same card name and TensorRT version, which is near enough (ignore_mismatch)."""
    timings = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    if timings is None:  # damaged
        os.replace(path, path.with_suffix(".bad"))
        timings = config.create_timing_cache(b"")
    config.set_timing_cache(timings, True)


def _save_timings(config: Any, path: Path) -> None:
    """Merge with timings that other processes saved, and write."""
    timings = config.get_timing_cache()
    with locked(path.with_suffix(".lock")):
        if path.is_file():
            others = config.create_timing_cache(path.read_bytes())
            if others is not None:
                timings.combine(others, True)
        write_whole(path, bytes(timings.serialize()))


if __name__ == "__main__":
    main()
