"""How good a model is, by labels where there are some, otherwise by what its float original sees."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal, overload

from calibration.agreement import Agreement, Difference, by_group, compare, threshold
from calibration.bootstrap import Interval, Ruling, drop_of_ap, drop_of_share, more, rule
from calibration.evaluate import Evaluation, Operation, Truth, measure, operation
from calibration.frames import Bgr, Frames
from calibration.matches import Matches
from detectors.detections import Detections, plausible
from detectors.model import sha256
from detectors.port import Detector, DetectorError, HostImage, Options, PostprocessParams

Open = Callable[[Options], Detector]
_LEAST_AP = 0.02  # below it the float model itself sees nothing of what the labels say
AIM = 0.5  # of the budget: who aims at all of it leaves nothing to be proven


@dataclass(frozen=True)
class Score:
    """How a model did.

    Attributes:
        value: what is compared with the float model's: AP, or the share that agrees.
        accuracy, operation: by labels; None without.
        agreement: with the float model; None if there was too little to see.
        interval: of the loss; None for the float model itself.
        more: about how many more units would have decided, see `bootstrap.more`.
    """

    value: float
    accuracy: Evaluation | None
    operation: Operation | None
    agreement: Agreement | None
    interval: Interval | None = None
    ruling: Ruling = "accepted"
    more: int | None = None


@dataclass(frozen=True)
class Look:
    """What a model sees on each frame, and where that is not what the float model sees."""

    found: list[Detections]
    differences: list[Difference] = field(default_factory=list)


class Photos(Sequence[Bgr]):
    """Some of the labelled photos, each read when it is asked for.

    Attributes:
        numbers: in the truth, in rising order.
        names: of the files.
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
    """Photos that steer, and others that judge; those of one clip stay together.

    Args:
        share: of the photos, or clips, that judge; 1 for all, and none steers.

    Raises:
        DetectorError: there are too few for both.
    """
    groups = truth.groups or [str(number) for number in range(len(truth.paths))]
    names = sorted(set(groups))
    random.Random(f"{seed} judging").shuffle(names)  # noqa: S311 - to choose photos by
    judging = set(names[: max(1, round(share * len(names)))])
    parts = [[number for number, name in enumerate(groups) if (name in judging) is one] for one in (False, True)]
    if share < 1 and not parts[0]:
        raise DetectorError(f"{len(groups)} labelled photos are too few to choose by some and judge by others")
    return Photos(truth, parts[0]), Photos(truth, parts[1])


class Judge(ABC):
    """Scores models that one backend opens, by the same engines that will run, one frame at a time.

    Attributes:
        measure: what `Score.value` is.
        frames: that it judges by.
        reference, true: of the float model.
        budget: the loss that is allowed.
        least: the value that keeps to the budget; `aim` leaves half of the budget.

    Args:
        open_model: the backend.
        reference: the float model, as the user runs it.

    Raises:
        DetectorError: the float model cannot be judged: other classes, other photos, nothing to see.
    """

    measure: Literal["AP", "agreement"]

    def __init__(self, open_model: Open, reference: Options, frames: Sequence[Bgr], budget: float, seed: int) -> None:
        self._open, self._seed, self._confidence = open_model, seed, reference.wanted.confidence
        self.frames, self.budget = frames, budget
        self._known: dict[tuple[str, str], float] = {}
        self.true = Look(self._look(reference))
        self.reference = self._score_of_float(reference)
        self.least = round(self.reference.value - budget, 4)
        self.aim = round(self.reference.value - AIM * budget, 4)

    def value(self, options: Options) -> float:
        """A score's value alone; found out once for each file and precision."""
        key = (sha256(options.path.read_bytes()), options.precision)
        if key not in self._known:
            self._known[key] = self._value(options)
        return self._known[key]

    @abstractmethod
    def _value(self, options: Options) -> float: ...

    @abstractmethod
    def judge(self, options: Options) -> tuple[Score, Look]:
        """Everything, with a ruling."""

    @abstractmethod
    def _score_of_float(self, reference: Options) -> Score: ...

    def _ruled(self, score: Score, interval: Interval) -> Score:
        needed = more(interval, self.budget)
        return replace(score, interval=interval, ruling=rule(interval, self.budget), more=needed)

    def _look(self, options: Options) -> list[Detections]:
        wanted = PostprocessParams(threshold(self._confidence))
        with closing(self._open(replace(options, wanted=wanted))) as detector, closing(detector.lane()) as lane:
            found = [lane.detect([HostImage(frame)])[0][0] for frame in self.frames]
            return list(plausible(found, len(detector.info.labels))[0])


class ByLabels(Judge):
    """Judges by COCO AP over labelled photos."""

    measure = "AP"

    def __init__(self, open_model: Open, reference: Options, photos: Photos, budget: float, seed: int = 0) -> None:
        self._photos = photos
        super().__init__(open_model, reference, photos, budget, seed)

    def _value(self, options: Options) -> float:
        return self._evaluate(options)[0].ap

    def judge(self, options: Options) -> tuple[Score, Look]:
        accuracy, matches = self._evaluate(options)
        found = self._look(options)
        try:
            agreement, differences = compare(self.true.found, found, self._confidence)
        except DetectorError:
            agreement, differences = None, []
        score = Score(accuracy.ap, accuracy, self._operation(found), agreement)
        return self._ruled(score, drop_of_ap(self._matches, matches, self._seed)), Look(found, differences)

    def _score_of_float(self, reference: Options) -> Score:
        accuracy, self._matches = self._evaluate(reference)
        if accuracy.ap < _LEAST_AP:
            raise DetectorError(
                f"the float model itself has an AP of {accuracy.ap:.4f} on these photos: are the labels "
                "those of its classes, and the annotations of these photos?"
            )
        return Score(accuracy.ap, accuracy, self._operation(self.true.found), None)

    def _evaluate(self, options: Options) -> tuple[Evaluation, Matches]:
        wanted = PostprocessParams(0.001, 0.65, 300, multi_label=True)  # as COCO counts
        with closing(self._open(replace(options, wanted=wanted))) as detector:
            self._categories = self._photos.truth.categories(detector.info.labels)
            return measure(detector, self._photos.truth, self._photos.numbers)

    def _operation(self, found: Sequence[Detections]) -> Operation:
        return operation(self._photos.truth, self._photos.numbers, self._categories, found, self._confidence)


class ByFloatModel(Judge):
    """Judges by the share of boxes that the float model has too, on frames without labels."""

    measure = "agreement"

    def __init__(self, open_model: Open, reference: Options, frames: Frames, budget: float, seed: int = 0) -> None:
        self._groups, self._unit = frames.groups, frames.unit
        super().__init__(open_model, reference, frames, budget, seed)

    def _value(self, options: Options) -> float:
        return compare(self.true.found, self._look(options), self._confidence)[0].share

    def judge(self, options: Options) -> tuple[Score, Look]:
        found = self._look(options)
        agreement, differences = compare(self.true.found, found, self._confidence)
        counts = by_group(differences, self._groups)
        interval = drop_of_share(1.0, counts, self._seed, self._unit)
        return self._ruled(Score(agreement.share, None, None, agreement), interval), Look(found, differences)

    def _score_of_float(self, reference: Options) -> Score:  # noqa: ARG002 - it agrees with itself
        agreement = compare(self.true.found, self.true.found, self._confidence)[0]
        return Score(agreement.share, None, None, agreement)
