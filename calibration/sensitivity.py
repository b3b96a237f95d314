"""The sensitivity of each layer to lower precision, and the number of layers to restore to float."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from calibration.graph import WEIGHTED, Graph, copy_of, quantised_layers, with_float_layers
from calibration.quantize import session_of, with_outputs
from detectors.half import tail

_Row = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Cost:
    """The sensitivity of one layer.

    Attributes:
        noise: error at the head's inputs with only this layer in lower precision: power of the error over power
            of the signal, summed over tensors.
    """

    layer: str
    noise: float


@dataclass(frozen=True)
class Step:
    """One try with the first `layers` of the most sensitive layers in float, and its score."""

    layers: int
    score: float
    kept: bool


def costs(
    float_model: onnx.ModelProto,
    quantised: onnx.ModelProto,
    inputs: Sequence[npt.NDArray[Any]],
    threads: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> list[Cost]:
    """The noise of each quantised layer alone, the most sensitive first.

    Args:
        inputs: (b, 3, height, width) float32 each; a few suffice.
    """
    head = [Graph(float_model).origin(node.input[0]) for node in Graph(float_model).head]
    head_inputs = sorted(set(head))
    names = [Graph(quantised).layer_of(node) for node in quantised_layers(Graph(quantised))]
    reference = _values(float_model, head_inputs, inputs, threads)
    power = _power(head_inputs, reference)
    found = []
    for name in names:
        alone = with_float_layers(quantised, [other for other in names if other != name])
        rows = _values(alone, head_inputs, inputs, threads)
        found.append(Cost(name, _noise(head_inputs, rows, reference, power)))
        advance()
    return sorted(found, key=lambda cost: -cost.noise)


def half_costs(
    model: onnx.ModelProto,
    keep: frozenset[str],
    inputs: Sequence[npt.NDArray[Any]],
    threads: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> list[Cost]:
    """The noise of each layer alone in FP16, with the nodes up to the next layer; the most sensitive first.

    Args:
        keep: nodes that stay FP32 anyway.
        inputs: (b, 3, height, width) float32 each; a few suffice.
    """
    head_inputs = sorted({node.input[0] for node in Graph(model).head})
    reference = _values(model, head_inputs, inputs, threads)
    power = _power(head_inputs, reference)
    found = []
    for layer, names in parts_of(model).items():
        if not names <= keep:
            rows = _values(rounded(model, names - keep), head_inputs, inputs, threads)
            found.append(Cost(layer, _noise(head_inputs, rows, reference, power)))
        advance()
    return sorted(found, key=lambda cost: -cost.noise)


def rounded(model: onnx.ModelProto, names: frozenset[str]) -> onnx.ModelProto:
    """A copy in which these nodes have FP16 weights and outputs but add up in FP32, as on a GPU.

    onnxruntime's CPU computes an FP16 graph in FP32 and rarely rounds between nodes; pairs of casts force the rounding.
    """
    copy = copy_of(model)
    weights = {tensor.name: tensor for tensor in copy.graph.initializer if tensor.data_type == TensorProto.FLOAT}
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    floats = {row.name for row in inferred if row.type.tensor_type.elem_type == TensorProto.FLOAT}
    nodes: list[onnx.NodeProto] = []
    with np.errstate(over="ignore"):
        for node in copy.graph.node:
            nodes.append(node)
            if Graph.layer_of(node) not in names:
                continue
            for place, name in enumerate(node.input):
                if name in weights and node.op_type in WEIGHTED:
                    half = numpy_helper.to_array(weights[name]).astype(np.float16).astype(np.float32)
                    node.input[place] = f"{name}_rounded"
                    copy.graph.initializer.append(numpy_helper.from_array(half, node.input[place]))
            for place, name in enumerate(node.output):
                if name in floats:
                    node.output[place] = f"{name}_exact"
                    nodes.append(helper.make_node("Cast", [f"{name}_exact"], [f"{name}_half"], to=TensorProto.FLOAT16))
                    nodes.append(helper.make_node("Cast", [f"{name}_half"], [name], to=TensorProto.FLOAT))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def parts_of(model: onnx.ModelProto) -> dict[str, frozenset[str]]:
    """The nodes of each weighted layer: the layer and the nodes up to the next one. A node that reads several layers
    belongs to the last; nodes before the first layer belong to the first.
    """
    graph = Graph(model)
    layers = [graph.layer_of(node) for node in graph.weighted]
    outside = tail(model.graph)
    owner: dict[str, int] = {}
    parts: dict[str, set[str]] = {name: set() for name in layers}
    for number, node in enumerate(graph.nodes):
        name = graph.layer_of(node)
        place = layers.index(name) if name in parts else max((owner.get(row, 0) for row in node.input), default=0)
        owner.update(dict.fromkeys(node.output, place))
        if number not in outside and node.op_type != "Constant":
            parts[layers[place]].add(name)
    return {name: frozenset(nodes) for name, nodes in parts.items() if nodes}


def layers_to_restore(
    ranked: Sequence[Cost], score: Callable[[Sequence[str]], float], minimum: float, *, all_first: bool = False
) -> tuple[int | None, list[Step]]:
    """The smallest number of most sensitive layers that must be float to reach a score, and the tries.

    Args:
        score: scores the model with these layers in float.
        all_first: try all of them first and give up if they do not suffice; for slow tries that often fail.

    Returns:
        The number; None if all of them do not suffice.
    """
    steps: list[Step] = []

    def reached(count: int) -> bool:
        value = score([cost.layer for cost in ranked[:count]])
        steps.append(Step(count, value, value >= minimum))
        return value >= minimum

    if all_first and not reached(len(ranked)):
        return None, steps
    below, above = 0, 1
    while not reached(above):
        if above == len(ranked):
            return None, steps
        below, above = above, min(2 * above, len(ranked))
    while above - below > 1:
        middle = (below + above) // 2
        if reached(middle):
            above = middle
        else:
            below = middle
    return above, steps


def _power(names: Sequence[str], rows: Sequence[_Row]) -> dict[str, float]:
    """Signal power of each tensor, summed over inputs."""
    return {name: sum(float(np.square(row[name]).sum()) for row in rows) or 1.0 for name in names}


def _noise(names: Sequence[str], rows: Sequence[_Row], true: Sequence[_Row], power: dict[str, float]) -> float:
    """Error power over signal power, summed over tensors; infinite if a value is not finite."""
    parts = (
        float(np.square(row[name] - exact[name]).sum()) / power[name]
        for row, exact in zip(rows, true)
        for name in names
    )
    noise = sum(parts)
    return noise if np.isfinite(noise) else float("inf")


def _values(
    model: onnx.ModelProto, names: Sequence[str], inputs: Sequence[npt.NDArray[Any]], threads: int
) -> list[_Row]:
    session = session_of(with_outputs(model, names), threads)
    own = session.get_inputs()[0].name
    rows = (session.run(list(names), {own: batch}) for batch in inputs)
    return [{name: array.astype(np.float32) for name, array in zip(names, row)} for row in rows]
