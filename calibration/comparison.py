"""Tensor-by-tensor comparison of a model on two backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from calibration.graph import Graph
from calibration.quantize import session_of, with_outputs
from detectors.heads.layout import Floats


@dataclass(frozen=True)
class TensorDifference:
    """One tensor.

    Attributes:
        made_by: operator and name of its node.
        largest: greatest magnitude of the exact values.
        error: norm of the difference over norm of the exact values; infinite if a value is not finite.
        nans, infinities: numbers of such values where the exact value is finite.
    """

    name: str
    made_by: str
    largest: float
    error: float
    nans: int
    infinities: int


def compared_tensors(model: onnx.ModelProto, *, everything: bool = False) -> list[str]:
    """Names of the tensors to compare: inputs of weighted layers and the model's outputs, or every node's output."""
    graph = Graph(model)
    outputs = {entry.name for entry in model.graph.output}
    wanted = outputs.union(graph.origin(node.input[0]) for node in graph.weighted)
    found = (name for node in graph.nodes for name in node.output if node.op_type != "Constant")
    return [name for name in found if everything or name in wanted]


def exact_values(model: onnx.ModelProto, names: Sequence[str], pixels: Floats) -> dict[str, npt.NDArray[np.generic]]:
    """The tensors' values, computed by onnxruntime on the CPU.

    Args:
        pixels: (1, 3, height, width) float32.
    """
    session = session_of(with_outputs(model, names))
    wanted = [entry.name for entry in session.get_outputs() if entry.name in names and "float" in entry.type]
    return dict(zip(wanted, session.run(wanted, {session.get_inputs()[0].name: pixels})))


def compare(
    model: onnx.ModelProto, exact: Mapping[str, npt.NDArray[np.generic]], other: Mapping[str, Floats]
) -> list[TensorDifference]:
    """The differences of tensors that both sides have, in order of computation."""
    rows = []
    for node in model.graph.node:
        for name in node.output:
            if name in exact and name in other:
                kind = f"{node.op_type} {Graph.layer_of(node)}"
                rows.append(_difference(name, kind, exact[name].astype(np.float64), other[name].astype(np.float64)))
    return rows


def _difference(
    name: str, kind: str, exact: npt.NDArray[np.float64], other: npt.NDArray[np.float64]
) -> TensorDifference:
    finite = np.isfinite(exact)
    nans, infinities = int((np.isnan(other) & finite).sum()), int((np.isinf(other) & finite).sum())
    whole = finite & np.isfinite(other)
    size = float(np.linalg.norm(exact[finite])) or 1.0
    error = float(np.linalg.norm(other[whole] - exact[whole])) / size
    largest = float(np.abs(exact[finite]).max(initial=0.0))
    return TensorDifference(name, kind, largest, float("inf") if nans or infinities else error, nans, infinities)
