"""Layers of an engine: fusion, precision and times.

The inspector's JSON differs between versions, and has names only if the engine was built without details. Only this
file reads it; detection does not need it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import tensorrt as trt

_TYPES = (("int8", ("int8",)), ("fp8", ("fp8", "e4m3")), ("bf16", ("bf16", "bfloat16")), ("fp16", ("half", "fp16")),
          ("fp32", ("float", "fp32")), ("int32", ("int32",)))  # fmt: skip
_READ = {"i8": "int8", "e4m3": "fp8", "bf16": "bf16", "f16": "fp16", "f32": "fp32"}
# Input and output type in a kernel's name, such as "gemm_interleaved_i8f16_i8i32_f32".
_TACTIC = re.compile(r"_(i8|e4m3|bf16|f16|f32)(i8|e4m3|bf16|f16|f32)_")
_PAIR = re.compile(r"quantizelinear|quantize_scale|_quantize", re.IGNORECASE)
_FUSED = re.compile(r"\s\+\s|\|\|")


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes:
    parts: names of the graph's layers that were fused, as TensorRT writes them.
    precision: of the inputs; None if the engine was built without details.
    output: precision of the output.
    unfused: the layer is a Q/DQ node that was not fused.
    milliseconds: median of one batch; None if not measured.
    """

    name: str
    kind: str
    parts: list[str]
    precision: str | None
    output: str | None
    unfused: bool
    milliseconds: float | None = None


def inspect(engine: Any, context: Any) -> list[Layer]:
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


class Times(trt.IProfiler):  # type: ignore[misc]
    """A profiler that records the time of each layer in each run.

    Attributes:
        rows: milliseconds by layer, one per run.
    """

    def __init__(self) -> None:
        trt.IProfiler.__init__(self)
        self.rows: dict[str, list[float]] = {}

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Called by TensorRT."""
        self.rows.setdefault(layer_name, []).append(ms)


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
