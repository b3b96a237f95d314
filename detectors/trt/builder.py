"""From an ONNX file to a plan, by TensorRT's builder, in a process of its own.

The builder keeps gigabytes of the process it ran in, on the GPU and off it, does not hear signals, and may crash: none
of that is to happen to a daemon. What is said on the way, and the end, come over a pipe of their own, a line of JSON
each, because libraries print; the plan comes as a file.
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
import onnx
import tensorrt as trt

from detectors.cuda import Device
from detectors.port import DetectorError
from detectors.trt import compat
from detectors.trt.engine import Build, Built, Progress, locked, write_whole
from detectors.trt.recipe import Recipe

_DIE_WITH_PARENT = 1  # prctl(2): PR_SET_PDEATHSIG


class _Order(msgspec.Struct, frozen=True):
    """What the child is to build."""

    onnx: str
    recipe: Recipe
    device: int
    folder: str
    target: str


class _Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the child says: one of these."""

    at: str = ""
    road: str = ""
    error: str = ""


def builder(folder: Path, device: int) -> Build:
    """A function that builds.

    Args:
        folder: where timing caches are kept: what one build measured, the next need not measure again.
        device: which GPU.
    """

    def build(path: Path, recipe: Recipe, progress: Progress) -> Built:
        with tempfile.TemporaryDirectory(prefix="lookout-") as scratch:
            target = Path(scratch) / "plan"
            order = _Order(str(path.resolve()), recipe, device, str(folder.resolve()), str(target))
            last = _listen(order, target.with_name("errors"), progress)
            if last.error:
                raise DetectorError(last.error)
            return Built(target.read_bytes(), last.road)

    return build


def _listen(order: _Order, errors: Path, progress: Progress) -> _Word:
    """Run the child to its end; its last word."""
    last = _Word()
    reading, writing = os.pipe()
    command = [sys.executable, "-m", __spec__.name, msgspec.json.encode(order).decode(), str(writing)]
    with errors.open("wb") as said, open(reading, "rb") as words:
        try:
            child = subprocess.Popen(command, stdout=said, stderr=said, pass_fds=[writing])
        finally:
            os.close(writing)
        with child:
            try:
                for line in words:
                    last = msgspec.json.decode(line, type=_Word)
                    if last.at:
                        progress.say(last.at)
            except BaseException:  # KeyboardInterrupt above all
                child.kill()
                raise
    if child.returncode == 0 and (last.road or last.error):
        return last
    lines = errors.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
    raise DetectorError(
        f"{order.recipe.builder} ended with {child.returncode} while building {order.onnx}: {lines[-1]}"
    )


# --- the child -------------------------------------------------------------------------------------------


class _Logger(trt.ILogger):  # type: ignore[misc]
    """Keeps what TensorRT calls an error: it is told when the build fails, for some builds that go well have them."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.errors: list[str] = []

    def log(self, severity: Any, text: str) -> None:
        if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
            self.errors.append(text)


def main() -> None:
    """The child."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler waits until the builder comes back
    order, said = msgspec.json.decode(sys.argv[1], type=_Order), int(sys.argv[2])

    def say(word: _Word) -> None:
        os.write(said, msgspec.json.encode(word) + b"\n")

    try:
        device = Device(order.device)
        built = _build(order, lambda text: say(_Word(at=text)))
        device.close()
    except DetectorError as error:
        say(_Word(error=str(error)))
        return
    Path(order.target).write_bytes(built.plan)
    say(_Word(road=built.road))


def _build(order: _Order, on_progress: Callable[[str], None]) -> Built:
    recipe, logger = order.recipe, _Logger()
    maker = trt.Builder(logger)
    network = compat.make_network(trt, maker)
    parser = trt.OnnxParser(network, logger)
    if not _parse(parser, order.onnx, in_graph=recipe.precision != "fp32" and compat.is_strongly_typed(trt)):
        words = "; ".join(parser.get_error(number).desc() for number in range(parser.num_errors))
        raise DetectorError(f"{recipe.builder} cannot read {order.onnx}: {words}")
    config = maker.create_builder_config()
    config.builder_optimization_level = recipe.level
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # for `lookout engine show --layers`; costs nothing
    compat.set_tactics(trt, config)
    compat.share_profiles(trt, config)
    compat.limit_streams(config)
    compat.watch(trt, config, on_progress)
    road = compat.set_precision(trt, config, network, recipe.precision)
    if recipe.dynamic:
        config.add_optimization_profile(_profile(maker, network.get_input(0).name, recipe))
    timings = Path(order.folder) / f"timing-{recipe.builder}-{recipe.gpu}.cache".replace(" ", "_")
    _load_timings(config, timings)
    plan = maker.build_serialized_network(network, config)
    if plan is None:
        raise DetectorError(
            f"{recipe.builder} cannot build {order.onnx} for {recipe.gpu}: {' '.join(logger.errors[-2:])}"
        )
    _keep_timings(config, timings)
    return Built(bytes(plan), road)


def _parse(parser: Any, path: str, *, in_graph: bool) -> bool:
    """The file, with outputs in FP32, and in FP16 where its graph is to say so."""
    from detectors.half import to_half, with_float_outputs

    model = with_float_outputs(onnx.load(path))
    return bool(parser.parse((to_half(model) if in_graph else model).SerializeToString()))


def _profile(maker: Any, name: str, recipe: Recipe) -> Any:
    """Batches from 1 to the largest; tactics are chosen for half of it."""
    width, height = recipe.input_size
    profile = maker.create_optimization_profile()
    shapes = [(batch, 3, height, width) for batch in (1, max(1, recipe.max_batch // 2), recipe.max_batch)]
    profile.set_shape(name, *shapes)
    return profile


def _load_timings(config: Any, path: Path) -> None:
    """Another card of the same name and TensorRT is near enough, which is what ignore_mismatch means: its name is the
    file's."""
    timings = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    if timings is None:  # damaged
        os.replace(path, path.with_suffix(".bad"))
        timings = config.create_timing_cache(b"")
    config.set_timing_cache(timings, True)


def _keep_timings(config: Any, path: Path) -> None:
    """With what another process has put there meanwhile."""
    timings = config.get_timing_cache()
    with locked(path.with_suffix(".lock")):
        if path.is_file():
            others = config.create_timing_cache(path.read_bytes())
            if others is not None:
                timings.combine(others, True)
        write_whole(path, bytes(timings.serialize()))


if __name__ == "__main__":
    main()
