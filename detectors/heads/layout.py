"""The parts of heads: the facts of a model that identify its head, and the protocols of heads and layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.letterbox import InputSpec, Letterbox
from detectors.onnx_graph import OnnxGraph
from detectors.port import DetectorError, PostprocessParams, Size
from detectors.semantics import NOTHING_KNOWN, Semantics, unit_colours

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]
Shape = tuple[int, ...]
Outputs = Mapping[str, npt.NDArray[np.float32]]
"""A picture's raw outputs by name, without the batch dimension."""
_NMS = ("NonMaxSuppression", "NonZero", "EfficientNMS_TRT", "BatchedNMS_TRT", "BatchedNMSDynamic_TRT")

Task = Literal["detect", "pose", "obb", "segment", "classify"]
TASKS: tuple[Task, ...] = ("detect", "pose", "obb", "segment", "classify")
QueryLayout = Literal["rtdetr", "rfdetr", "detr", "detr-decoded", "detr-rows"]
RowLayout = Literal["yolov5", "yolov8", "yolox", "end2end", "deepstream"]


@dataclass(frozen=True)
class ModelFacts:
    """The facts that a file states about itself.

    Attributes:
        outputs: name and full shape, batch included, of each output.
        size: width and height of the input, pixels.
        metadata: the ONNX file's own key-value pairs.
        inputs: names of further inputs.
        batch: pictures for which the outputs have these shapes; None if unknown.
        graph: None if the file is not here.
    """

    outputs: Sequence[tuple[str, Shape]]
    size: tuple[int, int]
    metadata: Mapping[str, str]
    inputs: Sequence[str] = ()
    batch: int | None = None
    graph: OnnxGraph | None = None

    def shape(self, *names: str) -> Shape | None:
        """The shape of the first output with one of these names."""
        return next((shape for name, shape in self.outputs if name in names), None)

    @property
    def has_nms(self) -> bool:
        """Whether the graph is known, and suppresses boxes."""
        return self.graph is not None and any(self.graph.count(name) for name in _NMS)


@dataclass(frozen=True)
class Ambiguity:
    """Facts that a file leaves open.

    Attributes:
        unknown: names of facts, see `Semantics`.
        remedy: which models it may be, and the keys that decide.
    """

    unknown: frozenset[str]
    remedy: str

    def without(self, known: frozenset[str]) -> Ambiguity | None:
        """The facts that are left open when these are known."""
        rest = self.unknown - known
        return Ambiguity(rest, self.remedy) if rest else None


class Head(Protocol):
    """Decodes the outputs of one model.

    Attributes:
        name: of the layout, with the task if it is not detection, such as "yolov8-pose".
        classes: number of classes; None if the output does not show it.
        spec: the input.
        semantics: the facts of the family, or those that took their place; colours apart, which `spec` has.
        ambiguity: what the file leaves open; None if nothing.
        is_raw: the model gives a score for each place of its grid or for each query. Otherwise it has chosen boxes.
    """

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> Task: ...
    @property
    def classes(self) -> int | None: ...
    @property
    def spec(self) -> InputSpec: ...
    @property
    def constants(self) -> Mapping[str, npt.NDArray[np.int64]]:
        """The values of further inputs, one row, the same for each picture."""
        ...

    @property
    def semantics(self) -> Semantics: ...
    @property
    def ambiguity(self) -> Ambiguity | None: ...
    @property
    def is_raw(self) -> bool: ...

    def interpreted(self, semantics: Semantics) -> Head:
        """The head with these facts in place of its family's.

        Raises:
            DetectorError: its outputs do not leave such a fact open.
        """
        ...

    def detections(self, outputs: Outputs, box: Letterbox, wanted: PostprocessParams) -> Detections:
        """The detections of one picture.

        Args:
            box: place of the picture in the input.
        """
        ...

    def batch_detections(
        self, outputs: Outputs, boxes: Sequence[Letterbox], wanted: PostprocessParams
    ) -> list[Detections]:
        """The detections of each picture of a batch.

        Args:
            outputs: with the batch dimension, for as many pictures as there are boxes or more.
            boxes: place of each picture in the input.
        """
        ...

    def scores(self, outputs: Outputs) -> Floats:
        """The scores in one picture's raw outputs; from 0 to 1."""
        ...

    def has_score(self, outputs: Outputs) -> bool:
        """Whether one picture's raw outputs have a score above 0."""
        ...

    def chosen(self, outputs: Outputs) -> tuple[Floats, Indices]:
        """Corners and class ids of the boxes with a score in one picture's raw outputs, as a model gives them that has
        chosen its boxes itself; none of another model."""
        ...

    def fault(self, outputs: Outputs) -> str | None:
        """The mistake in a layout that others have the shape of, in one picture's raw outputs; None if there is
        none."""
        ...

    def other(self, pictures: Sequence[Outputs]) -> Head | None:
        """The head that the values show, where they are not those of this layout; None if they do not show another
        one.

        Args:
            pictures: raw outputs of each picture.
        """
        ...

    def shown(self, pictures: Iterable[Outputs]) -> Semantics:
        """The facts that only values show.

        Args:
            pictures: raw outputs of each picture, which is run when it is asked for.

        Raises:
            DetectorError: the values are none of a model that Lookout runs.
        """
        ...


