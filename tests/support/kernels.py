"""Runs the kernels for tests, on the CPU or on a GPU, with the expected results of both."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from math import nan
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections, plausible
from detectors.heads.candidates import MOST_CANDIDATES
from detectors.heads.layout import Head, ModelFacts
from detectors.heads.masks import placed
from detectors.heads.recognise import recognise
from detectors.heads.rows import RowHead
from detectors.letterbox import InputSpec, Letterbox, cell_size, fit, preprocess
from detectors.port import DeviceImage, PostprocessParams, Region
from detectors.trt import kernels
from detectors.trt.kernels.decoding import Kernels, Raw, extras_of, fields_of, kernels_of, limits_of, scratch_of
from detectors.trt.memory_plan import CAPACITY
from tests.support.driver import compiled
from tests.support.raw_outputs import KERNELS, PLAIN, QUERIES, TASKS, Kind, random_outputs

ONES = (1.0, 1.0, 1.0)
KERNELS_ON_CPU = Path(__file__).with_name("kernels_on_cpu.cpp")
_GUARD = 4096
_NUMBERS = {name: number for number, name in enumerate(dict.fromkeys(KERNELS.values()))}  # of kernels_on_cpu.cpp
Pictures = npt.NDArray[np.void]


@dataclass(frozen=True)
class Nv12:
    """A picture from a hardware decoder: luma (h, w), chroma (ceil(h/2), 2 * ceil(w/2)), uint8; and the quarter turns
    clockwise that make it upright. `odd`: 1 where luma begins at the second column or row of its chroma."""

    luma: npt.NDArray[np.uint8]
    chroma: npt.NDArray[np.uint8]
    bt709: bool
    full_range: bool
    turns: int = 0
    odd: tuple[int, int] = (0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, upright."""
        height, width = self.luma.shape
        return (height, width) if self.turns % 2 else (width, height)

    def at(self, luma: int, chroma: int, pitch: int) -> DeviceImage:
        """The picture with its planes at these addresses."""
        kind = self.bt709, self.full_range
        return DeviceImage(luma, chroma, pitch, *self.size, *kind, 0, None, self.turns, *self.odd)


Image = npt.NDArray[np.uint8] | Nv12


class Runner(Protocol):
    """Runs the kernels."""

    def preprocess(self, images: Sequence[Image], spec: InputSpec, *, half: bool = False) -> npt.NDArray[Any]: ...

    def to_bgr(self, picture: Nv12) -> npt.NDArray[np.uint8]: ...

    def postprocess(self, task: Task) -> list[Detections]: ...


@dataclass(frozen=True, eq=False)
class Task:
    """Raw outputs of a batch, and the postprocess parameters.

    Attributes:
        raw: by name.
        labels: number of labels of the model.
        most, capacity: see `Limits` in rows.cuh.
    """

    raw: Mapping[str, npt.NDArray[Any]]
    head: Head
    boxes: Sequence[Letterbox]
    wanted: PostprocessParams
    labels: int = 5
    most: int = MOST_CANDIDATES
    capacity: int = CAPACITY

    @property
    def rows(self) -> int:
        return fields_of(self.head, {name: Raw(0, array.shape[1:], array.dtype) for name, array in self.raw.items()})[
            "rows"
        ]

    @property
    def kernels(self) -> Kernels:
        found = kernels_of(self.head)
        assert found is not None
        return found

    @property
    def scratch(self) -> dict[str, int]:
        return scratch_of(self.head, self.wanted.max_detections, self.most, self.capacity)

    @property
    def limits(self) -> npt.NDArray[np.void]:
        return limits_of(self.head, self.wanted, self.rows, self.labels, self.most, self.capacity)

    def output(self, pointers: Mapping[str, int], **scratch: int) -> npt.NDArray[np.void]:
        """Args:
        pointers: of the raw outputs.
        scratch: pointers of candidates, keys, slots, dead, counts and so on.
        """
        outputs = {name: Raw(pointers[name], array.shape[1:], array.dtype) for name, array in self.raw.items()}
        return kernels.struct(kernels.OUTPUT, **fields_of(self.head, outputs), **scratch)


