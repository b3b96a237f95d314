"""Which layers cost the most, and how many of them to put back to float."""

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
    """One layer's part in the loss.

    Attributes:
        noise: what lower precision in this layer alone does to what the head reads: power of the error over power of
            the signal, summed over its tensors.
    """

    layer: str
    noise: float


@dataclass(frozen=True)
class Step:
    """One try: so many of the dearest layers in float, and what that scored."""

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
    """Each quantised layer by itself, the dearest first.

    Args:
        inputs: a few, (b, 3, height, width) each.
    """
    head = [Graph(float_model).origin(node.input[0]) for node in Graph(float_model).head]
    watched = sorted(set(head))
    names = [Graph(quantised).layer_of(node) for node in quantised_layers(Graph(quantised))]
    reference = _values(float_model, watched, inputs, threads)
    power = _power(watched, reference)
    found = []
    for name in names:
        alone = with_float_layers(quantised, [other for other in names if other != name])
        rows = _values(alone, watched, inputs, threads)
        found.append(Cost(name, _noise(watched, rows, reference, power)))
        advance()
    return sorted(found, key=lambda cost: -cost.noise)


def half_costs(
    model: onnx.ModelProto,
    keep: frozenset[str],
    inputs: Sequence[npt.NDArray[Any]],
    threads: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> list[Cost]:
    """What each layer costs in FP16 by itself, with the nodes between it and the next; the dearest first.

    Args:
        keep: nodes that stay FP32 in any case.
        inputs: a few, (b, 3, height, width) each.
    """
    watched = sorted({node.input[0] for node in Graph(model).head})
    reference = _values(model, watched, inputs, threads)
    power = _power(watched, reference)
    found = []
    for layer, names in parts_of(model).items():
        if not names <= keep:
            rows = _values(rounded(model, names - keep), watched, inputs, threads)
            found.append(Cost(layer, _noise(watched, rows, reference, power)))
        advance()
    return sorted(found, key=lambda cost: -cost.noise)


def rounded(model: onnx.ModelProto, names: frozenset[str]) -> onnx.ModelProto:
    """A copy in which these nodes have FP16 weights and give FP16 values, as a GPU does that adds up in FP32.

    onnxruntime's CPU computes a graph of FP16 in FP32, and mostly does not round between two nodes; where a graph of
    FP32 asks for it by a pair of casts, it does.
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
    """The nodes of each weighted layer: the layer itself, and what follows until the next one. A node that reads of
    several belongs to the last; those before the first layer belong to the first.
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


def restore(
    ranked: Sequence[Cost], score: Callable[[Sequence[str]], float], least: float, *, all_first: bool = False
) -> tuple[int | None, list[Step]]:
    """The fewest of the dearest layers that must be float for a score to be reached, and the tries on the way.

    Args:
        score: of the model in which these layers are float.
        all_first: begin with all of them, and give up if they will not do: where a try takes long and often fails.

    Returns:
        How many; None if not even all of them would do.
    """
    steps: list[Step] = []

    def reached(count: int) -> bool:
        value = score([cost.layer for cost in ranked[:count]])
        steps.append(Step(count, value, value >= least))
        return value >= least

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
    """Of each tensor, summed over inputs."""
    return {name: sum(float(np.square(row[name]).sum()) for row in rows) or 1.0 for name in names}


def _noise(names: Sequence[str], rows: Sequence[_Row], true: Sequence[_Row], power: dict[str, float]) -> float:
    """Power of the error over power of the signal, summed over tensors; infinite where a value is not a number."""
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
