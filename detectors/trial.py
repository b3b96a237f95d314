"""A trial run of an opened model on a few pictures, which reveals what its file does not show.

A pose or rotated-box model without metadata has outputs of a detector's shape; its key points and angles would be
published as scores. Boxes may be shares of the picture, classes may count from 1, a column may be a class id, and NMS
inside may look at the first picture of a batch alone. Quantisation may have lost all scores. Arithmetic that overflows
in FP16 overflows on noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from detectors.detections import Detections, plausible
from detectors.heads.layout import Head, Outputs
from detectors.heads.values import MAX_SHARE
from detectors.labels import Labels
from detectors.letterbox import fit
from detectors.port import DetectorError, HostImage, PostprocessParams
from detectors.semantics import NOTHING_KNOWN, BoxUnits, Semantics
from detectors.trial_pictures import LEAST_CONFIDENCE, first_pictures, further_pictures

_POSE = 4 + 1 + 17 * 3  # a box, one class, and COCO's key points
_TOLERANCE = 1e-3  # of scores, for FP16 rounding
_MIN_SIZE = 16 * MAX_SHARE  # of an input in which pixels cannot be taken for shares
_DIFFERENT = 0.1  # share of the values of a picture alone, and within a batch
_NEAR = 0.05  # relative difference of two values that are the same but for rounding
_NEAR_PIXELS, _NEAR_SCORE = 4.0, 0.05  # the same, for boxes

Run = Callable[[Head, Sequence[HostImage]], Outputs]
"""Raw outputs of one or two pictures, with the batch dimension."""
ResolveLabels = Callable[[int | None], Labels]
"""The labels for a number of classes, None if unknown."""


@dataclass(frozen=True)
class Trial:
    """A model on trial.

    Attributes:
        run: runs it.
        precision: of its arithmetic.
        stated: the facts that keys or the file state.
        labels: resolves its labels.
        batch: the largest number of pictures in a batch.
    """

    run: Run
    precision: str
    stated: Semantics
    labels: ResolveLabels
    batch: int

    def settle(self, head: Head) -> tuple[Head, Labels]:
        """The head with what the trial shows, and the labels.

        Args:
            head: as the outputs' shapes and the metadata show it.

        Raises:
            DetectorError: the model is not a detector with this head, its arithmetic overflows, or it leaves open what
                no picture shows; the text names the keys that decide.
        """
        seen = _Seen(self.run, head)
        if other := head.other([raw for *_, raw in seen.first]):
            head = self._stated(other)
            seen = _Seen(self.run, head)
        if (shown := head.shown(raw for *_, raw in seen.all())) != NOTHING_KNOWN:
            head = seen.head = head.interpreted(shown)
        for name, _, raw in seen.first:
            _check(name, raw, head, self.precision)
        labels = self.labels(head.classes)
        if head.is_raw:
            _check_scores(seen)
        else:
            head = seen.head = _numbered(seen, labels)
            _check_plausible(seen, labels)
        if self.batch > 1:
            _check_batch(seen)
        return head, labels

    def _stated(self, head: Head) -> Head:
        """Another head with the facts that keys or the file state."""
        ambiguity = head.ambiguity and head.ambiguity.without(self.stated.known)
        if ambiguity:
            raise DetectorError(ambiguity.remedy)
        return replace(head.interpreted(self.stated), ambiguity=None)  # type: ignore[type-var]


class _Seen:
    """A model's outputs for the pictures of a trial; each is run once, when it is asked for."""

    def __init__(self, run: Run, head: Head) -> None:
        self.run, self.head = run, head
        self._pictures = chain(first_pictures(head.spec), further_pictures(head.spec))
        self._known: list[tuple[str, HostImage, Outputs]] = []

    @property
    def first(self) -> list[tuple[str, HostImage, Outputs]]:
        """Name, picture and raw outputs, without the batch dimension, of a grey picture and of noise."""
        return list(islice(self.all(), 2))

    def all(self) -> Iterator[tuple[str, HostImage, Outputs]]:
        """The same of each picture."""
        yield from self._known
        for name, picture in self._pictures:
            raw = {output: values[0] for output, values in self.run(self.head, [picture]).items()}
            self._known.append((name, picture, raw))
            yield self._known[-1]

    def boxes(self, raw: Outputs) -> Detections:
        """The boxes in one picture's raw outputs, nearly without a threshold, in pixels of the input."""
        spec = self.head.spec
        return self.head.detections(raw, fit(spec.width, spec.height, spec), PostprocessParams(LEAST_CONFIDENCE))


