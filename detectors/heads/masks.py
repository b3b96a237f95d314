"""Heads with masks of instances, from coefficients and prototypes, packed to bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections, Masks
from detectors.heads.layout import Floats, Outputs
from detectors.heads.rows import Kept, RowHead
from detectors.letterbox import InputSpec, Letterbox


class MaskHead(RowHead):
    """Rows with the coefficients of a mask. As in ultralytics, an object without a mask is none."""

    def _placed(self, outputs: Outputs, box: Letterbox, kept: Kept, left_out: int) -> Detections:
        protos = outputs[str(self.protos)]
        full = filled(kept.extras, protos, kept.boxes, self.spec)
        boxes, extras = kept.boxes[full], kept.extras[full]
        masks = masks_of(extras, protos, boxes, self.spec, box)
        return Detections(box.to_source(boxes), kept.scores[full], kept.classes[full], left_out, masks=masks)


def masks_of(coefficients: Floats, protos: Floats, boxes: Floats, spec: InputSpec, place: Letterbox) -> Masks:
    """The masks of boxes, at the resolution of the prototypes.

    A pixel belongs to the mask where the sum of the prototypes, times the coefficients, is positive, and its corner
    lies in the box.

    Args:
        coefficients: (n, p).
        protos: (p, h, w), of the whole input.
        boxes: (n, 4) corners in input pixels.
        place: of the picture in the input.
    """
    count, height, width = len(boxes), *protos.shape[1:]
    inside = (coefficients @ protos.reshape(len(protos), -1)).reshape(count, height, width) > 0
    across, down = np.float32(width / spec.width), np.float32(height / spec.height)
    left, top, right, bottom = (boxes * np.array([across, down] * 2, np.float32)).T[:, :, None]
    column, row = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)
    inside &= ((column >= left) & (column < right))[:, None, :]
    inside &= ((row >= top) & (row < bottom))[:, :, None]
    return placed(np.packbits(inside, axis=2), width, spec, place)


def placed(bits: npt.NDArray[np.uint8], width: int, spec: InputSpec, place: Letterbox) -> Masks:
    """Masks of the whole input, as they lie in the picture.

    Args:
        bits: (n, height, ceil(width / 8)).
        place: of the picture in the input.
    """
    across, down = place.source[0] / place.width, place.source[1] / place.height
    scale = spec.width / width * across, spec.height / bits.shape[1] * down
    return Masks(bits, width, (-place.left * across, -place.top * down), scale)


def filled(coefficients: Floats, protos: Floats, boxes: Floats, spec: InputSpec) -> npt.NDArray[np.bool_]:
    """Whether each box has a mask that is not empty, at the input's resolution: (n,). As in ultralytics, an object
    without a mask is none."""
    full = np.zeros(len(boxes), np.bool_)
    for number, (left, top, right, bottom) in enumerate(boxes):
        columns = np.arange(max(0, np.ceil(left)), min(spec.width, np.ceil(right)), dtype=np.float32)
        rows = np.arange(max(0, np.ceil(top)), min(spec.height, np.ceil(bottom)), dtype=np.float32)
        if len(columns) and len(rows):
            x0, x1, across = _between(columns, spec.width, protos.shape[2])
            y0, y1, down = _between(rows, spec.height, protos.shape[1])
            # Of the prototypes, the part around the box.
            part = np.tensordot(coefficients[number], protos[:, y0[0] : y1[-1] + 1, x0[0] : x1[-1] + 1], 1)
            tall = part[y0 - y0[0]] * (1 - down)[:, None] + part[y1 - y0[0]] * down[:, None]
            full[number] = (tall[:, x0 - x0[0]] * (1 - across) + tall[:, x1 - x0[0]] * across > 0).any()
    return full


def _between(pixels: Floats, size: int, cells: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    """The two cells around each pixel, and the weight of the second."""
    centres = np.clip((pixels + np.float32(0.5)) * np.float32(cells / size) - np.float32(0.5), 0, None)
    low = centres.astype(np.intp)
    return low, np.minimum(low + 1, cells - 1), np.asarray(centres - low, np.float32)
