"""AP of a detector with a region of interest and with tiles, beside that of whole pictures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from calibration.coco import Evaluation, Share, Tell, Truth, score, told
from detectors.detections import Detections, plausible
from detectors.port import Detector, DetectorError, HostImage, Lane, Region
from detectors.views import Limits, Tiling, detect


@dataclass(frozen=True)
class ViewOptions:
    """Views to compare with whole pictures.

    Attributes:
        roi: left, top, right and bottom of the region of interest, as shares of the picture; None for whole pictures.
        tilings: each is evaluated.
        limits: of the merged boxes.
    """

    roi: Share | None
    tilings: Sequence[Tiling]
    limits: Limits


@dataclass(frozen=True)
class ViewScore:
    """The figures of one view.

    Attributes:
        pictures: that the model sees for a frame.
    """

    view: str
    pictures: int
    figures: Evaluation


@dataclass(frozen=True)
class ViewComparison:
    """The same photos in several views, whole pictures first."""

    views: list[ViewScore]


def compare(detector: Detector, truth: Truth, options: ViewOptions, tell: Tell | None = None) -> ViewComparison:
    """Run the detector over every labelled photo, once in each view.

    With a region of interest, objects and boxes whose centre lies outside count in no view.

    Args:
        truth: of the region of interest.
        tell: called before each photo of each view.

    Raises:
        DetectorError: a photo cannot be read, the labels do not match, or results of tiles cannot be merged.
    """
    if detector.info.head.rpartition("-")[2] in ("segment", "classify") and options.tilings:
        raise DetectorError(f"tiles are for models that detect boxes, and the head of this one is {detector.info.head}")
    rows: list[tuple[str, Tiling | None, Share | None]] = [("whole picture", None, None)]
    if options.roi:
        rows.append(("region of interest", None, options.roi))
    rows += [(_name(tiling), tiling, options.roi) for tiling in options.tilings]
    scores, photos = list[ViewScore](), len(truth.paths)
    with closing(detector.lane()) as lane:
        for number, (name, tiling, roi) in enumerate(rows):
            view = _View(tiling, roi, _after(tell, number * photos, len(rows) * photos))
            scores.append(
                ViewScore(name, tiling.pictures if tiling else 1, _measure(detector, lane, truth, options, view))
            )
    return ViewComparison(scores)


@dataclass(frozen=True)
class _View:
    tiling: Tiling | None
    roi: Share | None
    tell: Tell | None


def _after(tell: Tell | None, before: int, total: int) -> Tell | None:
    """Tells what is done in one view, behind what was done before."""
    return None if tell is None else lambda done, _: tell(before + done, total)


def _measure(detector: Detector, lane: Lane, truth: Truth, options: ViewOptions, view: _View) -> Evaluation:
    categories, numbers = truth.categories(detector.info.labels), range(len(truth.paths))
    found = []
    for number in told(numbers, view.tell):
        picture = HostImage(truth.picture(number))
        hull = _region(view.roi, picture)
        regions = view.tiling.regions(hull) if view.tiling else (hull,)
        (seen,), _ = detect(lane, [picture], [regions], detector.info.max_batch, options.limits)
        found.append(_within(seen, options.roi, picture) if options.roi else seen)
    return score(truth, numbers, categories, plausible(found, len(categories))[0])[0]


def _name(tiling: Tiling) -> str:
    return f"{tiling.columns}x{tiling.rows} tiles" + (" and the whole" if tiling.whole else "")


def _region(roi: Share | None, picture: HostImage) -> Region:
    """The region in whole pixels."""
    if roi is None:
        return Region(0, 0, picture.width, picture.height)
    left, top = floor(roi[0] * picture.width), floor(roi[1] * picture.height)
    return Region(left, top, ceil(roi[2] * picture.width) - left, ceil(roi[3] * picture.height) - top)


def _within(found: Detections, roi: Share, picture: HostImage) -> Detections:
    """The boxes whose centre lies in the region."""
    centres = (found.xyxy[:, :2] + found.xyxy[:, 2:]) / np.array([2 * picture.width, 2 * picture.height], np.float32)
    return found.select(np.flatnonzero(((centres >= roi[:2]) & (centres <= roi[2:])).all(axis=1)))
