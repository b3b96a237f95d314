"""Values of raw outputs that tell of their layout, where others have the same shape. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detectors.heads.candidates import STRIDES, TWO_STRIDES, count_cells
from detectors.heads.layout import Floats

MAX_SHARE = 2.0  # boxes as shares of the picture are no larger
TOLERANCE = 1e-3  # of a class id or score
_MAX_LOG = 20.0  # of a width over its stride: exp(20) is wider than any picture


def has_pixels(rows: Floats) -> bool:
    """Whether widths of the layout yolox are pixels, and not logarithms."""
    return float(np.abs(rows[:, 2:4]).max(initial=0.0)) > _MAX_LOG


def are_never_negative(rows: Floats) -> bool:
    """Whether the first four columns have no negative number. Offsets to a grid and logarithms of sizes have both
    signs."""
    return bool(rows[:, :4].min(initial=0.0) >= 0)


def kind_of_boxes(boxes: Floats, size: tuple[int, int]) -> str | None:
    """How boxes are written, one or three for each cell of a grid; None for centre and size, or if they do not show it.

    The centre of a box lies near its cell. So of all ways to read them, the right one has centres near the cells.

    Args:
        boxes: (n, 4) in pixels.
        size: of the input.
    """
    for strides in (*STRIDES, *TWO_STRIDES):
        for anchors in (1, 3):
            if anchors * count_cells(size, strides) == len(boxes):
                return _nearest_kind(boxes, *_centres_of(size, strides, anchors))
    return None


def _centres_of(size: tuple[int, int], strides: Sequence[int], anchors: int) -> tuple[Floats, Floats]:
    """Centre (n, 2) and stride (n, 1) of each row's cell, pixels."""
    centres, scales = [], []
    for stride in strides:
        x, y = np.meshgrid(*((np.arange(side // stride) + 0.5) * stride for side in size))
        centres.append(np.tile(np.stack((x.ravel(), y.ravel()), axis=1), (anchors, 1)))
        scales.append(np.full((len(centres[-1]), 1), stride))
    return np.concatenate(centres).astype(np.float32), np.concatenate(scales).astype(np.float32)


def _nearest_kind(boxes: Floats, cells: Floats, strides: Floats) -> str | None:
    first, last, half = boxes[:, :2], boxes[:, 2:], np.float32(0.5)
    kinds: dict[str, Floats] = {
        "corners, not centre and size": (first + last) * half,
        "the corner at the top left and the size, not centre and size": first + last * half,
        "corners with y before x": (first + last)[:, ::-1] * half,
        "centre and size with y before x": first[:, ::-1],
        "in units of cells, not pixels": first * strides,
    }
    distances = {kind: float(np.abs(centres - cells).mean()) for kind, centres in kinds.items()}
    nearest = min(distances, key=lambda kind: distances[kind])
    return nearest if distances[nearest] < np.abs(first - cells).mean() / 4 else None


def is_whole(values: Floats) -> bool:
    """Whether all values are class ids."""
    return bool((np.abs(values - np.rint(values)) <= TOLERANCE).all() and (values > -0.5).all())


def are_indexed(rows: Floats) -> bool:
    """Whether rows of six or seven columns have a class id in the sixth."""
    if rows.shape[1] not in (6, 7) or not is_whole(rows[:, 5]) or not (rows[:, 4] > 0).any():
        return False
    if rows.shape[1] == 7:
        return bool((rows[:, 6] > 0).any())
    return bool((rows[:, 2] >= rows[:, 0]).all() and (rows[:, 3] >= rows[:, 1]).all())
