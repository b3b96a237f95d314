"""The house rules that a test can hold: who imports whom, who may speak of GPUs, and no print, no wall clock."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [path for package in ("daemon", "detectors", "calibration") for path in sorted((ROOT / package).rglob("*.py"))]
TESTS = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if path.parent.name != "speed"]
GPU_FILES = (
    "detectors/trt/",
    "detectors/cuda.py",
    "detectors/nvrtc.py",
    "detectors/factory.py",
    "daemon/sources/nvdec/",
    "daemon/system/gpus.py",
    "daemon/system/mps.py",
    "daemon/monitoring/probes.py",
    "calibration/portable.py",  # the rules of three versions
    "calibration/quantize.py",
    "calibration/fp8.py",
    "calibration/calibrate.py",
    "daemon/commands/report/calibration.py",
)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_imports_go_one_way(path: Path) -> None:
    """detectors know nobody, calibration knows detectors; of the daemon, only the command line knows calibration."""
    package = _name(path).partition("/")[0]
    forbidden = {"detectors": ("daemon", "calibration"), "calibration": ("daemon",), "daemon": ("calibration",)}[
        package
    ]
    if _name(path).startswith(("daemon/cli.py", "daemon/commands/")):
        forbidden = ()
    assert [name for name in _imports(path) if name.partition(".")[0] in forbidden] == []


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_backends_are_known_to_the_factory_alone(path: Path) -> None:
    """Only a backend's own folder, the factory, and the bench that measures it import a backend."""
    name = _name(path)
    if name.startswith(("detectors/cpu/", "detectors/fake/", "detectors/trt/")) or name in (
        "detectors/factory.py",
        "daemon/bench/efficiency.py",
    ):
        return
    backends = ("detectors.cpu", "detectors.fake", "detectors.trt")
    assert [module for module in _imports(path) if module.startswith(backends)] == []


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_gpus_are_named_in_their_files_alone(path: Path) -> None:
    """CUDA, TensorRT and NVML are details; fields of the wire and options on the command line may carry their names."""
    if _name(path).startswith(GPU_FILES):
        return
    words = re.findall(r"\bcuda\b|tensorrt|pynvml|nvml(?!_)", path.read_text(), re.IGNORECASE)
    allowed = {"daemon/messages.py": 1}.get(_name(path), 0)  # GpuMetrics says where its figures come from
    assert len(words) <= allowed, words


def test_no_thread_takes_a_name_that_python_keeps_for_itself() -> None:
    """`_stop` breaks join up to Python 3.12, `_handle` hides a method from 3.13, `_context` breaks the start from 3.14:
    names of any version are out."""
    private = re.compile("_[a-z]")
    taken = {name for name in (*vars(threading.Thread()), *vars(threading.Thread)) if private.match(name)}
    taken |= {"_stop", "_context", "_handle", "_started", "_tstate_lock", "_os_thread_handle"}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any("Thread" in ast.unparse(base) for base in node.bases):
                own = {target.attr for target in ast.walk(node) if isinstance(target, ast.Attribute)
                       and isinstance(target.ctx, ast.Store)}  # fmt: skip
                own |= {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
                assert own & taken == set(), f"{_name(path)} {node.name}"


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_time_comes_from_the_clock(path: Path) -> None:
    """Nobody but the clock reads the wall clock or sleeps: what waits, waits for a stop as well."""
    if _name(path) == "daemon/clock.py":
        return
    assert re.findall(r"time\.time\(|time\.time_ns\(|datetime\.|time\.sleep\(", path.read_text()) == []
    if _name(path) == "daemon/sources/nvdec/session.py":  # some 0.1 ms while the decoder works
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            assert not {name.name for name in node.names} & {"sleep", "time", "time_ns"}


@pytest.mark.parametrize("path", TESTS, ids=_name)
def test_no_test_is_passed_by_being_quick(path: Path) -> None:
    """What is promised by the clock is measured in tests/speed: a busy machine is no mistake."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assert):
            asked = {call.id for call in ast.walk(node.test) if isinstance(call, ast.Name)}
            assert not asked & {"monotonic", "perf_counter", "monotonic_ns", "perf_counter_ns"}, node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            assert "sleep" not in {name.name for name in node.names}
