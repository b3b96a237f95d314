"""Where TensorRT 8.6, 10 and 11 differ: everything else of the backend is the same for all three.

| | 8.6 | 10 | 11 |
|---|---|---|---|
| explicit batch | a flag, required | a flag, ignored | always |
| FP16 | builder flag | builder flag | in the graph alone: networks are strongly typed |
| contexts sharing a profile | a preview feature | always | always |

Integers behind the enums move from version to version: names only, and asked for before they are used.
"""

from __future__ import annotations

from typing import Any, Literal

from detectors.port import DetectorError

Precision = Literal["fp32", "fp16"]


def version_of(trt: Any) -> str:
    """Such as "8.6.0"."""
    return str(trt.__version__)


def make_network(trt: Any, builder: Any) -> Any:
    """An empty network with an explicit batch dimension."""
    flags = trt.NetworkDefinitionCreationFlag
    return builder.create_network(1 << int(flags.EXPLICIT_BATCH) if hasattr(flags, "EXPLICIT_BATCH") else 0)


def set_precision(trt: Any, config: Any, precision: Precision) -> str:
    """Tell the builder the precision; says which road was taken. FP32 is FP32: TF32 rounds to 10 bits and is off.

    Raises:
        DetectorError: this TensorRT takes precision from the graph alone.
    """
    flags = trt.BuilderFlag
    if hasattr(flags, "TF32"):
        config.clear_flag(flags.TF32)
    if precision == "fp32":
        return "FP32 as the graph has it"
    if not hasattr(flags, "FP16"):
        raise DetectorError(
            f"TensorRT {version_of(trt)} takes FP16 from the graph alone: give it a model converted to FP16, as fp32"
        )
    config.set_flag(flags.FP16)
    return "FP16 by builder flag"


def set_tactics(trt: Any, config: Any) -> None:
    """TensorRT's own convolutions: YOLO needs no others, and an engine without cuBLAS and cuDNN loads without them."""
    names = ("EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")
    known = [getattr(trt.TacticSource, name) for name in names if hasattr(trt.TacticSource, name)]
    config.set_tactic_sources(sum(1 << int(source) for source in known))


def share_profiles(trt: Any, config: Any) -> None:
    """So that each lane's context can use the one optimisation profile."""
    if hasattr(trt.PreviewFeature, "PROFILE_SHARING_0806"):
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)
