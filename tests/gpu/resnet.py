"""Classifiers in FP32, FP16 and INT8: speed by batch, and agreement with the FP32 file, beside other runtimes.

    python -m tests.gpu.resnet --out DIR [--builder-level 3] [--photos FOLDER] [MODEL.onnx ...]

Without MODEL it makes a ResNet-18 and a ResNet-50 with random weights. One engine with a dynamic batch runs all batch
sizes. INT8 has ranges of minimum and maximum over the first pictures, and the others are compared: photos of a folder,
or drawn ones. A row for each precision, with a cell for each batch size: images/s when batches follow each other, and
the p50 of one batch from its launch to its end, both with tensors on the GPU. "same" is the share of pictures whose top
class is that of onnxruntime in FP32 on the CPU; "off" is the largest difference of that class's probability. ONNX
Runtime runs on CUDA if it has that provider, PyTorch if it is installed with torchvision; they are named if not. The
table is also in resnet.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import structlog
from onnx import numpy_helper

from calibration.quantize import load, observe, quantize
from detectors.detections import Detections
from detectors.ort.detector import OrtDetector
from detectors.port import Detector, HostImage, Options, PostprocessParams, Precision
from detectors.trt.detector import TrtDetector
from tests.bench.peers.program import NotRunError, require_provider
from tests.gpu.replays import Replay
from tests.support.pictures import picture
from tests.support.resnet import resnet18, resnet50

_SIDE = 256  # pictures of this size are cropped to 224 without resampling, so that all see the same
_DRAWN, _CALIBRATING = 200, 48
_ROUNDS, _ROUND_S, _SINGLE = 9, 0.05, 50
_MAKERS = {"resnet18": resnet18, "resnet50": resnet50}
_PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")


@dataclass
class Row:
    """One runtime and precision.

    Attributes:
        rates: images/s, by batch.
        latencies: p50, ms, by batch.
        same: share of pictures with the top class of FP32; None if not compared.
        off: largest difference of that class's probability.
        note: why there are no figures, or a remark.
    """

    model: str
    runtime: str
    rates: dict[int, float] = field(default_factory=dict)
    latencies: dict[int, float] = field(default_factory=dict)
    same: float | None = None
    off: float | None = None
    note: str = ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, help="of engines; default: OUT/cache")
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--builder-level", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--precision", nargs="+", default=list(_PRECISIONS), choices=_PRECISIONS)
    parser.add_argument("--make", nargs="+", default=list(_MAKERS), choices=list(_MAKERS), help="without MODEL")
    parser.add_argument("--quick", action="store_true", help="few repetitions, for a trial without a GPU")
    args = parser.parse_args()
    args.cache = args.cache or args.out / "cache"
    args.out.mkdir(parents=True, exist_ok=True)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    images = list(_pictures(args.photos))[: 60 if args.quick else None]
    rows: list[Row] = []
    for path in args.models or _made(args.out, args.make, images):
        for row in _Comparison(path, images, args).rows():
            rows.append(row)
            _write(f"{_line(row, args.batches)}\n")
    (args.out / "resnet.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    _write("\n".join(["", _header(args.batches), *(_line(row, args.batches) for row in rows)]) + "\n")
    return int(any(row.runtime.startswith("Lookout") and not row.rates for row in rows))


class _Comparison:
    """One model: its results in FP32 on the CPU, and the rows."""

    def __init__(self, path: Path, images: Sequence[HostImage], args: argparse.Namespace) -> None:
        self._path, self._args = path, args
        self._calibrating, self._compared = images[:_CALIBRATING], images[_CALIBRATING:]
        self._options = Options(
            path,
            head="classify",
            wanted=PostprocessParams(0.0),
            max_batch=max(args.batches),
            builder_level=args.builder_level,
            cache=args.cache,
        )
        with closing(OrtDetector(replace(self._options, max_batch=8))) as detector:
            self._expected = _results(detector, self._compared)
            self._shape = (3, *detector.info.input_size[::-1])
        found = {int(one.class_id[0]) for one in self._expected}
        _write(f"{path.stem}: {len(self._compared)} pictures, {len(found)} top classes in FP32\n")

    def rows(self) -> Iterator[Row]:
        for precision in self._args.precision:
            yield self._guarded(f"Lookout, TensorRT {precision}", partial(self._engine, precision))
        yield self._guarded("ONNX Runtime", self._onnxruntime)
        for half in (False, True):
            yield self._guarded(f"PyTorch {'fp16' if half else 'fp32'}", partial(self._torch, half))
        if find_spec("torch_tensorrt") is None:
            yield Row(self._path.stem, "Torch-TensorRT", note="not installed")

    def _guarded(self, runtime: str, fill: Callable[[Row], None]) -> Row:
        row, began = Row(self._path.stem, runtime), perf_counter()
        try:
            fill(row)
        except Exception:  # noqa: BLE001 - the other rows are measured
            traceback.print_exc()
            row.note = f"failed: {traceback.format_exc().strip().splitlines()[-1][:160]}"
        row.note = f"{row.note} ({perf_counter() - began:.0f} s)".strip()
        return row

    def _engine(self, precision: Precision, row: Row) -> None:
        options = replace(self._options, precision=precision)
        if precision == "int8":
            options = replace(options, path=self._quantised())
        with closing(TrtDetector(options)) as detector:
            row.note = "dynamic batch" if detector.dynamic else "fixed batch"
            row.same, row.off = _agreement(self._expected, _results(detector, self._compared))
            rounds, round_s, single = (1, 0.0, 3) if self._args.quick else (_ROUNDS, _ROUND_S, _SINGLE)
            detector.device.make_current()
            for size in self._args.batches:
                with ExitStack() as undo:
                    replay = Replay(detector.engine, size, undo)
                    row.rates[size] = size / replay.seconds(rounds, round_s)
                    row.latencies[size] = replay.latency(single) * 1e3

    def _quantised(self) -> Path:
        """INT8 by minimum and maximum over the first pictures."""
        path: Path = self._args.out / f"{self._path.stem}.int8.onnx"
        with closing(OrtDetector(replace(self._options, max_batch=1))) as detector, closing(detector.lane()) as lane:
            model = load(self._path)
            inputs = (lane.preprocess([image]).copy() for image in self._calibrating)
            onnx.save(quantize(model, observe(model, inputs).ranges("minmax")), str(path))
        return path

    def _onnxruntime(self, row: Row) -> None:
        on_gpu = "CUDAExecutionProvider" in ort.get_available_providers()
        where = "CUDA" if on_gpu else "CPU"
        row.runtime = f"ONNX Runtime {ort.__version__} fp32, {where}"
        row.note = "" if on_gpu else f"no CUDA provider is installed; {len(os.sched_getaffinity(0))} cores"
        session = ort.InferenceSession(str(self._path), providers=[f"{where}ExecutionProvider"])
        try:
            require_provider(session, f"{where}ExecutionProvider")
        except NotRunError as error:
            row.note = str(error)
            return
        name, (output,) = session.get_inputs()[0].name, session.get_outputs()
        for size in self._args.batches:
            binding = session.io_binding()
            zeros = np.zeros((size, *self._shape), np.float32)
            device = where.lower()
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(zeros, device, 0))
            binding.bind_output(output.name, device, 0)
            self._time(row, size, partial(session.run_with_iobinding, binding), lambda: None)

    def _torch(self, half: bool, row: Row) -> None:
        if not all(map(find_spec, ("torch", "torchvision"))):
            row.note = "torch and torchvision are not installed"
            return
        import torch
        import torchvision

        if self._path.stem not in ("resnet18", "resnet50"):
            row.note = "not a model of torchvision"
            return
        on_gpu = torch.cuda.is_available()
        device = torch.device("cuda" if on_gpu else "cpu")
        kind = torch.float16 if half else torch.float32
        row.runtime = f"PyTorch {torch.__version__} {'fp16' if half else 'fp32'}, {device.type}"
        model = getattr(torchvision.models, self._path.stem)(weights=None).eval().to(device, kind)
        wait = torch.cuda.synchronize if on_gpu else (lambda: None)
        with torch.inference_mode():
            for size in self._args.batches:
                zeros = torch.zeros((size, *self._shape), dtype=kind, device=device)
                self._time(row, size, partial(model, zeros), wait)

    def _time(self, row: Row, size: int, run: Callable[[], Any], wait: Callable[[], Any]) -> None:
        """Rate and p50 of a batch of other runtimes."""
        rounds, round_s, single = (1, 0.0, 1) if self._args.quick else (_ROUNDS, _ROUND_S, _SINGLE)

        def seconds(times: int) -> float:
            began = perf_counter()
            for _ in range(times):
                run()
            wait()
            return (perf_counter() - began) / times

        seconds(1 if self._args.quick else 5)
        times = max(1, round(round_s / seconds(1)))
        row.rates[size] = size / median(seconds(times) for _ in range(rounds))
        row.latencies[size] = (
            median(seconds(1) for _ in range(min(single, max(3, round(3 * row.rates[size] / size))))) * 1e3
        )


def _results(detector: Detector, images: Sequence[HostImage]) -> list[Detections]:
    found: list[Detections] = []
    step = detector.info.max_batch
    with closing(detector.lane()) as lane:
        for begin in range(0, len(images), step):
            found += lane.detect(images[begin : begin + step])[0]
    return found


def _agreement(expected: Sequence[Detections], found: Sequence[Detections]) -> tuple[float, float]:
    """Share of pictures with the same top class, and the largest difference of its probability."""
    same = [int(one.class_id[0]) == int(other.class_id[0]) for one, other in zip(expected, found)]
    off = []
    for one, other in zip(expected, found):
        place = np.flatnonzero(other.class_id == one.class_id[0])
        off.append(abs(float(one.confidence[0]) - (float(other.confidence[place[0]]) if len(place) else 0.0)))
    return sum(same) / len(same), max(off)


def _pictures(folder: Path | None) -> Iterator[HostImage]:
    """Photos, or drawn pictures; square."""
    if folder is None:
        drawn: Iterator[npt.NDArray[Any]] = (picture(number) for number in range(_DRAWN + _CALIBRATING))
    else:
        drawn = (one for path in sorted(folder.iterdir()) if (one := cv2.imread(str(path))) is not None)
    for pixels in drawn:
        yield HostImage(
            np.ascontiguousarray(cv2.resize(pixels, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA), np.uint8)
        )


def _made(folder: Path, names: Sequence[str], images: Sequence[HostImage]) -> Iterator[Path]:
    """Random weights, with a bias that takes the mean of the scores away: otherwise one class is the top of all."""
    for name in names:
        path = _MAKERS[name](folder / f"{name}.onnx")
        model = onnx.load(str(path))
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        options = Options(path, head="classify", max_batch=1)
        with closing(OrtDetector(options)) as detector, closing(detector.lane()) as lane:
            inputs = [lane.preprocess([image]).copy() for image in images[:_CALIBRATING]]
        means = np.mean([session.run(None, {"images": one})[0][0] for one in inputs], axis=0, dtype=np.float32)
        model.graph.initializer.append(numpy_helper.from_array(-means, "scores_bias"))
        (scores,) = [node for node in model.graph.node if node.op_type == "Gemm"]
        scores.input.append("scores_bias")
        onnx.save(model, str(path))
        yield path


def _header(batches: Sequence[int]) -> str:
    cells = "".join(f"{f'batch {size}: images/s, p50 ms':>32}" for size in batches)
    return f"{'':48}{cells}{'same':>8}{'off':>8}"


def _line(row: Row, batches: Sequence[int]) -> str:
    cells = "".join(
        f"{f'{row.rates[size]:.0f}, {row.latencies[size]:.3f}' if size in row.rates else '-':>32}" for size in batches
    )
    same = "-" if row.same is None else f"{row.same:.4f}"
    off = "-" if row.off is None else f"{row.off:.4f}"
    return f"{f'{row.model}, {row.runtime}':48}{cells}{same:>8}{off:>8}  {row.note}"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
