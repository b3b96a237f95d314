"""The accuracy of a model: against labels if there are any, else against its float original."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal, overload

from calibration.agreement import Agreement, Difference, by_group, compare, threshold
from calibration.bootstrap import Interval, Ruling, drop_of_ap, drop_of_share, more, ruling_of
from calibration.coco import Evaluation, Operation, Truth, measure, operation
from calibration.frames import Bgr, Frames
from calibration.matches import Matches
from detectors.detections import Detections, plausible
from detectors.model import digest_of
from detectors.port import Detector, DetectorError, HostImage, Options, PostprocessParams

OpenDetector = Callable[[Options], Detector]
_MIN_AP = 0.02  # below it, labels and model do not belong together
AIM_SHARE = 0.5  # of the budget: aiming at all of it leaves no margin for the interval


@dataclass(frozen=True)
class Score:
    """A model's accuracy.

    Attributes:
        value: the compared figure: AP, top-1 accuracy, or the share of matched boxes or classes.
        accuracy, operation: with labels; None without.
        agreement: with the float model; None if there were too few objects.
        interval: of the loss; None for the float model itself.
        more: how many more units would decide, see `bootstrap.more`.
    """

    value: float
    accuracy: Evaluation | None
    operation: Operation | None
    agreement: Agreement | None
    interval: Interval | None = None
    ruling: Ruling = "accepted"
    more: int | None = None


@dataclass(frozen=True)
class Predictions:
    """A model's detections on each frame, and its differences from the float model."""

    found: list[Detections]
    differences: list[Difference] = field(default_factory=list)


class Photos(Sequence[Bgr]):
    """A part of the labelled photos; a photo is read at each access.

    Attributes:
        numbers: indices into the ground truth, in rising order.
        names: file names.
    """

    def __init__(self, truth: Truth, numbers: Sequence[int]) -> None:
        self.truth, self.numbers = truth, list(numbers)
        self.names = [truth.paths[number].name for number in numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, number: int) -> Bgr: ...
    @overload
    def __getitem__(self, number: slice) -> Photos: ...
    def __getitem__(self, number: int | slice) -> Bgr | Photos:
        if isinstance(number, slice):
            return Photos(self.truth, self.numbers[number])
        return self.truth.picture(self.numbers[number])


def split(truth: Truth, share: float, seed: int) -> tuple[Photos, Photos]:
    """Split photos into those for choosing and those for rulings; photos of one clip stay together.

    Args:
        share: share of the photos, or clips, that give rulings; 1 for all of them.

    Raises:
        DetectorError: too few photos for both.
    """
    groups = truth.groups or [str(number) for number in range(len(truth.paths))]
    names = sorted(set(groups))
    random.Random(f"{seed} judging").shuffle(names)  # noqa: S311 - to choose photos by
    test_names = set(names[: max(1, round(share * len(names)))])
    parts = [[number for number, name in enumerate(groups) if (name in test_names) is one] for one in (False, True)]
    if share < 1 and not parts[0]:
        raise DetectorError(f"{len(groups)} labelled photos are too few to choose settings by some and test by others")
    return Photos(truth, parts[0]), Photos(truth, parts[1])


