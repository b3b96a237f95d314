"""The kernels on a real GPU: the checks of tests/support/kernels.py, reproducibility, and times.

python -m tests.gpu.kernels            # all of it, a table last
compute-sanitizer --tool memcheck python -m tests.gpu.kernels --short
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from detectors.cuda import Device, DeviceBuffer, Event, Module, PinnedBuffer, Stream
from detectors.detections import Detections
from detectors.heads.layout import ModelFacts
from detectors.heads.recognise import recognise
from detectors.letterbox import IMAGENET, InputSpec, fit
from detectors.nvrtc import compile_cubin
from detectors.port import DeviceImage, PostprocessParams
from detectors.trt import kernels
from tests.support.kernels import (
    CASES,
    ONES,
    Image,
    Nv12,
    Task,
    check_bgr,
    check_implausible,
    check_nv12,
    check_postprocess,
    check_shrunk_nv12,
    results_of,
    to_detections,
)
from tests.support.raw_outputs import KERNELS, Kind, random_outputs

_REPEATS = 200


class GpuRunner:
    """Uploads and downloads data at each call: for correctness, not speed."""

    def __init__(self, device: Device, stack: ExitStack) -> None:
        self._stream = Stream()
        stack.callback(self._stream.close)
        cache = Path.home() / ".cache" / "lookout" / "kernels"
        self.modules = [Module(compile_cubin(source, device.architecture, cache)) for source in kernels.SOURCES]
        for module in self.modules:
            stack.callback(module.close)

    def preprocess(self, images: Sequence[Image], spec: InputSpec, *, half: bool = False) -> npt.NDArray[Any]:
        with ExitStack() as stack:
            pictures = [self._picture(image, spec, stack) for image in images]
            table = self.upload(np.array(pictures, dtype=kernels.PICTURE), stack)
            out = np.empty((len(images), 3, spec.height, spec.width), np.float16 if half else np.float32)
            target = self.buffer(out.nbytes, stack)
            self.launch_preprocess(self._stream, table, target, spec, len(images), half=half)
            target.download(out, self._stream)
            self._stream.synchronize()
            return out

    def launch_preprocess(
        self, stream: Stream, table: DeviceBuffer, target: DeviceBuffer, spec: InputSpec, batch: int, *, half: bool
    ) -> None:
        grid, block = kernels.preprocess_grid(spec, batch)
        pointers = (np.uint64(table.pointer), np.uint64(target.pointer))
        name = "preprocess_f16" if half else "preprocess_f32"
        self.modules[0].launch(name, grid, block, stream, (*pointers, *kernels.preprocess_constants(spec)))

    def to_bgr(self, picture: Nv12) -> npt.NDArray[np.uint8]:
        width, height = picture.size
        with ExitStack() as stack:
            described = np.array([self._picture(picture, InputSpec(width, height), stack)], dtype=kernels.PICTURE)
            out = np.empty((height, width, 3), np.uint8)
            target = self.buffer(out.nbytes, stack)
            grid = kernels.picture_grid(width, height)
            self.modules[0].launch("to_bgr", *grid, self._stream, (described, np.uint64(target.pointer)))
            target.download(out, self._stream)
            self._stream.synchronize()
            return out

    def postprocess(self, task: Task) -> list[Detections]:
        with ExitStack() as stack:
            run, found = self.prepare_postprocess(task, stack)
            run(self._stream)
            self._stream.synchronize()
            return to_detections(task, {name: array.copy() for name, array in found.items()})

    def prepare_postprocess(
        self, task: Task, stack: ExitStack
    ) -> tuple[Callable[[Stream], None], dict[str, npt.NDArray[Any]]]:
        """A function that enqueues the kernels, and the fields of RESULTS in mapped host memory."""
        batch = len(task.boxes)
        scratch = {name: self.buffer(batch * size, stack) for name, size in task.scratch.items()}
        counts = scratch["counts"] = self.buffer(4 * batch, stack)
        found, ends = self._results(task, stack)
        raw = {name: self.upload(array, stack).pointer for name, array in task.raw.items()}
        output = task.output(raw, **{name: buffer.pointer for name, buffer in scratch.items()})
        limits, places = task.limits, self.upload(kernels.placements(task.boxes), stack)
        results = kernels.struct(kernels.RESULTS, **ends)
        source, name = task.kernels
        module = self.modules[kernels.SOURCES.index(source)]

        def run(stream: Stream) -> None:
            counts.clear(stream)
            collect, select = kernels.collect_grid(task.rows, batch), kernels.select_grid(batch)
            module.launch(f"collect_{name}", *collect, stream, (output, limits))
            module.launch(f"select_{name}", *select, stream, (output, limits, np.uint64(places.pointer), results))
            if task.head.task == "segment":
                grid = kernels.masks_grid(task.wanted.max_detections, batch)
                module.launch("masks", *grid, stream, (output, limits, results))

        return run, found

    def _results(self, task: Task, stack: ExitStack) -> tuple[dict[str, npt.NDArray[Any]], dict[str, int]]:
        """The fields of RESULTS, and their addresses."""
        arrays, ends = {}, {}
        for name, (shape, kind) in results_of(task).items():
            pinned = PinnedBuffer(int(np.prod(shape)) * np.dtype(kind).itemsize)
            stack.callback(pinned.close)
            arrays[name], ends[name] = pinned.view(shape, kind), pinned.pointer
        return arrays, ends

    def _picture(self, image: Image, spec: InputSpec, stack: ExitStack) -> tuple[float, ...]:
        if isinstance(image, Nv12):
            pitch = image.luma.strides[0]
            luma, chroma = (self.upload(_rows(plane, pitch), stack).pointer for plane in (image.luma, image.chroma))
            return kernels.nv12_picture(image.at(luma, chroma, pitch), fit(*image.size, spec))
        pointer = self.upload(image, stack).pointer
        return kernels.bgr_picture(pointer, image.strides[0], fit(image.shape[1], image.shape[0], spec))

    def upload(self, array: npt.NDArray[Any], stack: ExitStack) -> DeviceBuffer:
        buffer = self.buffer(array.nbytes, stack)
        buffer.upload(array, self._stream)
        self._stream.synchronize()
        return buffer

    def buffer(self, size: int, stack: ExitStack) -> DeviceBuffer:
        buffer = DeviceBuffer(size)
        stack.callback(buffer.close)
        return buffer


def _rows(plane: npt.NDArray[np.uint8], pitch: int) -> npt.NDArray[np.uint8]:
    """A plane including its padding."""
    rows = np.zeros((len(plane), pitch), np.uint8)
    rows[:, : plane.shape[1]] = plane
    return rows


def main() -> int:
    short = "--short" in sys.argv
    lines: list[str] = []
    with ExitStack() as stack:
        device = Device()
        stack.callback(device.close)
        runner = GpuRunner(device, stack)
        lines.append(f"{device.name}, {device.architecture}")
        for half in (False, True):
            worst = max(check_bgr(runner, spec, half=half) for spec in _specs())
            assert worst < (0.15 if half else 0.05), worst
            lines.append(f"preprocess BGR {'fp16' if half else 'fp32'}: within {worst:.4f} grey levels of letterbox.py")
        for bt709 in (False, True):
            worst = max(
                check_nv12(runner, bt709=bt709, full_range=full, turns=turns)
                for full in (False, True)
                for turns in range(4)
            )
            assert worst < 0.05, worst
            lines.append(f"preprocess NV12 {'BT.709' if bt709 else 'BT.601'}: within {worst:.2f} grey levels")
        worst = max(check_shrunk_nv12(runner, turns) for turns in range(4))
        assert worst < 0.05, worst
        lines.append(f"preprocess NV12 that shrinks: within {worst:.3f} grey levels")
        check_implausible(runner)
        for head in KERNELS:
            seeds = range(1 if short else 5)
            cases = [case for name, case in CASES if name == head]
            boxes = sum(check_postprocess(runner, head, w, seed, **of) for w, of in cases for seed in seeds)
            lines.append(f"postprocess {head}: {boxes} boxes as detectors/heads gives them, in its order")
        if not short:
            lines += _the_same_every_time(runner, stack) + _times(runner)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _specs() -> tuple[InputSpec, ...]:
    return (
        InputSpec(320, 320),
        InputSpec(160, 96),
        InputSpec(416, 416, fit="corner", rgb=False, scale=ONES),
        InputSpec(128, 96, fit="stretch", **IMAGENET),
        InputSpec(96, 112, fit="cover", crop=0.875, **IMAGENET),
    )


def _the_same_every_time(runner: GpuRunner, stack: ExitStack) -> list[str]:
    """Replay one batch as a graph: results are bit-identical although atomics assign slots in any order."""
    raw, head = random_outputs(np.random.default_rng(1), Kind("yolov8", 640), 8)
    wanted, boxes = PostprocessParams(0.05, 0.65, multi_label=True), [fit(1920, 1080, head.spec)] * 8
    run, results = runner.prepare_postprocess(Task(raw, head, boxes, wanted), stack)
    found, kept = results["boxes"], results["kept"]
    stream = Stream()
    stack.callback(stream.close)
    with stream.capture() as graphs:
        run(stream)
    (graph,) = graphs
    stack.callback(graph.close)
    seen = set()
    for _ in range(1000):
        found.fill(0)
        graph.launch(stream)
        stream.synchronize()
        seen.add(found.tobytes() + kept.tobytes())
    assert len(seen) == 1
    return [f"1,000 graph replays of one batch: {len(seen)} result, {int(kept.sum())} boxes"]


def _times(runner: GpuRunner) -> list[str]:
    """Microseconds, measured with events."""
    lines = []
    for batch in (1, 8, 32):
        for kind in ("BGR", "NV12"):
            lines.append(f"preprocess {kind} 1080p, batch {batch}: {_time_preprocess(runner, kind, batch):.1f} us")
        lines.append(f"postprocess YOLOv8 of 80 classes, batch {batch}: {_time_postprocess(runner, batch):.1f} us")
        for head, raw in _typical(batch).items():
            lines.append(f"postprocess {head}, batch {batch}: {_time_head(runner, head, raw):.1f} us")
    return lines


def _typical(batch: int) -> dict[str, dict[str, npt.NDArray[np.float32]]]:
    """Raw outputs of full size in which each picture has ten objects, of ten neighbouring cells or one query each."""
    near = np.arange(10)[:, None] * 800 + np.arange(10)  # cells
    rows = np.zeros((batch, 84 + 51, 8400), np.float32)
    rows[:, 4, near] = np.linspace(0.9, 0.5, 10, dtype=np.float32)
    rows[:, :4, near] = np.array([0, 320, 60, 80], np.float32)[:, None, None]
    rows[:, 0, near] = np.arange(10, dtype=np.float32)[:, None] * 64 + 20
    rows[:, 84:] = 0.3
    logits, shares = np.full((batch, 300, 80), -5, np.float32), np.full((batch, 300, 4), 0.1, np.float32)
    logits[:, ::30, 3] = 2
    protos = np.ones((batch, 32, 160, 160), np.float32)
    return {
        "rtdetr": {"logits": logits, "pred_boxes": shares},
        "yolov8-pose": {"out": np.ascontiguousarray(np.delete(rows, slice(5, 84), axis=1))},
        "yolov8-obb": {"out": np.ascontiguousarray(rows[:, :85])},
        "yolov8-segment": {"out": np.ascontiguousarray(rows[:, :116]), "protos": protos},
    }


def _time_head(runner: GpuRunner, name: str, raw: dict[str, npt.NDArray[np.float32]]) -> float:
    """Ten objects are kept."""
    metadata = {"task": name.partition("-")[2], "kpt_shape": "(17, 3)"} if "-" in name else {}
    shapes = [(output, array.shape) for output, array in raw.items()]
    head = recognise(ModelFacts(shapes, (640, 640), metadata))
    with ExitStack() as stack:
        places = [fit(1920, 1080, head.spec)] * len(next(iter(raw.values())))
        run, results = runner.prepare_postprocess(Task(raw, head, places, PostprocessParams(0.25), labels=80), stack)
        took = _time(run)
        assert (results["kept"] == 10).all()
        return took


def _time_preprocess(runner: GpuRunner, kind: str, batch: int) -> float:
    """1080p pictures in separate memory, to FP16 640x640."""
    spec, luma = InputSpec(640, 640), 1920 * 1080
    box = fit(1920, 1080, spec)
    with ExitStack() as stack:
        frames = [runner.buffer(3 * luma if kind == "BGR" else luma * 3 // 2, stack).pointer for _ in range(batch)]
        pictures = [
            kernels.bgr_picture(frame, 5760, box)
            if kind == "BGR"
            else kernels.nv12_picture(DeviceImage(frame, frame + luma, 1920, 1920, 1080), box)
            for frame in frames
        ]
        table = runner.upload(np.array(pictures, dtype=kernels.PICTURE), stack)
        target = runner.buffer(batch * 3 * 640 * 640 * 2, stack)
        return _time(lambda stream: runner.launch_preprocess(stream, table, target, spec, batch, half=True))


def _time_postprocess(runner: GpuRunner, batch: int) -> float:
    """A quiet picture: ten cells of one object."""
    raw = np.zeros((batch, 84, 8400), np.float32)
    raw[:, 4, ::840], raw[:, :4, ::840] = 0.6, 100
    head = recognise(ModelFacts([("out", raw.shape)], (640, 640), {}))
    with ExitStack() as stack:
        places = [fit(1920, 1080, head.spec)] * batch
        task = Task({"out": raw}, head, places, PostprocessParams(0.25), labels=80)
        run, results = runner.prepare_postprocess(task, stack)
        took = _time(run)
        assert (results["kept"] == 1).all()
        return took


def _time(work: Callable[[Stream], None]) -> float:
    """Median over graph replays, without Python's launch time."""
    with ExitStack() as stack:
        stream, begun, ended = Stream(), Event(timed=True), Event(timed=True)
        for handle in (stream, begun, ended):
            stack.callback(handle.close)
        work(stream)
        stream.synchronize()
        with stream.capture() as graphs:
            work(stream)
        stack.callback(graphs[0].close)
        times = []
        for _ in range(_REPEATS):
            begun.record(stream)
            graphs[0].launch(stream)
            ended.record(stream)
            ended.synchronize()
            times.append(ended.milliseconds_since(begun) * 1000)
        return median(times)


if __name__ == "__main__":
    sys.exit(main())