def results_of(task: Task) -> dict[str, tuple[tuple[int, ...], npt.DTypeLike]]:
    """Shape and dtype of each field of RESULTS."""
    batch, most, head = len(task.boxes), task.wanted.max_detections, task.head
    protos = task.raw[head.protos].shape if isinstance(head, RowHead) and head.protos else None
    masks = (protos[2], -(-protos[3] // 8)) if protos else (0, 0)
    return {
        "boxes": ((batch, most, 6), np.float32),
        **dict.fromkeys(("kept", "left_out", "implausible"), ((batch,), np.int32)),
        "extras": ((batch, most, extras_of(head)), np.float32),
        "full": ((batch, most), np.uint8),
        "bits": ((batch, most, *masks), np.uint8),
    }


def to_detections(task: Task, results: Mapping[str, npt.NDArray[Any]]) -> list[Detections]:
    """Output of the kernels, as values.

    Args:
        results: fields of RESULTS.
    """
    return [_one(task, number, {name: array[number] for name, array in results.items()})
            for number in range(len(task.boxes))]  # fmt: skip


def _one(task: Task, number: int, results: Mapping[str, npt.NDArray[Any]]) -> Detections:
    head, count = task.head, int(results["kept"])
    boxes, extras = results["boxes"][:count].copy(), results["extras"][:count].copy()
    more: dict[str, Any] = {}
    rows = np.arange(count)
    if head.task == "pose":
        more["keypoints"] = extras.reshape(count, -1, 3)
    elif head.task == "obb":
        more["obb"] = extras
    elif isinstance(head, RowHead) and head.protos:
        rows = np.flatnonzero(results["full"][:count])
        width = task.raw[head.protos].shape[3]
        more["masks"] = placed(results["bits"][rows], width, head.spec, task.boxes[number])
    columns = boxes[rows, :4], boxes[rows, 4], boxes[rows, 5].astype(np.int32)
    return Detections(*columns, int(results["left_out"]), bool(results["implausible"] == 0), **more)


class CpuRunner:
    """The .cu files compiled by g++.

    Args:
        library: another library, for mutants.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._library = ctypes.CDLL(str(library or compiled(KERNELS_ON_CPU)))

    def preprocess(self, images: Sequence[Image], spec: InputSpec, *, half: bool = False) -> npt.NDArray[Any]:
        with ExitStack() as stack:
            pictures = [stack.enter_context(_at_a_cliff(image)) for image in images]
            return self._preprocess(pictures, spec, half=half)

    def _preprocess(self, images: Sequence[Image], spec: InputSpec, *, half: bool) -> npt.NDArray[Any]:
        pictures = np.array([_host_picture(image, spec) for image in images], dtype=kernels.PICTURE)
        out = _Guarded((len(images), 3, spec.height, spec.width), np.float16 if half else np.float32, np.nan)
        grid, block = map(_index, kernels.preprocess_grid(spec, len(images)))
        width, height, rgb, colours = kernels.preprocess_constants(spec)
        run = self._library.run_preprocess
        run(_at(grid), _at(block), _at(pictures), _at(out.array), int(half), width, height, rgb, _at(colours))
        return out.checked()

    def to_bgr(self, picture: Nv12) -> npt.NDArray[np.uint8]:
        width, height = picture.size
        out = _Guarded((height, width, 3), np.uint8, 0)
        grid, block = map(_index, kernels.picture_grid(width, height))
        with _at_a_cliff(picture) as placed:
            described = np.array([_host_picture(placed, InputSpec(width, height))], dtype=kernels.PICTURE)
            self._library.run_to_bgr(_at(grid), _at(block), _at(described), _at(out.array))
        return out.checked()

    def postprocess(self, task: Task) -> list[Detections]:
        batch = len(task.boxes)
        scratch = {name: _Guarded((batch, size), np.uint8, fill=None) for name, size in task.scratch.items()}
        scratch["counts"] = _Guarded((batch,), np.int32)
        pointers = {name: part.array.ctypes.data for name, part in scratch.items()}
        output = task.output({name: array.ctypes.data for name, array in task.raw.items()}, **pointers)
        found = {name: _Guarded(shape, kind, 0x7F) for name, (shape, kind) in results_of(task).items()}
        results = kernels.struct(kernels.RESULTS, **{name: part.array.ctypes.data for name, part in found.items()})
        places = kernels.placements(task.boxes)
        grid, block = map(_index, kernels.collect_grid(task.rows, batch))
        structs = (_at(output), _at(task.limits), _at(places), _at(results))
        self._library.run_postprocess(_at(grid), _at(block), _NUMBERS[task.kernels.name], *structs, batch)
        for part in scratch.values():
            part.checked()
        arrays = {name: part.checked() for name, part in found.items()}
        for full, kept in zip(arrays["full"], arrays["kept"]):
            assert (full[kept:] == 0x7F).all(), "masks are made of rows that are not kept"
        return to_detections(task, arrays)


class _Guarded:
    """An array between guards that must not be written.

    Args:
        fill: initial value, None for uninitialised memory.
    """

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike, fill: float | None = 0) -> None:
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        self._raw = np.full(size + 2 * _GUARD, 0xA5, np.uint8)
        self.array: npt.NDArray[Any] = self._raw[_GUARD : _GUARD + size].view(kind).reshape(shape)
        if fill is not None:
            self.array[...] = fill

    def checked(self) -> npt.NDArray[Any]:
        """The array, after a check of its guards."""
        assert (self._raw[:_GUARD] == 0xA5).all(), "something is written before the beginning"
        assert (self._raw[self._raw.size - _GUARD :] == 0xA5).all(), "something is written beyond the end"
        return self.array


@contextmanager
def _at_a_cliff(image: Image) -> Iterator[Any]:
    """A picture at the end of its memory: a read beyond it ends the process."""
    planes = (image.luma, image.chroma) if isinstance(image, Nv12) else (image,)
    pitch, page = planes[0].strides[0], mmap.PAGESIZE
    with ExitStack() as stack:
        placed = []
        for plane in planes:
            used = pitch * (plane.shape[0] - 1) + plane[0].nbytes
            size = -(-used // page) * page
            memory = stack.enter_context(mmap.mmap(-1, size + page))
            address = ctypes.addressof(anchor := ctypes.c_char.from_buffer(memory))
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + size), page, 0) == 0
            rows = np.ndarray(plane.shape, np.uint8, memory, size - used, (pitch, *plane.strides[1:]))
            rows[...] = plane
            del anchor
            placed.append(rows)
        yield replace(image, luma=placed[0], chroma=placed[1]) if isinstance(image, Nv12) else placed[0]
        del rows, placed


def _host_picture(image: Image, spec: InputSpec) -> tuple[float, ...]:
    if isinstance(image, Nv12):
        placed = image.at(image.luma.ctypes.data, image.chroma.ctypes.data, image.luma.strides[0])
        return kernels.nv12_picture(placed, fit(*image.size, spec))
    return kernels.bgr_picture(image.ctypes.data, image.strides[0], fit(image.shape[1], image.shape[0], spec))


def _index(size: tuple[int, int, int]) -> npt.NDArray[np.int32]:
    return np.array(size, dtype=np.int32)


def _at(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


# --- properties of every runner ----------------------------------------------------------------------------

SIZES = ((640, 360), (1, 1), (333, 777), (1920, 1080), (96, 96), (3000, 2), (250, 190))


def check_bgr(runner: Runner, spec: InputSpec, *, half: bool) -> float:
    """A batch of all sizes against the reference; the largest difference in grey levels."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for width, height in SIZES]
    given = runner.preprocess(images, spec, half=half).astype(np.float32)
    wanted = np.stack([preprocess(image, spec) for image in images])
    return float(np.abs(given - wanted).max() / max(spec.scale))


def nv12_of(bgr: npt.NDArray[np.uint8], *, bt709: bool, full_range: bool) -> Nv12:
    """A picture of even size as NV12, by the definition; chroma lies on the left columns, between the rows."""
    blue, green, red = (bgr[..., channel].astype(np.float64) for channel in range(3))
    kr, kb = (0.2126, 0.0722) if bt709 else (0.299, 0.114)
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    u, v = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
    small = [(plane[0::2, 0::2] + plane[1::2, 0::2]) / 2 for plane in (u, v)]
    if not full_range:
        luma, small = 16 + luma * 219 / 255, [plane * 224 / 255 for plane in small]
    chroma = np.stack([plane + 128 for plane in small], axis=2).reshape(len(small[0]), -1)
    luma, chroma = (np.clip(np.round(plane), 0, 255) for plane in (luma, chroma))
    return Nv12(luma.astype(np.uint8), chroma.astype(np.uint8), bt709, full_range)


def noise_nv12(size: tuple[int, int], *, bt709: bool, full_range: bool, turns: int = 0, seed: int = 0) -> Nv12:
    """A picture in which each sample is another, odd sizes and a pitch included; `size` is that of the planes."""
    rng, (width, height) = np.random.default_rng(seed), size
    across, down = (width + 1) // 2, (height + 1) // 2
    rows = rng.integers(0, 256, (height + down, 2 * across + 10), dtype=np.uint8)
    return Nv12(rows[:height, :width], rows[height:, : 2 * across], bt709, full_range, turns)


def bgr_of(picture: Nv12) -> npt.NDArray[np.float64]:
    """(height, width, 3) of BGR, upright, by the definition: chroma lies on the left one of its two columns and between
    its two rows, and what lies between chroma is linear."""
    luma = picture.luma.astype(np.float64)
    planes = (picture.chroma[:, part::2].astype(np.float64) - 128 for part in (0, 1))
    u, v = (_upsampled(plane, luma.shape, picture.odd) for plane in planes)
    return _bgr(luma, u, v, picture)


def _bgr(
    luma: npt.NDArray[np.float64], u: npt.NDArray[np.float64], v: npt.NDArray[np.float64], picture: Nv12
) -> npt.NDArray[np.float64]:
    """Upright; `u` and `v` are 0 for grey."""
    if not picture.full_range:
        luma, u, v = (luma - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    kr, kb = (0.2126, 0.0722) if picture.bt709 else (0.299, 0.114)
    blue, red = luma + 2 * (1 - kb) * u, luma + 2 * (1 - kr) * v
    green = (luma - kr * red - kb * blue) / (1 - kr - kb)
    return np.rot90(np.clip(np.stack((blue, green, red), axis=2), 0, 255), -picture.turns)


def _upsampled(plane: npt.NDArray[np.float64], shape: tuple[int, ...], odd: tuple[int, int]) -> npt.NDArray[np.float64]:
    rows = np.clip((np.arange(shape[0]) + odd[1] + 0.5) / 2 - 0.5, 0, plane.shape[0] - 1)
    columns = np.clip((np.arange(shape[1]) + odd[0]) / 2, 0, plane.shape[1] - 1)
    down = np.stack([np.interp(rows, np.arange(plane.shape[0]), column) for column in plane.T], axis=1)
    return np.stack([np.interp(columns, np.arange(plane.shape[1]), row) for row in down])


def region_of(picture: Nv12, region: Region) -> Nv12:
    """A region of a picture, upright: its rows and columns of the planes."""
    height, width = picture.luma.shape
    upright = np.rot90(np.arange(height * width).reshape(height, width), -picture.turns)
    left, top, across, down = region
    rows, columns = np.divmod(upright[top : top + down, left : left + across], width)
    first, last = (int(rows.min()), int(columns.min())), (int(rows.max()), int(columns.max()))
    luma = picture.luma[first[0] : last[0] + 1, first[1] : last[1] + 1]
    chroma = picture.chroma[first[0] // 2 : last[0] // 2 + 1, first[1] // 2 * 2 : last[1] // 2 * 2 + 2]
    return replace(picture, luma=luma, chroma=chroma, odd=(first[1] % 2, first[0] % 2))


def check_regions(runner: Runner, turns: int) -> float:
    """Regions with odd and even origins and sizes; the largest difference in grey levels from the definition, and away
    from the region's edges from the whole picture."""
    worst = 0.0
    whole = noise_nv12((45, 33), bt709=True, full_range=True, turns=turns)
    pixels = bgr_of(whole)
    for left, top, width, height in product((0, 1, 6, 7), (0, 3, 4), (1, 8, 9, 20), (2, 7, 16)):
        cut = region_of(whole, Region(left, top, width, height))
        wanted = bgr_of(cut)
        inner = pixels[top : top + height, left : left + width]
        worst = max(worst, float(np.abs(inner - wanted)[1:-1, 1:-1].max(initial=0.0)))
        (given,) = runner.preprocess([cut], InputSpec(width, height, rgb=False, scale=ONES))
        worst = max(worst, float(np.abs(given.transpose(1, 2, 0) - wanted).max()))
        worst = max(worst, float(np.abs(runner.to_bgr(cut) - wanted).max()) - 0.5)
    return worst


NV12_SIZES = ((64, 48), (63, 47), (2, 2), (1, 1), (34, 3))


def check_nv12(runner: Runner, *, bt709: bool, full_range: bool, turns: int = 0) -> float:
    """Pictures of noise as they are, and as a model's input of their size; the largest difference in grey levels."""
    worst = 0.0
    for seed, size in enumerate(NV12_SIZES):
        picture = noise_nv12(size, bt709=bt709, full_range=full_range, turns=turns, seed=seed)
        wanted = bgr_of(picture)
        rows = runner.to_bgr(picture)
        worst = max(worst, float(np.abs(rows - wanted).max()) - 0.5)  # which rounding costs
        spec = InputSpec(*picture.size, rgb=False, scale=ONES)
        (given,) = runner.preprocess([picture], spec)
        worst = max(worst, float(np.abs(given.transpose(1, 2, 0) - wanted).max()))
    return worst


def check_small_nv12(runner: Runner) -> float:
    """A picture that is brought to another size: chroma is read where luma is. The mean difference in grey levels, of a
    picture that is smooth."""
    y, x = np.mgrid[0:90, 0:160]
    rows = np.stack((x[::2, ::2], 255 - y[::2, ::2] * 2), axis=2).reshape(45, 160).astype(np.uint8)
    picture = Nv12((y + x // 2 + 40).astype(np.uint8), rows, bt709=True, full_range=False)
    spec = InputSpec(96, 96, rgb=False, scale=ONES)
    (given,) = runner.preprocess([picture], spec)
    wanted = preprocess(np.round(bgr_of(picture)).astype(np.uint8), spec)
    return float(np.abs(given - wanted).mean())


def check_shrunk_nv12(runner: Runner, turns: int) -> float:
    """Turned pictures of noise that shrink, read from cells of luma and chroma; the largest difference in grey levels.

    They shrink by two, three and five, so that each pixel is one cell of luma; by a bit more, with partial cells; by
    other cells down than across; and so that the last place is beyond the last cell of chroma.
    """
    worst = 0.0
    whole = (((64, 36), (32, 18)), ((96, 54), (32, 18)), ((160, 90), (32, 18)))
    between = (((77, 43), (32, 18)), ((109, 61), (32, 18)), ((160, 3), (32, 1)), ((136, 68), (32, 16)))
    for (width, height), (across, down) in (*whole, *between):
        size = (height, width) if turns % 2 else (width, height)
        picture = noise_nv12(size, bt709=True, full_range=True, turns=turns)
        counts = (down, across) if turns % 2 else (across, down)
        columns, rows = (_Axis.of(side, count) for side, count in zip(size, counts))
        luma = _read(picture.luma, rows, columns)
        u, v = (_read(picture.chroma[:, part::2], rows.chroma(0.5), columns.chroma(0.0)) for part in (0, 1))
        wanted = _bgr(luma, u - 128, v - 128, picture)
        (given,) = runner.preprocess([picture], InputSpec(across, down, rgb=False, scale=ONES))
        worst = max(worst, float(np.abs(given.transpose(1, 2, 0) - wanted).max()))
    return worst


@dataclass(frozen=True)
class _Axis:
    """Where a plane is read along an axis, in samples, and the size of its cells."""

    centres: npt.NDArray[np.float64]
    cell: int

    @classmethod
    def of(cls, side: int, count: int) -> _Axis:
        return cls((np.arange(count, dtype=np.float64) + 0.5) * side / count - 0.5, cell_size(side, count))

    def chroma(self, after: float) -> _Axis:
        """Args:
        after: distance of the first sample from that of luma, in luma's samples.
        """
        return _Axis((self.centres - after) / 2, -(-self.cell // 2))

    def read(self, plane: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Bilinear along the first axis, between the means of cells; the last one repeats the edge."""
        whole = np.pad(plane, ((0, -len(plane) % self.cell), (0, 0)), mode="edge")
        cells = whole.reshape(-1, self.cell, plane.shape[1]).mean(axis=1)
        places = (self.centres + 0.5) / self.cell - 0.5
        return np.stack([np.interp(places, np.arange(len(cells)), column) for column in cells.T], axis=1)


def _read(plane: npt.NDArray[np.uint8], rows: _Axis, columns: _Axis) -> npt.NDArray[np.float64]:
    return np.asarray(columns.read(rows.read(plane.astype(np.float64)).T).T, np.float64)


def check_postprocess(runner: Runner, head: str, wanted: PostprocessParams, seed: int = 0, **more: Any) -> int:
    """A random batch against detectors.heads: the same boxes in the same order; how many there were.

    Args:
        head: a name in KERNELS.
        more: `most` and `capacity` of the task; the rest is of `Kind`.
    """
    limits = {name: more.pop(name) for name in ("most", "capacity") if name in more}
    raw, reference = random_outputs(np.random.default_rng(seed), Kind(head, **more))
    boxes = [fit(*shape, reference.spec) for shape in ((640, 360), (100, 300), (160, 160))]
    task = Task(raw, reference, boxes, wanted, **limits)
    total = 0
    for number, (given, box) in enumerate(zip(runner.postprocess(task), boxes)):
        outputs = {name: array[number].astype(np.float32) for name, array in raw.items()}
        # Of a row head NMS looks at the strongest candidates alone.
        of_rows = (task.most,) if isinstance(reference, RowHead) else ()
        expected = reference.detections(outputs, box, wanted, *of_rows)
        np.testing.assert_array_equal(given.class_id, expected.class_id)
        np.testing.assert_array_equal(given.confidence, expected.confidence)
        np.testing.assert_allclose(given.xyxy, expected.xyxy, rtol=1e-5, atol=1e-3)
        _check_extras(given, expected)
        assert given.left_out == expected.left_out
        # The mark is of all kept boxes, even of those without a mask.
        good = plausible([expected], task.labels)[1] == 0
        assert given.checked == good or (expected.masks is not None and good)
        total += len(given)
    return total


def _check_extras(given: Detections, expected: Detections) -> None:
    """Of a picture without boxes the reference has none."""
    for one, other in ((given.keypoints, expected.keypoints), (given.obb, expected.obb)):
        if other is not None:
            assert one is not None
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-3)
    if expected.masks is not None:
        assert given.masks is not None
        np.testing.assert_array_equal(given.masks.bits, expected.masks.bits)
        assert given.masks.width == expected.masks.width


def check_implausible(runner: Runner) -> None:
    """A picture with one box that no picture has is marked for the host, whichever rule it breaks; others are not."""
    good = (10, 20, 30, 40, 0.9, 1)
    bad = [(nan, 20, 30, 40, 0.9, 1), (10, 20, 30, nan, 0.9, 1), (30, 20, 10, 40, 0.9, 1), (10, 40, 30, 20, 0.9, 1)]
    bad += [(10, 20, 30, 40, 1.5, 1), (10, 20, 30, 40, 0.9, 2), (10, 20, 30, 40, 0.9, -1)]
    raw = np.array([[good, row] for row in [good, *bad]], np.float32)
    head = recognise(ModelFacts([("out", raw.shape)], (64, 64), {}), "end2end")
    boxes = [fit(64, 64, head.spec)] * len(raw)
    found = runner.postprocess(Task({"out": raw}, head, boxes, PostprocessParams(0.3), labels=2))
    assert [one.checked for one in found] == [True] + [False] * len(bad)


# What is wanted, and of what: each finds boxes, and each is tried on every head of YOLO's.
WANTED: tuple[tuple[PostprocessParams, dict[str, Any]], ...] = (
    (PostprocessParams(0.3, 0.5), {}),
    (PostprocessParams(0.05, 0.65, multi_label=True), {}),
    (PostprocessParams(0.3, 0.5, 7), {}),
    (PostprocessParams(0.95), {}),
    (PostprocessParams(0.3, 0.5), {"size": 256, "strides": (8, 16, 32, 64)}),
    (PostprocessParams(0.0, 0.65, multi_label=True), {"size": 320}),  # more candidates than there is room for
    (PostprocessParams(0.0, 0.65), {"most": 40, "capacity": 64}),
    (PostprocessParams(0.1, 0.65, multi_label=True), {"most": 40}),
    (PostprocessParams(0.05, 0.5, multi_label=True), {"most": 32, "capacity": 32}),
)
# Likewise of heads of queries.
WANTED_OF_QUERIES: tuple[tuple[PostprocessParams, dict[str, Any]], ...] = (
    (PostprocessParams(0.3), {}),
    (PostprocessParams(0.05, multi_label=True), {}),
    (PostprocessParams(0.5, max_detections=7), {}),
    (PostprocessParams(0.9999), {}),
    (PostprocessParams(0.0, max_detections=300), {}),  # fewer queries than candidates
    (PostprocessParams(0.0, max_detections=90, multi_label=True), {"capacity": 256}),  # and than there is room for
)
# Likewise of heads that keep more for a box.
_OBLONG = {"size": 104, "height": 96}  # masks of 26 columns, which are no whole bytes
WANTED_OF_TASKS: tuple[tuple[PostprocessParams, dict[str, Any]], ...] = (
    (PostprocessParams(0.3, 0.5), _OBLONG),
    (PostprocessParams(0.05, 0.3, multi_label=True), _OBLONG),
    (PostprocessParams(0.3, 0.5, 7), _OBLONG),
    (PostprocessParams(0.0, 0.65), {**_OBLONG, "most": 40, "capacity": 64}),
)
CASES = [*product(PLAIN, WANTED), *product(QUERIES, WANTED_OF_QUERIES), *product(TASKS, WANTED_OF_TASKS)]
