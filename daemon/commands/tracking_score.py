"""How well tracks fit the truth: HOTA, IDF1, MOTA and switches, by TrackEval."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.errors import LookoutError

Boxes = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScoredFrame:
    """One frame.

    Attributes:
        truth, tracks: ids, (n,) and (m,).
        truth_boxes, track_boxes: their corners, (n, 4) and (m, 4).
    """

    truth: npt.NDArray[np.int64]
    truth_boxes: Boxes
    tracks: npt.NDArray[np.int64]
    track_boxes: Boxes


@dataclass(frozen=True)
class TrackingScore:
    """Percent, and the number of switches: an object gets another id than it had."""

    hota: float
    idf1: float
    mota: float
    switches: int


def open_metrics() -> Any:
    """TrackEval's metrics.

    Raises:
        LookoutError: it is not installed.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from trackeval import metrics
    except ImportError as error:
        raise LookoutError("tracks are scored by TrackEval, which is not installed: pip install trackeval") from error
    return metrics


def score(frames: Sequence[ScoredFrame], metrics: Any) -> TrackingScore:
    """The score of a sequence, by TrackEval's metrics."""
    data = _data(frames)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its settings
        hota = metrics.HOTA().eval_sequence(data)
        identity = metrics.Identity({"PRINT_CONFIG": False}).eval_sequence(data)
        clear = metrics.CLEAR({"PRINT_CONFIG": False}).eval_sequence(data)
    return TrackingScore(
        round(100 * float(np.mean(hota["HOTA"])), 1),
        round(100 * float(identity["IDF1"]), 1),
        round(100 * float(clear["MOTA"]), 1),
        int(clear["IDSW"]),
    )


def _data(frames: Sequence[ScoredFrame]) -> dict[str, Any]:
    """The input of TrackEval's metrics. Ids count from 0 there."""
    truth = _numbered([frame.truth for frame in frames])
    tracks = _numbered([frame.tracks for frame in frames])
    return {
        "num_timesteps": len(frames),
        "num_gt_ids": truth[1],
        "num_tracker_ids": tracks[1],
        "num_gt_dets": sum(map(len, truth[0])),
        "num_tracker_dets": sum(map(len, tracks[0])),
        "gt_ids": truth[0],
        "tracker_ids": tracks[0],
        "similarity_scores": [_overlaps(frame.truth_boxes, frame.track_boxes) for frame in frames],
    }


def _numbered(ids: Sequence[npt.NDArray[np.int64]]) -> tuple[list[npt.NDArray[np.intp]], int]:
    names, numbers = np.unique(np.concatenate(ids), return_inverse=True)
    ends = np.cumsum([len(row) for row in ids])
    return np.split(numbers, ends[:-1]), len(names)


def _overlaps(ones: Boxes, others: Boxes) -> Boxes:
    """IoU of each box with each other, (n, m)."""
    a, b = ones.reshape(-1, 1, 4), others.reshape(1, -1, 4)
    sides = np.maximum(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0)
    common = sides.prod(axis=2)
    areas = (a[..., 2:] - a[..., :2]).prod(axis=2) + (b[..., 2:] - b[..., :2]).prod(axis=2)
    found: Boxes = common / np.maximum(areas - common, 1e-9)
    return found
