"""Every TensorRT call of the backend exists in the real bindings of 8.6, 10 and 11, or is checked before use.

`.ci/run` fetches the bindings; no GPU and no TensorRT are needed.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.daemon import ROOT
from tests.support.needs import BINDINGS

pytestmark = pytest.mark.needs("bindings", "g++")
_NAMES = ("compat.py", "builder.py", "detector.py", "sized.py", "lane.py", "layers.py", "profiling.py", "reading.py")
FILES = [ROOT / "detectors" / "trt" / name for name in _NAMES]

# Types of names in those files; `x.name` must then exist in TensorRT's class.
CLASSES = {
    "trt": "",
    "builder": "Builder",
    "maker": "Builder",
    "network": "INetworkDefinition",
    "config": "IBuilderConfig",
    "parser": "OnnxParser",
    "problem": "ParserError",
    "profile": "IOptimizationProfile",
    "engine": "ICudaEngine",
    "_runtime": "Runtime",
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
# Found by getattr in compat.py: each version must have its own.
NAMED = {
    "8": {("NetworkDefinitionCreationFlag", "EXPLICIT_BATCH"), ("ICudaEngine", "device_memory_size")},
    "10": {("NetworkDefinitionCreationFlag", "STRONGLY_TYPED"), ("ICudaEngine", "device_memory_size_v2")},
    "11": {("NetworkDefinitionCreationFlag", "STRONGLY_TYPED"), ("ICudaEngine", "device_memory_size_v2")},
}
TACTICS = {("TacticSource", name) for name in ("EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")}


def _uses() -> Iterator[tuple[str, str]]:
    """(class, name) of each use: `config.set_flag`, `trt.Builder`, `trt.TensorIOMode.INPUT`, `self._contexts[1].x`."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            owner = node.value
            owner = owner.value if isinstance(owner, ast.Subscript) else owner
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
            if isinstance(owner, ast.Attribute) and getattr(owner.value, "id", None) == "trt":
                yield owner.attr, node.attr
            elif name in CLASSES:
                yield CLASSES[name], node.attr


def test_the_uses_are_found() -> None:
    """The search of the files finds known uses."""
    uses = set(_uses())
    assert {("Builder", "create_network"), ("IExecutionContext", "execute_async_v3"), ("", "OnnxParser")} <= uses
    assert ("TensorIOMode", "INPUT") in uses


@pytest.mark.parametrize("major", ["8", "10", "11"])
def test_every_call_exists(major: str) -> None:
    script = ROOT / "tests" / "support" / "tensorrt_api.py"
    command = [sys.executable, str(script), str(BINDINGS / major), major]
    offered = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    maybe = set().union(*ASKED.values())
    wanted = {use for use in set(_uses()) - maybe if use[1] != "__version__"} | ASKED[major] | NAMED[major] | TACTICS
    assert {(kind, name) for kind, name in wanted if name not in offered.get(kind, [])} == set()
