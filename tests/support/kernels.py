"""Running the kernels for tests, on the CPU or on a GPU, and what they must give on both."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.heads import recognise
from detectors.letterbox import InputSpec, Letterbox, fit, preprocess
from detectors.port import Wanted
from detectors.trt import kernels
from tests.support.driver import compiled

HEADS = ("yolov5", "yolov8", "yolox", "end2end")
Pictures = npt.NDArray[np.void]


@dataclass(frozen=True)
class Nv12:
    """A picture as a hardware decoder gives it: luma (h, w), chroma (ceil(h/2), 2 * ceil(w/2)), uint8; and the quarter
    turns clockwise that make it upright."""

    luma: npt.NDArray[np.uint8]
    chroma: npt.NDArray[np.uint8]
    bt709: bool
    full_range: bool
    turns: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, upright."""
        height, width = self.luma.shape
        return (height, width) if self.turns % 2 else (width, height)

    @property
    def kind(self) -> dict[str, Any]:
        """What `nv12_picture` is told beside the planes."""
        return {"bt709": self.bt709, "full_range": self.full_range, "turns": self.turns}


Image = npt.NDArray[np.uint8] | Nv12


class Runner(Protocol):
    """A way to run the kernels."""

    def preprocess(self, images: Sequence[Image], spec: InputSpec, *, half: bool = False) -> npt.NDArray[Any]: ...

    def postprocess(
        self, raw: npt.NDArray[np.float32], head: str, classes: int, spec: InputSpec, boxes: Sequence[Letterbox],
        wanted: Wanted,
    ) -> list[Detections]: ...  # fmt: skip


def limits_of(wanted: Wanted, head: str, capacity: int) -> npt.NDArray[np.void]:
    suppress = int(head != "end2end")
    row = (wanted.confidence, wanted.iou, wanted.multi_label, wanted.max_detections, suppress, 8192, capacity, 0)
    return np.array([row], dtype=kernels.LIMITS)


def rows_of(raw: npt.NDArray[np.float32], head: str) -> int:
    return int(raw.shape[2] if head == "yolov8" else raw.shape[1])


def to_detections(boxes: npt.NDArray[np.float32], kept: npt.NDArray[np.int32]) -> list[Detections]:
    """What select_boxes wrote, as values."""
    return [
        Detections(rows[:n, :4].copy(), rows[:n, 4].copy(), rows[:n, 5].astype(np.int32))
        for rows, n in zip(boxes, kept)
    ]


class CpuRunner:
    """The .cu files compiled by g++."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(compiled(Path(__file__).with_name("kernels_on_cpu.cpp"))))

    def preprocess(self, images: Sequence[Image], spec: InputSpec, *, half: bool = False) -> npt.NDArray[Any]:
        pictures = np.array([_host_picture(image, spec) for image in images], dtype=kernels.PICTURE)
        out = np.full((len(images), 3, spec.height, spec.width), np.nan, np.float16 if half else np.float32)
        grid, block = map(_index, kernels.preprocess_grid(spec, len(images)))
        width, height, rgb, scale, pad = kernels.preprocess_constants(spec)
        scale_c, pad_c = ctypes.c_float(scale), ctypes.c_float(pad)
        run = self._library.run_preprocess
        run(_at(grid), _at(block), _at(pictures), _at(out), int(half), width, height, rgb, scale_c, pad_c)
        return out

    def postprocess(
        self, raw: npt.NDArray[np.float32], head: str, classes: int, spec: InputSpec, boxes: Sequence[Letterbox],
        wanted: Wanted,
    ) -> list[Detections]:  # fmt: skip
        batch, capacity = len(raw), 1 << 15
        scratch = {
            "candidates": np.zeros((batch, capacity), kernels.CANDIDATE),
            "keys": np.zeros((batch, capacity), np.uint64),
            "slots": np.zeros((batch, capacity), np.int32),
            "dead": np.zeros((batch, capacity), np.uint8),
            "counts": np.zeros(batch, np.int32),
        }
        rows = rows_of(raw, head)
        pointers = [array.ctypes.data for array in (raw, *scratch.values())]
        output = np.array([(*pointers, rows, classes, spec.width, spec.height)], dtype=kernels.OUTPUT)
        found = np.full((batch, wanted.max_detections, 6), np.nan, np.float32)
        kept = np.full(batch, -1, np.int32)
        grid, block = map(_index, kernels.collect_grid(rows, batch))
        limits, places = limits_of(wanted, head, capacity), kernels.placements(boxes)
        structs = (_at(output), _at(limits), _at(places), _at(found), _at(kept))
        self._library.run_postprocess(_at(grid), _at(block), HEADS.index(head), *structs, batch)
        return to_detections(found, kept)


def _host_picture(image: Image, spec: InputSpec) -> tuple[int, ...]:
    if isinstance(image, Nv12):
        planes = (image.luma.ctypes.data, image.chroma.ctypes.data, image.luma.strides[0])
        return kernels.nv12_picture(*planes, fit(*image.size, spec), **image.kind)
    return kernels.bgr_picture(image.ctypes.data, image.strides[0], fit(image.shape[1], image.shape[0], spec))


def _index(size: tuple[int, int, int]) -> npt.NDArray[np.int32]:
    return np.array(size, dtype=np.int32)


def _at(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


# --- what holds on every runner --------------------------------------------------------------------------

SIZES = ((640, 360), (1, 1), (333, 777), (1920, 1080), (96, 96), (3000, 2))


def check_bgr(runner: Runner, spec: InputSpec, *, half: bool) -> float:
    """A batch of all sizes against the reference; the largest difference in grey levels."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for width, height in SIZES]
    given = runner.preprocess(images, spec, half=half).astype(np.float32)
    wanted = np.stack([preprocess(image, spec) for image in images])
    return float(np.abs(given - wanted).max() / spec.scale)