class Evaluator(ABC):
    """Scores models on one backend, with the engines that will run, one frame at a time.

    Attributes:
        measure: the meaning of `Score.value`.
        frames: the frames that models are scored on.
        reference, true: score and detections of the float model.
        budget: the allowed loss.
        least: the lowest value within the budget; `aim` keeps half of the budget as margin.

    Args:
        open_model: opens a model on the backend.
        reference: the float model, as the user runs it.

    Raises:
        DetectorError: the float model cannot be scored: other classes, other photos, or too few objects.
    """

    measure: Literal["AP", "top-1", "agreement"]

    def __init__(
        self, open_model: OpenDetector, reference: Options, frames: Sequence[Bgr], budget: float, seed: int
    ) -> None:
        self._open, self._seed, self._confidence = open_model, seed, reference.wanted.confidence
        self.frames, self.budget = frames, budget
        self._known: dict[tuple[str, str], float] = {}
        self.true = Predictions(self._predict(reference))
        self.reference = self._score_of_float(reference)
        self.least = round(self.reference.value - budget, 4)
        self.aim = round(self.reference.value - AIM_SHARE * budget, 4)

    def value(self, options: Options) -> float:
        """The score's value; measured once per file and precision."""
        key = (digest_of(options.path), options.precision)
        if key not in self._known:
            self._known[key] = self._value(options)
        return self._known[key]

    @abstractmethod
    def _value(self, options: Options) -> float: ...

    @abstractmethod
    def evaluate(self, options: Options) -> tuple[Score, Predictions]:
        """The full score with its ruling, and the detections."""

    @abstractmethod
    def _score_of_float(self, reference: Options) -> Score: ...

    def _with_ruling(self, score: Score, interval: Interval) -> Score:
        needed = more(interval, self.budget)
        return replace(score, interval=interval, ruling=ruling_of(interval, self.budget), more=needed)

    def _predict(self, options: Options) -> list[Detections]:
        wanted = PostprocessParams(threshold(self._confidence))
        with closing(self._open(replace(options, wanted=wanted))) as detector, closing(detector.lane()) as lane:
            found = [lane.detect([HostImage(frame)])[0][0] for frame in self.frames]
            return list(plausible(found, len(detector.info.labels))[0])


class LabelEvaluator(Evaluator):
    """Scores by COCO AP over labelled photos."""

    measure = "AP"

    def __init__(
        self, open_model: OpenDetector, reference: Options, photos: Photos, budget: float, seed: int = 0
    ) -> None:
        self._photos = photos
        super().__init__(open_model, reference, photos, budget, seed)

    def _value(self, options: Options) -> float:
        return self._measure_ap(options)[0].ap

    def evaluate(self, options: Options) -> tuple[Score, Predictions]:
        accuracy, matches = self._measure_ap(options)
        found = self._predict(options)
        try:
            agreement, differences = compare(self.true.found, found, self._confidence)
        except DetectorError:
            agreement, differences = None, []
        score = Score(accuracy.ap, accuracy, self._operation(found), agreement)
        return self._with_ruling(score, drop_of_ap(self._matches, matches, self._seed)), Predictions(found, differences)

    def _score_of_float(self, reference: Options) -> Score:
        accuracy, self._matches = self._measure_ap(reference)
        if accuracy.ap < _MIN_AP:
            raise DetectorError(
                f"the float model itself has an AP of {accuracy.ap:.4f} on these photos: "
                "check that the annotations belong to these photos, and the labels to this model"
            )
        return Score(accuracy.ap, accuracy, self._operation(self.true.found), None)

    def _measure_ap(self, options: Options) -> tuple[Evaluation, Matches]:
        wanted = PostprocessParams(0.001, 0.65, 300, multi_label=True)  # COCO's evaluation settings
        with closing(self._open(replace(options, wanted=wanted))) as detector:
            self._categories = self._photos.truth.categories(detector.info.labels)
            return measure(detector, self._photos.truth, self._photos.numbers)

    def _operation(self, found: Sequence[Detections]) -> Operation:
        return operation(self._photos.truth, self._photos.numbers, self._categories, found, self._confidence)


class AgreementEvaluator(Evaluator):
    """Scores by the share of boxes that agree with the float model's, without labels."""

    measure = "agreement"

    def __init__(
        self, open_model: OpenDetector, reference: Options, frames: Frames, budget: float, seed: int = 0
    ) -> None:
        self._groups, self._unit = frames.groups, frames.unit
        super().__init__(open_model, reference, frames, budget, seed)

    def _value(self, options: Options) -> float:
        return compare(self.true.found, self._predict(options), self._confidence)[0].share

    def evaluate(self, options: Options) -> tuple[Score, Predictions]:
        found = self._predict(options)
        agreement, differences = compare(self.true.found, found, self._confidence)
        counts = by_group(differences, self._groups)
        interval = drop_of_share(1.0, counts, self._seed, self._unit)
        return self._with_ruling(Score(agreement.share, None, None, agreement), interval), Predictions(
            found, differences
        )

    def _score_of_float(self, reference: Options) -> Score:  # noqa: ARG002 - it agrees with itself
        agreement = compare(self.true.found, self.true.found, self._confidence)[0]
        return Score(agreement.share, None, None, agreement)