def _check(name: str, raw: Outputs, head: Head, precision: str) -> None:
    """Check one picture's raw outputs.

    Raises:
        DetectorError: they are not those of the head, or not finite.
    """
    if not all(np.isfinite(values).all() for values in raw.values()):
        remedy = ": set model.precision: fp32" if precision == "fp16" else ": check that the file is complete"
        raise DetectorError(f"the model computes NaN or infinity for {name} in {precision}{remedy}")
    scores = head.scores(raw)
    low, high = float(scores.min(initial=0.0)), float(scores.max(initial=0.0))
    if low < -_TOLERANCE or high > 1 + _TOLERANCE:
        raise DetectorError(
            f"the model's scores for {name} range from {low:.4g} to {high:.4g}, but scores of {head.name} "
            f"range from 0 to 1: {_likely_kind(raw, head)}"
        )
    if fault := head.fault(raw):
        raise DetectorError(f"the model's boxes for {name} are not those of {head.name}: {fault}")


def _likely_kind(outputs: Outputs, head: Head) -> str:
    """The likely kind of a model with such outputs."""
    (raw, *_) = outputs.values()
    if head.task == "classify":
        return "set model.activation: softmax or sigmoid"
    if head.name == "yolov8" and len(raw) == _POSE:
        return "56 rows indicate a pose model without metadata: export it with ultralytics"
    if head.name == "yolov8" and len(raw) > 5 and raw[4:-1].min() >= 0 and raw[4:-1].max() <= 1:
        return "a last row without scores indicates rotated boxes without metadata: export it with ultralytics"
    return "it is probably a model of another task, or its scores are not activated"


def _check_scores(seen: _Seen) -> None:
    """Check that some picture has a score above 0. A model that is not quantised has one in each of them.

    Raises:
        DetectorError: none has.
    """
    head = seen.head
    if not any(head.has_score(raw) for *_, raw in seen.all()):
        raise DetectorError(
            "all scores are exactly 0, for every picture of a trial: a quantisation with one scale for boxes and "
            "scores has lost them. Quantise it with `lookout calibrate`, or leave the last layers in float"
        )


def _numbered(seen: _Seen, labels: Labels) -> Head:
    """The head of a model that has chosen its boxes itself, with their units and the number of its first class.

    Raises:
        DetectorError: they are other ones than keys or the family state, or no picture shows them.
    """
    head = seen.head
    unknown = head.ambiguity.unknown if head.ambiguity else frozenset()
    if labels.are_numbered:
        unknown -= {"first_class"}
    corners, classes = np.zeros(0, np.float32), np.zeros(0, np.int64)
    for number, (*_, raw) in enumerate(seen.all()):
        boxes, ids = head.chosen(raw)
        corners, classes = np.append(corners, boxes), np.append(classes, ids)
        if number > 0 and _is_shown(unknown, corners, classes, labels):
            break
    shown = Semantics(box_units=_units(head, corners), first_class=_first_class(classes, labels))
    _check_against(head, shown, unknown)
    known = Semantics(**{name: getattr(shown, name) for name in unknown})
    if rest := unknown - known.known:
        remedy = head.ambiguity.remedy if head.ambiguity else ""
        keys = " and ".join(f"model.{name}" for name in sorted(rest))
        raise DetectorError(f"{remedy}. The trial's pictures show nothing that decides: set {keys}")
    return replace(head.interpreted(known), ambiguity=None)  # type: ignore[type-var]


def _is_shown(unknown: frozenset[str], corners: np.ndarray, classes: np.ndarray, labels: Labels) -> bool:
    """Whether more pictures would not help."""
    return ("box_units" not in unknown or len(corners) > 0) and (
        "first_class" not in unknown or _first_class(classes, labels) is not None
    )


def _units(head: Head, corners: np.ndarray) -> BoxUnits | None:
    largest = float(np.abs(corners).max(initial=0.0))
    if largest == 0 or max(head.spec.width, head.spec.height) < _MIN_SIZE:
        return None
    return "shares" if largest <= MAX_SHARE else "pixels"


