"""Scores of classifiers in lower precision: whether the right class still comes first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from calibration.agreement import Difference
from calibration.bootstrap import drop_of_hits
from calibration.classification import labelled, numbers_of
from calibration.evaluator import Evaluator, OpenDetector, Predictions, Score
from calibration.frames import PHOTOS, Bgr, Frames
from detectors.detections import Detections
from detectors.pictures import read_picture
from detectors.port import DetectorError, Options

_MIN_TOP1 = 0.02  # below it, labels and model do not belong together
_NO_CLASS = -1


class LabelledPictures(Sequence[Bgr]):
    """Pictures and their classes; a picture is read at each access.

    Attributes:
        names: file names.
        labels: the class of each.
    """

    def __init__(self, pairs: Sequence[tuple[Path, str]]) -> None:
        self._pairs = pairs
        self.names = [path.name for path, _ in pairs]
        self.labels = [label for _, label in pairs]

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, number: int) -> Bgr: ...
    @overload
    def __getitem__(self, number: slice) -> LabelledPictures: ...
    def __getitem__(self, number: int | slice) -> Bgr | LabelledPictures:
        """A picture, (height, width, 3) uint8 BGR.

        Raises:
            DetectorError: it cannot be read.
        """
        if isinstance(number, slice):
            return LabelledPictures(self._pairs[number])
        path = self._pairs[number][0]
        picture = read_picture(path)
        if picture is None:
            raise DetectorError(f"{path} is not a picture: remove it, or copy it again")
        return picture


def split_pictures(path: Path, share: float, seed: int) -> tuple[LabelledPictures, LabelledPictures]:
    """Split labelled pictures, see `classification.labelled`, into those for choosing and those for rulings.

    Args:
        share: share of the pictures that give rulings; 1 for all of them.

    Raises:
        DetectorError: there are none, or too few for both.
    """
    pairs = labelled(path)
    random.Random(f"{seed} judging").shuffle(pairs)  # noqa: S311 - to choose pictures by
    count = max(1, round(share * len(pairs)))
    if share < 1 and count == len(pairs):
        raise DetectorError(f"{len(pairs)} labelled pictures are too few to choose settings by some and test by others")
    return LabelledPictures(pairs[count:]), LabelledPictures(pairs[:count])


class ClassEvaluator(Evaluator):
    """Scores by the share of pictures whose right class comes first.

    With labels the right class is theirs, and the value is the top-1 accuracy. Without them it is the float model's top
    class, and the value is the agreement.
    """

    measure: Literal["top-1", "agreement"]

    def __init__(
        self,
        open_model: OpenDetector,
        reference: Options,
        pictures: LabelledPictures | Frames,
        budget: float,
        seed: int = 0,
    ) -> None:
        self._pictures = pictures
        self.measure = "top-1" if isinstance(pictures, LabelledPictures) else "agreement"
        self._labels: tuple[str, ...] = ()
        super().__init__(open_model, reference, pictures, budget, seed)

    def evaluate(self, options: Options) -> tuple[Score, Predictions]:
        found = self._predict(options)
        hits = self._hits(found)
        differences = [
            Difference(frame, int(hits[frame]), [0][: len(self.true.found[frame])], [0][: len(found[frame])])
            for frame in np.flatnonzero(self._reference_hits & ~hits).tolist()
        ]
        groups, unit = self._groups()
        interval = drop_of_hits(self._reference_hits, hits, groups, self._seed, unit)
        return self._with_ruling(Score(_share(hits), None, None, None), interval), Predictions(found, differences)

    def _value(self, options: Options) -> float:
        return _share(self._hits(self._predict(options)))

    def _score_of_float(self, reference: Options) -> Score:
        self._right = self._right_classes(reference)
        self._reference_hits = self._hits(self.true.found)
        share = _share(self._reference_hits)
        if share < _MIN_TOP1:
            raise DetectorError(
                f"the float model itself has a top-1 accuracy of {share:.4f} on these pictures: check that their "
                "classes belong to this model, and its labels, too"
            )
        return Score(share, None, None, None)

    def _right_classes(self, reference: Options) -> npt.NDArray[np.int64]:
        """The number of each picture's right class."""
        if not isinstance(self._pictures, LabelledPictures):
            return _top(self.true.found)
        detector = self._open(reference)
        try:
            if detector.info.head != "classify":
                raise DetectorError(f"{detector.info.name} is not a classifier: its head is {detector.info.head}")
            numbers = numbers_of(sorted(set(self._pictures.labels)), detector.info.labels)
        finally:
            detector.close()
        return np.array([numbers[label] for label in self._pictures.labels], np.int64)

    def _hits(self, found: Sequence[Detections]) -> npt.NDArray[np.bool_]:
        return np.asarray(_top(found) == self._right, np.bool_)

    def _groups(self) -> tuple[Sequence[str], str]:
        """The scene of each picture, and the name of the scenes."""
        if isinstance(self._pictures, LabelledPictures):
            return [str(number) for number in range(len(self._pictures))], PHOTOS
        return self._pictures.groups, self._pictures.unit


def _top(found: Sequence[Detections]) -> npt.NDArray[np.int64]:
    return np.array([int(one.class_id[0]) if len(one) else _NO_CLASS for one in found], np.int64)


def _share(hits: npt.NDArray[np.bool_]) -> float:
    return round(float(hits.mean()), 4)
