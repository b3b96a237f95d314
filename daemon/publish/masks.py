"""Masks as they are on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import structlog
from msgspec import UNSET

from daemon.config.publisher import MaskForm
from daemon.pipeline.ledger import Ledger
from detectors.detections import Detections, Masks
from lookout.messages import RunLengths

log = structlog.get_logger(__name__)
Bits = npt.NDArray[np.uint8]


class MaskEncoder:
    """Encodes the masks of each picture, the strongest first, and counts those beyond the limit.

    Args:
        limit: masks of a picture.
        ledger: has the count.
    """

    def __init__(self, form: MaskForm, limit: int, ledger: Ledger) -> None:
        self._form, self._limit, self._ledger = form, limit, ledger

    def column(self, found: Sequence[Detections]) -> list[Any]:
        """The masks of all boxes; UNSET for a box without one."""
        column: list[Any] = []
        for one in found:
            masks = [] if one.masks is None or self._form == "off" else self._encoded(one.masks)
            column += masks
            column += [UNSET] * (len(one) - len(masks))
        return column

    def _encoded(self, masks: Masks) -> list[Any]:
        if (beyond := len(masks.bits) - self._limit) > 0:
            if self._ledger.masks_left_out == 0:
                log.warning("a picture has more masks than publisher.max_masks: the weakest are left out")
            self._ledger.add_masks_left_out(beyond)
        bitmaps = np.unpackbits(masks.bits[: self._limit], axis=2, count=masks.width)
        if self._form == "rle":
            return [run_lengths(bitmap, masks) for bitmap in bitmaps]
        return polygons(bitmaps, masks)


def polygons(bitmaps: Bits, masks: Masks) -> list[list[list[list[float]]]]:
    """The outer rings of each mask, through the centres of its outermost bits, in source pixels to 0.1.

    A part without an area has fewer than three points, and is left out. Rounding all rings at once costs less.
    """
    rings = [
        [ring for ring in cv2.findContours(bitmap, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[0] if len(ring) > 2]
        for bitmap in bitmaps
    ]
    flat = [np.empty((0, 1, 2), np.int32), *(ring for outline in rings for ring in outline)]
    points = iter(np.round((np.concatenate(flat)[:, 0] + 0.5) * masks.scale + masks.origin, 1).tolist())
    return [[list(islice(points, len(ring))) for ring in outline] for outline in rings]


def run_lengths(bitmap: Bits, masks: Masks) -> RunLengths:
    """The bits down each column, as COCO counts them: zeros, ones, zeros, and so on."""
    flat = bitmap.ravel(order="F")
    turns = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    counts: list[int] = np.diff(turns, prepend=0, append=len(flat)).tolist()
    if len(flat) and flat[0]:
        counts.insert(0, 0)
    height, width = bitmap.shape
    (x, y), (across, down) = masks.origin, masks.scale
    return RunLengths((height, width), counts, (_plain(x, 2), _plain(y, 2)), (_plain(across, 6), _plain(down, 6)))


def _plain(value: float, digits: int) -> float:
    """Rounded; no number of numpy's, which msgspec does not encode."""
    return round(float(value), digits)
