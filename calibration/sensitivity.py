"""Which layers cost the most, and how many of them to put back to float."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from calibration.graph import Graph, quantised_layers, with_float_layers
from calibration.quantize import session_of, with_outputs


@dataclass(frozen=True)
class Cost:
    """One layer's part in the loss.

    Attributes:
        noise: what quantising this layer alone does to what the head reads: power of the error over power of the
            signal, summed over its tensors.
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
    power = {name: sum(float(np.square(row[name]).sum()) for row in reference) or 1.0 for name in watched}
    found = []
    for name in names:
        alone = with_float_layers(quantised, [other for other in names if other != name])
        rows = _values(alone, watched, inputs, threads)
        noise = sum(
            float(np.square(row[tensor] - true[tensor]).sum()) / power[tensor]
            for row, true in zip(rows, reference)
            for tensor in watched
        )
        found.append(Cost(name, noise))
        advance()
    return sorted(found, key=lambda cost: -cost.noise)


def restore(
    ranked: Sequence[Cost], score: Callable[[Sequence[str]], float], least: float
) -> tuple[int | None, list[Step]]:
    """The fewest of the dearest layers that must be float for a score to be reached, and the tries on the way.

    Args:
        score: of the model in which these layers are float.

    Returns:
        How many; None if not even all of them would do.
    """
    steps: list[Step] = []

    def reached(count: int) -> bool:
        value = score([cost.layer for cost in ranked[:count]])
        steps.append(Step(count, value, value >= least))
        return value >= least

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


def _values(
    model: onnx.ModelProto, names: Sequence[str], inputs: Sequence[npt.NDArray[Any]], threads: int
) -> list[dict[str, npt.NDArray[np.float32]]]:
    session = session_of(with_outputs(model, names), threads)
    own = session.get_inputs()[0].name
    return [dict(zip(names, session.run(list(names), {own: batch}))) for batch in inputs]
