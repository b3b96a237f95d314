"""Every TensorRT call of the backend exists in the real bindings of 8.6, 10, 11 and RTX, or is checked before use.

`.ci/run` fetches the bindings; no GPU and no TensorRT are needed.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from detectors.trt.cards import CARDS
from tests.support.daemon import ROOT
from tests.support.needs import BINDINGS, RTX

pytestmark = pytest.mark.needs("bindings", "g++")
_NAMES = ("compat", "builder", "detector", "sized", "lane", "layers", "profiling", "hooks", "library", "owner",
          "reading", "runtime_cache", "tensors", "tensor_names")  # fmt: skip
FILES = [ROOT / "detectors" / "trt" / f"{name}.py" for name in _NAMES]

# Types of names in those files; `x.name` must then exist in TensorRT's class.
CLASSES = {
    "trt": "",
    "_trt": "",
    "builder": "Builder",
    "maker": "Builder",
    "network": "INetworkDefinition",
    "config": "IBuilderConfig",
    "parser": "OnnxParser",
    "problem": "ParserError",
    "profile": "IOptimizationProfile",
    "engine": "ICudaEngine",
    "_runtime": "Runtime",
    "runtime": "Runtime",
    "runtime_config": "IRuntimeConfig",
    "_kernels": "IRuntimeCache",
    "_contexts": "IExecutionContext",
    "context": "IExecutionContext",
    "_context": "IExecutionContext",
    "inspector": "EngineInspector",
    "timings": "ITimingCache",
    "others": "ITimingCache",
}
# Found by hasattr first, so they may be missing; a test below lists those of each version.
ASKED = {
    "8": {
        ("BuilderFlag", "FP16"),
        ("BuilderFlag", "INT8"),
        ("BuilderFlag", "TF32"),
        ("PreviewFeature", "PROFILE_SHARING_0806"),
    },
    "10": {
        ("", "IProgressMonitor"),
        ("IProgressMonitor", "__init__"),
        ("IBuilderConfig", "progress_monitor"),
        ("BuilderFlag", "TF32"),
    },
    "11": {
        ("", "IProgressMonitor"),
        ("IProgressMonitor", "__init__"),
        ("IBuilderConfig", "progress_monitor"),
        ("BuilderFlag", "TF32"),
    },
}
ASKED["10"] |= {("PreviewFeature", "PROFILE_SHARING_0806"), ("BuilderFlag", "FP16")}
_BARE = ("ICudaEngine", "create_execution_context_without_device_memory")
_STRATEGY = "ExecutionContextAllocationStrategy"
_GIVEN = {("", _STRATEGY), (_STRATEGY, "USER_MANAGED"), ("IExecutionContext", "set_device_memory")}
ASKED["8"] |= {_BARE, ("IExecutionContext", "device_memory")}
ASKED["10"] |= {_BARE, ("IExecutionContext", "device_memory"), *_GIVEN}
ASKED["11"] |= _GIVEN
_FOR_CARDS = {("IBuilderConfig", "num_compute_capabilities"), ("IBuilderConfig", "set_compute_capability")}
_COMPILED = {
    *(("IRuntimeCache", name) for name in ("deserialize", "serialize")),
    *(("IRuntimeConfig", name) for name in ("create_runtime_cache", "set_runtime_cache", "cuda_graph_strategy",
      "dynamic_shapes_kernel_specialization_strategy", "set_execution_context_allocation_strategy")),
    *(("", name) for name in ("CudaGraphStrategy", "DynamicShapesKernelSpecializationStrategy", "ComputeCapability",
      "EngineInvalidityDiagnostics")),
    ("CudaGraphStrategy", "DISABLED"),
    ("EngineInvalidityDiagnostics", "__members__"),
    ("DynamicShapesKernelSpecializationStrategy", "EAGER"),
    ("ICudaEngine", "create_runtime_config"),
    ("IExecutionContext", "is_stream_capturable"),
    ("Runtime", "get_engine_validity"),
    ("BuilderFlag", "REQUIRE_USER_ALLOCATION"),
    (_STRATEGY, "STATIC"),
}  # fmt: skip
ASKED["rtx"] = ASKED["11"] | _FOR_CARDS | _COMPILED
# Found by getattr in compat.py: each version must have its own.
NAMED = {
    "8": {("NetworkDefinitionCreationFlag", "EXPLICIT_BATCH"), ("ICudaEngine", "device_memory_size")},
    "10": {("NetworkDefinitionCreationFlag", "STRONGLY_TYPED"), ("ICudaEngine", "device_memory_size_v2")},
    "11": {("NetworkDefinitionCreationFlag", "STRONGLY_TYPED"), ("ICudaEngine", "device_memory_size_v2")},
}
# Each card that `--for` takes is a target.
NAMED["rtx"] = NAMED["11"] | {("ComputeCapability", name.upper().replace("_", "")) for name in CARDS.values()}
TACTICS = {("TacticSource", name) for name in ("EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")}


def _uses() -> Iterator[tuple[str, str]]:
    """(class, name) of each use: `config.set_flag`, `trt.Builder`, `trt.TensorIOMode.INPUT`, `self._contexts[1].x`."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            owner = node.value
            owner = owner.value if isinstance(owner, ast.Subscript) else owner
            name = _name(owner)
            if isinstance(owner, ast.Attribute) and _name(owner.value) in ("trt", "_trt"):
                yield owner.attr, node.attr
            elif name in CLASSES:
                yield CLASSES[name], node.attr


def _name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def test_the_uses_are_found() -> None:
    """The search of the files finds known uses."""
    uses = set(_uses())
    assert {("Builder", "create_network"), ("IExecutionContext", "execute_async_v3"), ("", "OnnxParser")} <= uses
    assert ("TensorIOMode", "INPUT") in uses


@pytest.mark.parametrize("major", ["8", "10", "11", pytest.param("rtx", marks=pytest.mark.needs("tensorrt-rtx"))])
def test_every_call_exists(major: str) -> None:
    script = ROOT / "tests" / "support" / "tensorrt_api.py"
    command = [sys.executable, str(script), str(RTX if major == "rtx" else BINDINGS / major), major]
    offered = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    maybe = set().union(*ASKED.values())
    wanted = {use for use in set(_uses()) - maybe if use[1] != "__version__"} | ASKED[major] | NAMED[major] | TACTICS
    assert {(kind, name) for kind, name in wanted if name not in offered.get(kind, [])} == set()