def nv12_of(bgr: npt.NDArray[np.uint8], *, bt709: bool, full_range: bool) -> Nv12:
    """A picture of even size as NV12, by the definition; chroma lies on the left columns, between the rows."""
    blue, green, red = (bgr[..., channel].astype(np.float64) for channel in range(3))
    kr, kb = (0.2126, 0.0722) if bt709 else (0.299, 0.114)
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    u, v = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
    small = [_halve(plane) for plane in (u, v)]
    if not full_range:
        luma, small = 16 + luma * 219 / 255, [plane * 224 / 255 for plane in small]
    chroma = np.stack([plane + 128 for plane in small], axis=2).reshape(len(small[0]), -1)
    return Nv12(_bytes(luma), _bytes(chroma), bt709, full_range)


def _halve(plane: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    rows = (plane[0::2] + plane[1::2]) / 2
    left = np.concatenate((rows[:, :1], rows[:, 1:-1:2]), axis=1)
    return np.asarray((left + 2 * rows[:, 0::2] + rows[:, 1::2]) / 4)


def _bytes(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(np.clip(np.round(values), 0, 255), dtype=np.uint8)


def check_nv12(runner: Runner, *, bt709: bool, full_range: bool, turns: int = 0) -> float:
    """Smooth pictures as NV12 against the same as BGR, turned; the largest difference in grey levels."""
    spec = InputSpec(160, 160, scale=1.0)
    worst = 0.0
    for width, height in ((640, 360), (96, 96), (1920, 1080)):
        x, y = np.meshgrid(np.linspace(40, 200, width), np.linspace(50, 190, height))
        bgr = np.stack((x, y, 240 - x), axis=2).astype(np.uint8)
        picture = replace(nv12_of(bgr, bt709=bt709, full_range=full_range), turns=turns)
        (given,) = runner.preprocess([picture], spec)
        wanted = preprocess(np.ascontiguousarray(np.rot90(bgr, -turns)), spec)
        box = fit(*picture.size, spec)  # at its border a column of chroma has no neighbour to lean on
        inside = np.s_[:, box.top + 4 : box.top + box.height - 4, box.left + 4 : box.left + box.width - 4]
        worst = max(worst, float(np.abs(given - wanted)[inside].max()))
    return worst


def random_output(rng: np.random.Generator, head: str, batch: int, size: int) -> tuple[npt.NDArray[np.float32], int]:
    """Raw output of a head with many overlapping boxes and many equal scores; and the number of classes."""
    classes, cells = 5, sum((size // stride) ** 2 for stride in (8, 16, 32))
    rows = {"yolov5": 3 * cells, "yolov8": cells, "yolox": cells, "end2end": 300}[head]
    scores = rng.integers(0, 9, (batch, rows, classes)).astype(np.float32) / 10 * (rng.random((batch, rows, 1)) < 0.1)
    centres = rng.uniform(0, size, (batch, rows, 2)).astype(np.float32)
    sizes = rng.uniform(4, size / 3, (batch, rows, 2)).astype(np.float32)
    objectness = rng.integers(5, 11, (batch, rows, 1)).astype(np.float32) / 10
    if head == "end2end":
        best = scores.max(axis=2, keepdims=True), scores.argmax(axis=2)[..., None]
        return np.concatenate((centres, centres + sizes, *best), axis=2, dtype=np.float32), classes
    if head == "yolov8":
        columns = np.concatenate((centres, sizes, scores), axis=2).transpose(0, 2, 1)
        return np.ascontiguousarray(columns, dtype=np.float32), classes
    if head == "yolox":
        centres, sizes = (centres / size * 4).astype(np.float32), np.log(sizes / 8).astype(np.float32)
    return np.concatenate((centres, sizes, objectness, scores), axis=2, dtype=np.float32), classes


def check_postprocess(runner: Runner, head: str, wanted: Wanted, seed: int = 0, size: int = 160) -> int:
    """A random batch against heads.py: the same boxes in the same order; how many there were."""
    raw, classes = random_output(np.random.default_rng(seed), head, 3, size)
    reference = recognise([("out", raw.shape)], (size, size), {}, head)
    boxes = [fit(*shape, reference.spec) for shape in ((640, 360), (100, 300), (160, 160))]
    found = runner.postprocess(raw, head, classes, reference.spec, boxes, wanted)
    total = 0
    for given, output, box in zip(found, raw, boxes):
        expected = reference.detections(output, box, wanted)
        np.testing.assert_array_equal(given.class_id, expected.class_id)
        np.testing.assert_allclose(given.confidence, expected.confidence, rtol=1e-6)
        np.testing.assert_allclose(given.xyxy, expected.xyxy, rtol=1e-5, atol=1e-3)
        total += len(given)
    return total
