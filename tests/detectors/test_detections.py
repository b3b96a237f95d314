"""Removal of impossible boxes."""

from __future__ import annotations

from math import nan

import numpy as np

from detectors.detections import Detections, nothing, plausible


def _boxes(*rows: tuple[float, float, float, float, float, int]) -> Detections:
    table = np.array(rows, np.float64).reshape(-1, 6)
    return Detections(table[:, :4].astype(np.float32), table[:, 4].astype(np.float32), table[:, 5].astype(np.int32))


def test_good_boxes_keep_their_order() -> None:
    good, other = (1, 2, 3, 4, 0.9, 1), (0, 0, 0, 0, 1.0, 0)
    bad = [
        (nan, 0, 1, 1, 0.5, 0),
        (3, 0, 1, 1, 0.5, 0),
        (0, 0, 1, 1, 1.5, 0),
        (0, 0, 1, 1, 0.5, 2),
        (0, 0, 1, 1, 0.5, -1),
    ]
    found = [_boxes(bad[0], good, bad[1], other), nothing(), _boxes(*bad[2:]), _boxes(other)]
    kept, left_out = plausible(found, 2)
    assert [one.confidence.tolist() for one in kept] == [[np.float32(0.9), 1.0], [], [], [1.0]]
    assert kept[0].xyxy.tolist() == [[1, 2, 3, 4], [0, 0, 0, 0]]
    assert left_out == 5


def test_good_boxes_are_not_copied() -> None:
    found = [_boxes((1, 2, 3, 4, 0.9, 1)), nothing()]
    assert plausible(found, 2) == (found, 0)
