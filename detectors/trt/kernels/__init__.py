"""The kernels' interface: their structs as numpy dtypes, their grids, their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from detectors.letterbox import PAD, InputSpec, Letterbox, cell_size
from detectors.port import DeviceImage

FOLDER = Path(__file__).parent
PREPROCESS = FOLDER / "preprocess.cu"
SOURCES = (PREPROCESS, *(FOLDER / f"{name}.cu" for name in ("postprocess", "queries", "tasks")))

# Structs of the same names in preprocess.cu and rows.cuh; align=True gives C's layout.
PICTURE = np.dtype(
    [("plane0", np.uint64), ("plane1", np.uint64)]
    + [(name, np.int32) for name in ("pitch", "width", "height", "left", "top", "inner_width", "inner_height")]
    + [(name, np.float32) for name in ("scale_x", "scale_y")]
    + [(name, np.int32) for name in ("cell_x", "cell_y", "format", "bt709", "full_range", "turns", "odd_x", "odd_y")],
    align=True,
)
COLOURS = np.dtype([("scale", np.float32, 3), ("bias", np.float32, 3), ("pad", np.float32)], align=True)
CANDIDATE = np.dtype(
    [(name, np.float32) for name in ("x1", "y1", "x2", "y2", "score")] + [("class_id", np.int32)], align=True
)
PLACEMENT = np.dtype(
    [(name, np.float32) for name in ("left", "top", "scale_x", "scale_y", "width", "height")], align=True
)
LIMITS = np.dtype(
    [("confidence", np.float32), ("iou", np.float32)]
    + [(name, np.int32) for name in ("multi_label", "max_detections", "suppress", "most", "capacity", "labels")],
    align=True,
)
_MODEL, _WORK = ("values", "boxes", "labels", "protos"), ("candidates", "keys", "slots", "dead", "counts")
_SIZES = ("rows", "classes", "extras", "values_a_point", "label_bytes", "width", "height")
OUTPUT = np.dtype(
    [(name, np.uint64) for name in (*_MODEL, *_WORK, "shapes", "kept")]
    + [(name, np.int32) for name in (*_SIZES, "proto_width", "proto_height")],
    align=True,
)
RESULTS = np.dtype(
    [(name, np.uint64) for name in ("boxes", "kept", "left_out", "implausible", "extras", "full", "bits")], align=True
)
SCRATCH = {"candidates": CANDIDATE.itemsize, "keys": 8, "slots": 4, "dead": 1}  # bytes for each candidate
GAUSSIAN_BYTES = 24
_ROW_THREADS = 256
_SELECT_THREADS = 512
_MASK_THREADS = 256
_TILE = (32, 4)

Size3 = tuple[int, int, int]


def struct(kind: np.dtype[np.void], **fields: object) -> npt.NDArray[np.void]:
    """A struct for a kernel; fields that are not given are 0."""
    made = np.zeros(1, kind)
    for name, value in fields.items():
        made[name] = value
    return made


def preprocess_grid(spec: InputSpec, batch: int) -> tuple[Size3, Size3]:
    """Grid and block of preprocess_f32 and preprocess_f16."""
    return (-(-spec.width // _TILE[0]), -(-spec.height // _TILE[1]), batch), (*_TILE, 1)


def collect_grid(rows: int, batch: int) -> tuple[Size3, Size3]:
    """Grid and block of the collect kernels."""
    return (-(-rows // _ROW_THREADS), batch, 1), (_ROW_THREADS, 1, 1)


def select_grid(batch: int) -> tuple[Size3, Size3]:
    """Grid and block of the select kernels."""
    return (batch, 1, 1), (_SELECT_THREADS, 1, 1)


def masks_grid(max_detections: int, batch: int) -> tuple[Size3, Size3]:
    """Grid and block of masks."""
    return (max_detections, batch, 1), (_MASK_THREADS, 1, 1)


def picture_grid(width: int, height: int) -> tuple[Size3, Size3]:
    """Grid and block of to_bgr."""
    return (-(-width // _TILE[0]), -(-height // _TILE[1]), 1), (*_TILE, 1)


def preprocess_constants(spec: InputSpec) -> tuple[int, int, int, npt.NDArray[np.void]]:
    """The last arguments of the preprocess kernels: width, height, rgb, colours."""
    return spec.width, spec.height, int(spec.rgb), np.array([(spec.scale, spec.bias, PAD)], COLOURS)


def bgr_picture(pointer: int, pitch: int, box: Letterbox) -> tuple[float, ...]:
    """A PICTURE of BGR rows of `pitch` bytes."""
    return (pointer, 0, pitch, *_geometry(box), 0, 0, 0, 0, 0, 0)


def nv12_picture(image: DeviceImage, box: Letterbox) -> tuple[float, ...]:
    """A PICTURE of NV12."""
    kind = int(image.bt709), int(image.full_range), image.turns, image.odd_x, image.odd_y
    return (image.luma, image.chroma, image.pitch, *_geometry(box), 1, *kind)


def _geometry(box: Letterbox) -> tuple[float, ...]:
    """The fields of a PICTURE from width to cell."""
    cells = cell_size(box.source[0], box.width), cell_size(box.source[1], box.height)
    return (*box.source, box.left, box.top, box.width, box.height, *_scale(box), *cells)


def _scale(box: Letterbox) -> tuple[float, float]:
    """Source pixels per input pixel, horizontally and vertically."""
    return box.source[0] / box.width, box.source[1] / box.height


def placements(boxes: Sequence[Letterbox]) -> npt.NDArray[np.void]:
    """The PLACEMENT of each picture, equivalent to `Letterbox.to_source`."""
    return np.array(
        [(box.left, box.top, *_scale(box), *box.source) for box in boxes],
        dtype=PLACEMENT,
    )
