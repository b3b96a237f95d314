"""Quantised files as OpenVINO computes them right: with activations in uint8.

`lookout calibrate` writes activations in int8 around 0, as engine builders want them. From these OpenVINO 2025.4 and
2026.4 compute other values on a CPU where a tensor is split and joined, and YOLOv8 finds nothing. In uint8 around 128
each value is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detectors.model import read
from detectors.port import BackendUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

_MIDDLE = 128


def unsigned(path: Path) -> bytes | None:
    """The file with activations in uint8; None if it has none in int8.

    Raises:
        BackendUnavailableError: onnx is not installed.
        DetectorError: the file cannot be read.
    """
    if b"QuantizeLinear" not in read(path):
        return None
    try:
        import onnx
    except ImportError as error:
        raise BackendUnavailableError(
            f"{path}: a quantised file needs onnx for model.provider: openvino: pip install onnx"
        ) from error
    model = onnx.load(path)
    return model.SerializeToString() if _convert(model.graph) else None


def _convert(graph: onnx.GraphProto) -> bool:
    """Whether anything was changed."""
    from onnx import TensorProto, numpy_helper

    tensors = {tensor.name: tensor for tensor in graph.initializer}
    changed: set[str] = set()  # outputs of quantisers
    renamed: dict[str, str] = {}
    for node in graph.node:
        is_activation = node.op_type == "QuantizeLinear" and node.input[0] not in tensors
        if not (is_activation or (node.op_type == "DequantizeLinear" and node.input[0] in changed)):
            continue
        if len(node.input) < 3 or node.input[2] not in tensors:
            continue
        zero = tensors[node.input[2]]
        if zero.data_type != TensorProto.INT8 or numpy_helper.to_array(zero).any():
            continue
        if zero.name not in renamed:
            renamed[zero.name] = f"{zero.name}_unsigned"
            middle = (numpy_helper.to_array(zero).astype("int16") + _MIDDLE).astype("uint8")
            graph.initializer.append(numpy_helper.from_array(middle, renamed[zero.name]))
        node.input[2] = renamed[zero.name]
        if is_activation:
            changed.add(node.output[0])
    return bool(changed)
