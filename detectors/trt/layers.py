"""Layers of an engine: fusion, precision and times.

The inspector's JSON differs between versions, and has names only if the engine was built without details. Only this
file reads it; detection does not need it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from math import prod
from statistics import median
from typing import Any

import msgspec
import numpy as np

from detectors.cuda import DeviceBuffer, Stream
from detectors.layer_times import Layer
from detectors.port import DetectorError
from detectors.trt import compat
from detectors.trt.hooks import make_profiler
from detectors.trt.owner import EngineOwner

_TYPES = (("int8", ("int8",)), ("fp8", ("fp8", "e4m3")), ("bf16", ("bf16", "bfloat16")), ("fp16", ("half", "fp16")),
          ("fp32", ("float", "fp32")), ("int32", ("int32",)))  # fmt: skip
_READ = {"i8": "int8", "e4m3": "fp8", "bf16": "bf16", "f16": "fp16", "f32": "fp32"}
# Input and output type in a kernel's name, such as "gemm_interleaved_i8f16_i8i32_f32".
_TACTIC = re.compile(r"_(i8|e4m3|bf16|f16|f32)(i8|e4m3|bf16|f16|f32)_")
_PAIR = re.compile(r"quantizelinear|quantize_scale|_quantize", re.IGNORECASE)
_FUSED = re.compile(r"\s\+\s|\|\|")


def inspect(trt: Any, engine: Any, context: Any) -> list[Layer]:
    """The layers of an engine, in order.

    Args:
        context: with input shapes set; without it TensorRT reports no types for dynamic batches.
    """
    inspector = engine.create_engine_inspector()
    inspector.execution_context = context
    return read(inspector.get_engine_information(trt.LayerInformationFormat.JSON))


def read(text: str) -> list[Layer]:
    """Parse the inspector's JSON."""
    # 8.6 writes control characters between names, which strict JSON forbids.
    rows: Iterable[Any] = json.loads(text, strict=False).get("Layers", [])
    return [_layer({"Name": row} if isinstance(row, str) else row) for row in rows]


def with_times(layers: Iterable[Layer], times: Mapping[str, float]) -> list[Layer]:
    """The layers with their milliseconds."""
    return [msgspec.structs.replace(layer, milliseconds=times.get(layer.name)) for layer in layers]


class LayerTimer:
    """Runs an engine layer by layer, on zeros. It owns its context and no engine, as an error's traceback keeps both
    alive.

    Raises:
        DetectorError: no memory for another context.
    """

    def __init__(self, owner: EngineOwner) -> None:
        self._trt, self._owner = owner.trt, owner
        self._context: Any = compat.make_own_context(owner.trt, owner.engine, owner.compiled)
        if self._context is None:
            raise DetectorError("no memory for another execution context")

    def run(self, batch: int, size: tuple[int, int], runs: int) -> list[Layer]:
        """The layers, with the median of their times.

        Args:
            size: width and height of the input, in pixels.

        Raises:
            DetectorError: the engine refuses the batch, or fails.
        """
        rows: dict[str, list[float]] = {}
        names = self._set_shapes(batch, size)
        with ExitStack() as undo:
            stream = undo.enter_context(closing(Stream()))
            for name in names:
                buffer = undo.enter_context(closing(DeviceBuffer(self._bytes(name))))
                buffer.clear(stream)
                self._context.set_tensor_address(name, buffer.pointer)
            self._context.profiler = make_profiler(self._trt, rows)
            for _ in range(runs):
                if not self._context.execute_async_v3(stream.handle):
                    raise DetectorError(f"TensorRT failed on a batch of {batch}: see the log above")
                stream.synchronize()
        medians = {name: median(times) for name, times in rows.items()}
        return with_times(inspect(self._trt, self._owner.engine, self._context), medians)

    def close(self) -> None:
        self._context = None

    def _set_shapes(self, batch: int, size: tuple[int, int]) -> list[str]:
        """Set the shapes of all inputs; returns the names of all tensors."""
        names = [self._owner.engine.get_tensor_name(number) for number in range(self._owner.engine.num_io_tensors)]
        for name in names:
            if self._owner.engine.get_tensor_mode(name) == self._trt.TensorIOMode.INPUT:
                rest = tuple(self._owner.engine.get_tensor_shape(name))[1:]
                rest = (3, size[1], size[0]) if len(rest) == 3 else rest
                if not self._context.set_input_shape(name, (batch, *rest)):
                    raise DetectorError(f"TensorRT refuses batches of {batch}: see the log above")
        return names

    def _bytes(self, name: str) -> int:
        kind = np.dtype(self._trt.nptype(self._owner.engine.get_tensor_dtype(name)))
        return int(prod(self._context.get_tensor_shape(name)) * kind.itemsize)


def _layer(row: Mapping[str, Any]) -> Layer:
    name, kind = str(row.get("Name", "")), str(row.get("LayerType", ""))
    parts = [part.strip() for part in _FUSED.split(name) if part.strip()]
    quantises = [part for part in parts if _PAIR.search(part)]
    tactic = _TACTIC.search(str(row.get("TacticName", "")))
    reads, writes = (_READ[name] for name in tactic.groups()) if tactic else (None, None)
    return Layer(
        name=name,
        kind=kind,
        parts=parts,
        precision=_type(row.get("Inputs", ())) or reads,
        output=_type(row.get("Outputs", ())) or writes,
        unfused=bool(quantises) and len(quantises) == len(parts),
    )


def _type(tensors: Iterable[Any]) -> str | None:
    """The type of the first tensor; 8.6 writes "Row major linear FP32" and the like, 11 has a field."""
    for tensor in tensors:
        if isinstance(tensor, Mapping):
            text = str(tensor.get("DataType") or tensor.get("Datatype") or tensor.get("Format/Datatype") or "").lower()
            for name, signs in _TYPES:
                if any(sign in text for sign in signs):
                    return name
    return None
