"""The tensors of an engine, by what they are for."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorrt as trt

from detectors.port import DetectorError


class TensorNames(NamedTuple):
    """Attributes:
    pictures: the input for pictures.
    further: other inputs.
    """

    pictures: str
    further: list[str]
    outputs: list[str]


def tensor_names(engine: Any) -> TensorNames:
    """
    Raises:
        DetectorError: there is not one input for pictures and an output, or a tensor has a type that none of them has.
    """
    names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
    pictures = [name for name in inputs if len(engine.get_tensor_shape(name)) == 4]
    outputs = [name for name in names if name not in inputs]
    if len(pictures) != 1 or not outputs:
        raise DetectorError(f"the model needs one input for pictures and an output, but has {inputs} and {outputs}")
    floats, integers = (trt.float32, trt.float16), (trt.int32, getattr(trt, "int64", trt.int32))
    for name in names:
        known = floats if name in pictures else integers if name in inputs else (trt.float32, *integers)
        if (kind := engine.get_tensor_dtype(name)) not in known:
            raise DetectorError(f"the model's tensor {name} has type {kind}: export it with floating-point tensors")
    return TensorNames(pictures[0], [name for name in inputs if name not in pictures], outputs)
