"""Nodes of a model whose values overflow FP16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from calibration.graph import Graph
from calibration.quantize import session_of, with_outputs
from detectors.half import tail

_FP16_MAX = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Overflow:
    """Nodes that must stay FP32.

    Attributes:
        nodes: names of the nodes that make a value beyond FP16, and of those that read one.
        message: the first of them and the value it reaches; empty if there is none.
    """

    nodes: frozenset[str]
    message: str = ""


def overflow_of(model: onnx.ModelProto, inputs: Sequence[npt.NDArray[Any]], threads: int = 0) -> Overflow:
    """Run the model over inputs and check the range of every value that would be FP16.

    Args:
        inputs: (b, 3, height, width) float32 each; a few suffice.
    """
    graph = Graph(model)
    after = tail(model.graph)
    body = [node for number, node in enumerate(graph.nodes) if number not in after and node.op_type != "Constant"]
    made = {name: node for node in body for name in node.output if name}
    session = session_of(with_outputs(model, list(made)), threads)
    names = [entry.name for entry in session.get_outputs() if entry.name in made and "float" in entry.type]
    largest = dict.fromkeys(names, 0.0)
    for batch in inputs:
        for name, values in zip(names, session.run(names, {model.graph.input[0].name: batch})):
            reached = float(np.abs(values).max(initial=0.0))
            largest[name] = reached if np.isnan(reached) else max(largest[name], reached)
    beyond = [name for name in names if not largest[name] <= _FP16_MAX]
    if not beyond:
        return Overflow(frozenset())
    inside = {graph.layer_of(node) for node in body}
    readers = {graph.layer_of(node) for name in beyond for node in graph.readers.get(name, [])}
    nodes = frozenset({graph.layer_of(made[name]) for name in beyond} | (readers & inside))
    first = beyond[0]
    message = f"FP16 overflows at {graph.layer_of(made[first])}: it reaches {largest[first]:.3g}, the largest is 65504"
    return Overflow(nodes, message)
