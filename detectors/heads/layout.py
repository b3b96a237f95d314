"""The parts of heads: the facts of a model that identify its head, and the protocols of heads and layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from detectors.detections import Detections
from detectors.letterbox import InputSpec, Letterbox
from detectors.port import PostprocessParams

Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]
Outputs = Mapping[str, npt.NDArray[np.float32]]
"""A picture's raw outputs by name, without the batch dimension."""

Task = Literal["detect", "pose", "obb", "segment", "classify"]
TASKS: tuple[Task, ...] = ("detect", "pose", "obb", "segment", "classify")


@dataclass(frozen=True)
class ModelFacts:
    """The facts that a file states about itself.

    Attributes:
        outputs: name and full shape, batch included, of each output.
        size: width and height of the input, pixels.
        metadata: the ONNX file's own key-value pairs.
        inputs: names of further inputs.
        batch: pictures for which the outputs have these shapes; None if unknown.
    """

    outputs: Sequence[tuple[str, Shape]]
    size: tuple[int, int]
    metadata: Mapping[str, str]
    inputs: Sequence[str] = ()
    batch: int | None = None

    def shape(self, *names: str) -> Shape | None:
        """The shape of the first output with one of these names."""
        return next((shape for name, shape in self.outputs if name in names), None)


class Head(Protocol):
    """Decodes the outputs of one model.

    Attributes:
        name: of the layout, with the task if it is not detection, such as "yolov8-pose".
        classes: number of classes; None if the output does not show it.
        spec: the input.
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


class OneByOne:
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
