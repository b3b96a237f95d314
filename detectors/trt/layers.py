"""Layer by layer: what TensorRT fused, what runs in which precision, and where the time goes.

What an engine tells of itself is JSON whose names differ between versions, and strings alone where it was built without
details; all of it is read here, and nothing of it is needed to run.
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
# Of a kernel's name, such as "gemm_interleaved_i8f16_i8i32_f32": what it reads and what it writes.
_TACTIC = re.compile(r"_(i8|e4m3|bf16|f16|f32)(i8|e4m3|bf16|f16|f32)_")
_PAIR = re.compile(r"quantizelinear|quantize_scale|_quantize", re.IGNORECASE)
_FUSED = re.compile(r"\s\+\s|\|\|")


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes:
    parts: the layers of the graph it was fused from, as TensorRT writes them.
    precision: of what it reads; None where the engine was built without details.
    output: of what it writes.
    loose: it is a quantise or dequantise that was fused with nothing.
    milliseconds: of one batch, median; None if it was not run.
    """

    name: str
    kind: str
    parts: list[str]
    precision: str | None
    output: str | None
    loose: bool
    milliseconds: float | None = None


def inspect(engine: Any, context: Any) -> list[Layer]:
    """The layers of an engine, in their order.

    Args:
        context: with its input's shape set; without, TensorRT names no types where batches are of any size.
    """
    inspector = engine.create_engine_inspector()
    inspector.execution_context = context
    return read(inspector.get_engine_information(trt.LayerInformationFormat.JSON))


def read(text: str) -> list[Layer]:
    """What an engine's inspector says."""
    # Between the graph's layers 8.6 writes a control character, which is no JSON.
    rows: Iterable[Any] = json.loads(text, strict=False).get("Layers", [])
    return [_layer({"Name": row} if isinstance(row, str) else row) for row in rows]


def with_times(layers: Iterable[Layer], times: Mapping[str, float]) -> list[Layer]:
    """The same, with the milliseconds that each took."""
    return [msgspec.structs.replace(layer, milliseconds=times.get(layer.name)) for layer in layers]


class Times(trt.IProfiler):  # type: ignore[misc]
    """What each layer took in each run of a context whose `profiler` it is.

    Attributes:
        rows: milliseconds by layer, one for each run.
    """

    def __init__(self) -> None:
        trt.IProfiler.__init__(self)
        self.rows: dict[str, list[float]] = {}

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """TensorRT calls it by name."""
        self.rows.setdefault(layer_name, []).append(ms)


def _layer(row: Mapping[str, Any]) -> Layer:
    name, kind = str(row.get("Name", "")), str(row.get("LayerType", ""))
    parts = [part.strip() for part in _FUSED.split(name) if part.strip()]
    quantises = [part for part in parts if _PAIR.search(part)]
    tactic = _TACTIC.search(str(row.get("TacticName", "")))
    reads, writes = (_READ[word] for word in tactic.groups()) if tactic else (None, None)
    return Layer(
        name=name,
        kind=kind,
        parts=parts,
        precision=_type(row.get("Inputs", ())) or reads,
        output=_type(row.get("Outputs", ())) or writes,
        loose=bool(quantises) and len(quantises) == len(parts),
    )


def _type(tensors: Iterable[Any]) -> str | None:
    """Of the first tensor; 8.6 says "Row major linear FP32" and the like, 11 has a field for it."""
    for tensor in tensors:
        if isinstance(tensor, Mapping):
            words = str(tensor.get("DataType") or tensor.get("Datatype") or tensor.get("Format/Datatype") or "").lower()
            for name, signs in _TYPES:
                if any(sign in words for sign in signs):
                    return name
    return None