def _first_class(classes: np.ndarray, labels: Labels) -> int | None:
    """0 if class 0 is there, 1 if there is one more than labels; None if the classes show neither."""
    if (classes == 0).any():
        return 0
    return 1 if (classes == len(labels.names)).any() else None


def _check_against(head: Head, shown: Semantics, unknown: frozenset[str]) -> None:
    """Check what the pictures show against what is known.

    Raises:
        DetectorError: they contradict.
    """
    own = head.semantics
    if shown.box_units and "box_units" not in unknown and own.box_units and own.box_units != shown.box_units:
        what = "shares of the picture, not pixels" if shown.box_units == "shares" else "pixels, not shares"
        raise DetectorError(f"the model's boxes are {what}: set model.box_units: {shown.box_units}")
    if shown.first_class is not None and "first_class" not in unknown and own.first_class is not None:
        if shown.first_class > own.first_class:
            raise DetectorError(
                "the model gives a class that is one more than there are labels: set model.first_class: 1 if its "
                "classes begin at 1, or give the labels of all classes"
            )
        if shown.first_class < own.first_class:
            raise DetectorError("the model gives class 0: set model.first_class: 0")


def _check_plausible(seen: _Seen, labels: Labels) -> None:
    """Check that most boxes of the first pictures with any are possible. Values of another order, and a size in place
    of a corner, make boxes that are not.

    Raises:
        DetectorError: they are not.
    """
    good = bad = 0
    for number, (*_, raw) in enumerate(seen.all()):
        found, impossible = plausible([seen.boxes(raw)], len(labels.names))
        good, bad = good + len(found[0]), bad + impossible
        if number > 0 and good + bad:
            break
    if bad > good:
        count = f"{bad} of {good + bad}" if good else f"all {bad}"
        raise DetectorError(
            f"{count} boxes for the pictures of a trial are impossible, with corners the wrong way round "
            "or classes without a label: the model has boxes as centre or corner and size, is of another family, or "
            "has other labels. Boxes are x1, y1, x2, y2"
        )


def _check_batch(seen: _Seen) -> None:
    """Check that the second picture of a batch has the results that it has alone.

    Raises:
        DetectorError: it has others.
    """
    head = seen.head
    (_, grey, first), *_ = seen.first
    for _, picture, alone in islice(seen.all(), 1, None):
        if not _differ(seen, first, alone):
            continue  # it shows nothing
        second = {name: values[1] for name, values in seen.run(head, [grey, picture]).items()}
        if _is_served(seen, first, alone, second):
            return
        raise DetectorError(
            "the second picture of a batch has other results than alone: the model serves the first picture of a "
            "batch. Set model.max_batch: 1, or export it for batches (NMS inside is often made for one picture)"
        )


def _differ(seen: _Seen, one: Outputs, other: Outputs) -> bool:
    """Whether two pictures have other results; of boxes that the model has chosen, whether there are any."""
    return bool(_far(one, other)) if seen.head.is_raw else len(seen.boxes(other)) > 0


def _is_served(seen: _Seen, first: Outputs, alone: Outputs, second: Outputs) -> bool:
    """Whether a picture has its own results in a batch.

    Args:
        first: results of the first picture of the batch.
        alone, second: results of the second picture, alone and in the batch.
    """
    if not seen.head.is_raw:
        from detectors.decoding_check import are_alike

        return are_alike(seen.boxes(second), seen.boxes(alone), _NEAR_PIXELS, _NEAR_SCORE)
    wrong, values = _far(second, alone), sum(one.size for one in alone.values())
    return wrong <= _DIFFERENT * values and (wrong == 0 or wrong < _far(second, first))


def _far(one: Outputs, other: Outputs) -> int:
    """Number of values that differ by more than rounding; all of them if the shapes differ."""
    count = 0
    for name, values in one.items():
        if values.shape != other[name].shape:
            count += max(values.size, other[name].size)
            continue
        near = _NEAR * (np.abs(values) + np.abs(other[name])) + _TOLERANCE
        count += int((np.abs(values - other[name]) > near).sum())
    return count
