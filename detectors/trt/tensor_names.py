"""The tensors of an engine, by what they are for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from detectors.port import DetectorError


class TensorRow(NamedTuple):
    """One tensor of an engine."""

    name: str
    is_input: bool
    dimensions: int
    type: Any


class TensorNames(NamedTuple):
    """Attributes:
    pictures: the input for pictures.
    further: other inputs.
    """

    pictures: str
    further: list[str]
    outputs: list[str]


def tensor_names(trt: Any, rows: Sequence[TensorRow]) -> TensorNames:
    """
    Args:
        rows: of plain values: the traceback of an error would keep an engine alive.

    Raises:
        DetectorError: there is not one input for pictures and an output, or a tensor has a type that none of them has.
    """
    inputs, outputs = [row.name for row in rows if row.is_input], [row.name for row in rows if not row.is_input]
    pictures = [row.name for row in rows if row.is_input and row.dimensions == 4]
    if len(pictures) != 1 or not outputs:
        raise DetectorError(f"the model needs one input for pictures and an output, but has {inputs} and {outputs}")
    floats, integers = (trt.float32, trt.float16), (trt.int32, getattr(trt, "int64", trt.int32))
    for row in rows:
        known = floats if row.name in pictures else integers if row.is_input else (trt.float32, *integers)
        if row.type not in known:
            raise DetectorError(
                f"the model's tensor {row.name} has type {row.type}: export it with floating-point tensors"
            )
    return TensorNames(pictures[0], [name for name in inputs if name not in pictures], outputs)