def shown(shape: Shape) -> str:
    """A shape in words."""
    return "x".join(map(str, shape)) or "of a single number"


def coloured(spec: InputSpec, semantics: Semantics) -> InputSpec:
    """The input with other colours than the family's.

    Raises:
        DetectorError: no colours have this mean and deviation.
    """
    spec = replace(spec, rgb=spec.rgb if semantics.rgb is None else semantics.rgb)
    mean, std = semantics.mean, semantics.std
    if mean is None and std is None:
        return spec
    if mean is None or std is None:
        raise DetectorError("model.mean and model.std go together: set both")
    units = unit_colours(mean, std)
    if units is None:
        raise DetectorError(
            f"no colours have a mean of {_row(mean)} and a deviation of {_row(std)}: both are for colours of 0 to 1, "
            "such as [0.485, 0.456, 0.406] and [0.229, 0.224, 0.225], or both for colours of 0 to 255"
        )
    return spec.normalising(*units)


def yolox_input(size: Size) -> InputSpec:
    """The input of YOLOX: colours of 0 to 255, BGR."""
    return InputSpec(*size, fit="corner", rgb=False, scale=(1.0, 1.0, 1.0))


def refuse(head: str, semantics: Semantics, *taken: str) -> None:
    """Refuse facts that are no matter of a head.

    Args:
        taken: names of those that are.

    Raises:
        DetectorError: there is one.
    """
    for name in sorted(semantics.known - {"mean", "std", "rgb", *taken}):
        raise DetectorError(f"model.{name} is set, and the outputs of {head} do not leave that open: remove it")


def _row(colour: Sequence[float]) -> str:
    return "[" + ", ".join(f"{part:.6g}" for part in colour) + "]"


class HeadBase:
    """The answers about values of raw outputs of a head whose layout has none of its own; see `Head`."""

    def has_score(self: Head, outputs: Outputs) -> bool:
        return bool((self.scores(outputs) > 0).any())

    def chosen(self, outputs: Outputs) -> tuple[Floats, Indices]:  # noqa: ARG002 - it chooses none
        return np.zeros((0, 4), np.float32), np.zeros(0, np.intp)

    def fault(self, outputs: Outputs) -> str | None:  # noqa: ARG002 - no other has its shape
        return None

    def other(self, pictures: Sequence[Outputs]) -> Head | None:  # noqa: ARG002 - likewise
        return None

    def shown(self, pictures: Iterable[Outputs]) -> Semantics:  # noqa: ARG002 - it is known before
        return NOTHING_KNOWN


class OneByOne(HeadBase):
    """Decodes a batch picture by picture."""

    def batch_detections(
        self: Head, outputs: Outputs, boxes: Sequence[Letterbox], wanted: PostprocessParams
    ) -> list[Detections]:
        """See `Head`."""
        return [
            self.detections({name: array[place] for name, array in outputs.items()}, box, wanted)
            for place, box in enumerate(boxes)
        ]


class Layout(Protocol):
    """A family of heads.

    Attributes:
        name: of the family.
        looks: its outputs in words.
    """

    @property
    def name(self) -> str: ...
    @property
    def looks(self) -> str: ...

    def match(self, facts: ModelFacts, task: Task | None) -> Head | None:
        """The head of a model; None if it is of another family.

        Args:
            task: as the file states it; None if it does not.
        """
        ...
