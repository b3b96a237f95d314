"""Speed of each precision on a GPU: engines alone, by batch; with --layers also times of layers.

    python -m tests.gpu.precisions MODEL.onnx ... --photos DIR --labels coco --resnet50 --cache DIR --out DIR

Float models are built in FP32 and FP16, quantised ones in INT8. --photos quantises each float model with ranges from a
folder of photos, with a scale per tensor (`int8`) and with shared scales (`shared`). --resnet50 does the same with a
random ResNet-50 and noise. A cell is the median of replays of the engine's CUDA graph; tables come last.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import structlog
import tensorrt as trt

from calibration.placement import share_scales
from calibration.quantize import Ranges, load, observe, quantize
from detectors.cuda import Device, Stream
from detectors.layer_times import Layer
from detectors.model import digest_of, quantised
from detectors.trt import compat
from detectors.trt.builder import builder
from detectors.trt.engine import EngineStore
from detectors.trt.hooks import make_profiler
from detectors.trt.layers import inspect, with_times
from detectors.trt.recipe import Recipe
from tests.gpu.ranges import seen_ranges
from tests.gpu.replays import Replay, context_of
from tests.support.resnet import resnet50

_ROUNDS, _ROUND_S = 15, 0.04
_PROFILED = 30
_MOST_PHOTOS = 48


@dataclass(frozen=True)
class BuildTask:
    """An engine to build."""

    path: Path
    precision: compat.Precision
    size: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.path.stem} {self.precision}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--resnet50", action="store_true")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--builder-level", type=int, default=3)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--precision", nargs="+", default=["fp32", "fp16", "int8"])
    parser.add_argument("--jobs", type=int, default=4, help="builds at once")
    parser.add_argument("--layers", action="store_true", help="profile the largest batch")
    parser.add_argument("--build-only", action="store_true")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    args.out.mkdir(parents=True, exist_ok=True)
    files = [*args.models, *(_resnets(args.out) if args.resnet50 else ())]
    for path in args.models if args.photos else ():
        files += _quantised(path, seen_ranges(path, args.photos, args.labels, _MOST_PHOTOS), args.out)
    tasks = [task for path in files for task in _tasks(path)]
    tasks = [task for task in tasks if task.precision in args.precision]
    bench = _Bench(args)
    with ThreadPoolExecutor(args.jobs) as pool:
        built = list(pool.map(bench.build, tasks))
    sys.stdout.write("\n".join(f"{task.name}: {result}" for task, result in zip(tasks, built)) + "\n")
    if args.build_only:
        return 0
    lines = [f"{'ms a batch, images/s':32}" + "".join(f"{size:>18}" for size in args.batches)]
    for task in tasks:
        times = bench.times(task)
        cells = (f"{took * 1e3:.3f} {size / took:.0f}" for size, took in times.items())
        lines.append(f"{task.name:32}" + "".join(f"{cell:>18}" for cell in cells))
        if args.layers:
            bench.profile(task)
    sys.stdout.write("\n".join(["", *lines]) + "\n")
    return 0


def _tasks(path: Path) -> Iterator[BuildTask]:
    model = onnx.load(str(path))
    dims = model.graph.input[0].type.tensor_type.shape.dim
    size = (dims[3].dim_value or 640, dims[2].dim_value or 640)
    integers = quantised(path.read_bytes(), {prop.key: prop.value for prop in model.metadata_props})
    for precision in ("int8",) if integers else ("fp32", "fp16"):
        yield BuildTask(path, precision, size)  # type: ignore[arg-type]


def _resnets(folder: Path) -> Iterator[Path]:
    """A float model, and two quantised ones."""
    path = resnet50(folder / "resnet50.onnx")
    yield path
    model = onnx.load(str(path))
    noise = np.random.default_rng(0).standard_normal((4, 3, 224, 224), np.float32)
    yield from _quantised(path, observe(model, [noise]).ranges("minmax"), folder)


def _quantised(path: Path, ranges: Ranges, folder: Path) -> Iterator[Path]:
    """Quantised files with both placements."""
    made = quantize(load(path), ranges)
    for name, placed in (("int8", made), ("shared", share_scales(made))):
        file = folder / f"{path.stem}.{name}.onnx"
        onnx.save(placed, str(file))
        yield file


class _Errors(trt.ILogger):  # type: ignore[misc]
    """Collects TensorRT's errors and warnings."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)

    def log(self, severity: Any, text: str) -> None:
        if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
            sys.stdout.write(f"{text}\n")


class _Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._device = Device()
        self._logger = _Errors()
        self._runtime = trt.Runtime(self._logger)
        self._store = EngineStore(args.cache / "engines", heartbeat_s=1e6)

    def build(self, task: BuildTask) -> str:
        begun = perf_counter()
        self._engine(task)
        return f"{perf_counter() - begun:.0f} s"

    def times(self, task: BuildTask) -> dict[int, float]:
        """Seconds per batch, by size."""
        engine = self._engine(task)
        with ExitStack() as undo:
            return {size: Replay(engine, size, undo).seconds(_ROUNDS, _ROUND_S) for size in self._args.batches}

    def profile(self, task: BuildTask) -> None:
        """Write the times of the largest batch's layers to a file, with the raw report."""
        engine = self._engine(task)
        with ExitStack() as undo:
            stream = undo.enter_context(closing(Stream()))
            context = context_of(engine, self._args.batches[-1], stream, undo)
            times: dict[str, list[float]] = {}
            context.profiler = make_profiler(trt, times)
            for _ in range(_PROFILED):
                context.execute_async_v3(stream.handle)
                stream.synchronize()
            layers = with_times(inspect(trt, engine, context), {name: median(row) for name, row in times.items()})
            inspector = engine.create_engine_inspector()
            inspector.execution_context = context
            raw = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
        file = self._args.out / f"{task.name.replace(' ', '-')}.layers"
        file.with_suffix(".raw.json").write_text(raw)
        file.with_suffix(".layers.json").write_text(json.dumps([_plain(layer) for layer in layers], indent=1))
        sys.stdout.write("\n".join([f"\n{task.name}", *_shares(layers)]) + "\n")

    def _engine(self, task: BuildTask) -> Any:
        self._device.make_current()
        recipe = Recipe(
            onnx_sha256=digest_of(task.path),
            builder=f"TensorRT {trt.__version__}",
            gpu=self._device.name,
            architecture=self._device.architecture,
            precision=task.precision,
            max_batch=self._args.max_batch,
            input_size=task.size,
            level=self._args.builder_level,
        )
        build = builder(self._store.folder, 0)
        return self._store.get_or_build(task.path, recipe, build, self._runtime.deserialize_cuda_engine)[0]


def _plain(layer: Layer) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in layer.__struct_fields__}


def _shares(layers: Sequence[Layer]) -> list[str]:
    """Milliseconds by kind of kernel."""
    sums: dict[str, tuple[int, float]] = {}
    for layer in layers:
        kind = f"{'unfused Q/DQ' if layer.unfused else layer.kind}, {layer.precision} to {layer.output}"
        count, took = sums.get(kind, (0, 0.0))
        sums[kind] = count + 1, took + (layer.milliseconds or 0.0)
    rows = sorted(sums.items(), key=lambda row: -row[1][1])
    return [f"  {kind:60} {count:4} kernels {took:8.3f} ms" for kind, (count, took) in rows]


if __name__ == "__main__":
    sys.exit(main())
