"""A model's file in onnxruntime, and the thresholds of all results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from detectors.heads.layout import Head, ModelFacts
from detectors.heads.recognise import recognise
from detectors.onnx_graph import read_graph
from tests.frameworks.expected import PICTURES, Expected
from tests.frameworks.inputs import Floats, Placing
from tests.support.pictures import picture


class OtherVersionError(Exception):
    """A file that another version of its framework makes."""


@dataclass(frozen=True)
class Thresholds:
    confidence: float = 0.25
    iou: float = 0.45
    most: int = 300

    def near(self) -> Iterator[Thresholds]:
        """A little lower and higher."""
        for step in (-1, 1):
            yield Thresholds(self.confidence + step * 0.0005, self.iou, self.most)
            yield Thresholds(self.confidence, self.iou + step * 0.001, self.most)


class Session:
    """A model's file; runs one picture at a time, in one thread."""

    def __init__(self, path: Path) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.graph = read_graph(path.read_bytes())
        self.metadata: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        self.inputs: list[str] = [node.name for node in self._session.get_inputs()]
        self.outputs: list[str] = [node.name for node in self._session.get_outputs()]

    def run(self, *given: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        outputs: list[npt.NDArray[Any]] = self._session.run(None, dict(zip(self.inputs, given)))
        return outputs


def head_of(session: Session, expected: Expected) -> Head:
    """The head of a model, from what its file shows and what its user must name."""
    size = expected.placing.width, expected.placing.height
    planes = np.zeros((1, 3, size[1], size[0]), np.float32)
    further = session.inputs[1:]
    outputs = named(session, planes, [np.array([size], np.int64)] * len(further))
    shapes = [(output, (1, *array.shape)) for output, array in outputs.items()]
    facts = ModelFacts(shapes, size, session.metadata, further, graph=session.graph)
    return recognise(facts, expected.head, given=expected.semantics_beside(session.metadata))


def named(session: Session, planes: Floats, further: list[npt.NDArray[Any]]) -> dict[str, Floats]:
    """The outputs for one picture, by name."""
    names = session.outputs
    return {name: np.asarray(array[0], np.float32) for name, array in zip(names, session.run(planes, *further))}


def pictures(placing: Placing) -> Iterator[tuple[npt.NDArray[np.uint8], Floats]]:
    """Each picture of the tests, and it as model input, (1, 3, height, width)."""
    for number in range(PICTURES):
        pixels = picture(number)
        yield pixels, placing.planes(pixels)[None]
