"""FP8 Q/DQ pairs, made by NVIDIA ModelOpt, which brings torch and six gigabytes; TensorRT 10 and 11 build them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from calibration.graph import Graph
from calibration.quantize import mark
from detectors.port import DetectorError


def unsupported_reason() -> str | None:
    """Why FP8 cannot be made here; None if it can."""
    return None if find_spec("modelopt") else "FP8 is made by ModelOpt: pip install 'nvidia-modelopt[onnx]'"


def to_fp8(model: onnx.ModelProto, inputs: Sequence[npt.NDArray[Any]]) -> onnx.ModelProto:
    """An FP8 copy; the head stays float.

    Args:
        inputs: (b, 3, height, width) float32 each.

    Raises:
        DetectorError: ModelOpt is not installed, or fails.
    """
    if reason := unsupported_reason():
        raise DetectorError(reason)
    from modelopt.onnx.quantization import quantize

    graph = Graph(model)
    with tempfile.TemporaryDirectory(prefix="lookout-") as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "fp8.onnx"
        onnx.save(model, str(source))
        try:
            quantize(
                str(source),
                quantize_mode="fp8",
                calibration_data={model.graph.input[0].name: np.concatenate(list(inputs))},
                calibration_eps=["cpu"],
                high_precision_dtype="fp32",
                nodes_to_exclude=[f"^{graph.layer_of(node)}$" for node in graph.head],
                output_path=str(target),
            )
            result = onnx.load(str(target))
        except Exception as error:  # ModelOpt's exceptions have no common base
            raise DetectorError(
                f"ModelOpt cannot make FP8 of this model: {str(error).splitlines()[0][:160]}"
            ) from error
    mark(result, "fp8")
    return result
