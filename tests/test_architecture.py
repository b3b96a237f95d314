"""The house rules that a test can hold: who imports whom, who may speak of GPUs, and no print, no wall clock."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterator, Mapping
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
    "daemon/bench/peers/",  # other engines are called by their names
    "calibration/portable.py",  # the rules of three versions
    "calibration/quantize.py",
    "calibration/fp8.py",
    "calibration/calibrate.py",
    "daemon/commands/report/calibration.py",
)


# Of the daemon, lowest first: each imports only what stands before it. A file at the top of daemon/ is a package.
LAYERS = (
    ("errors", "clock", "appended_file", "redact", "messages", "validation", "geometry", "schedule"),
    ("epochs",),
    ("rule_config",),
    ("view_config", "fleet_config", "batch_config"),
    ("config",),
    ("log",),
    ("system",),
    ("etcd",),
    ("sources",),
    ("pipeline",),
    ("analytics",),
    ("classification",),
    ("capture",),
    ("publish",),
    ("monitoring",),
    ("control",),
    ("fleet",),
    ("client",),
    ("http",),
    ("dashboard",),
    ("app",),
    ("batch",),
    ("commands",),
    ("bench",),
    ("cli",),
    ("__main__",),
)


def _imports(path: Path) -> Iterator[str]:
    """Modules; for `from package import name` both, because the name may be a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)
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


def _module(path: Path) -> str:
    return _name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _first_circle(arrows: Mapping[str, set[str]]) -> list[str]:
    """Names, each of which has an arrow to the next and the last to the first; empty where there is none."""
    done: set[str] = set()

    def walk(name: str, above: list[str]) -> list[str]:
        if name in above:
            return above[above.index(name) :]
        if name in done:
            return []
        circle = next(filter(None, (walk(other, [*above, name]) for other in sorted(arrows.get(name, ())))), [])
        done.add(name)
        return circle

    return next(filter(None, (walk(name, []) for name in sorted(arrows))), [])


def test_no_files_import_each_other_in_a_circle() -> None:
    """Neither at once nor later, in a function or for types alone."""
    modules = {_module(path): path for path in FILES}
    arrows = {
        name: {other for other in _imports(path) if other in modules and other != name and not _is_package(other)}
        for name, path in modules.items()
    }
    assert _first_circle(arrows) == []


def _is_package(module: str) -> bool:
    return (ROOT / module.replace(".", "/")).is_dir()


def test_packages_import_downwards() -> None:
    level = {name: number for number, names in enumerate(LAYERS) for name in names}
    found: dict[str, set[str]] = {}
    for path in FILES:
        package, _, rest = _module(path).partition(".")
        if package == "daemon" and rest:
            own = rest.partition(".")[0]
            others = {name.split(".")[1] for name in _imports(path) if name.startswith("daemon.")} & level.keys()
            found.setdefault(own, set()).update(others - {own})
    assert found.keys() == level.keys()
    upwards = [(own, other) for own, others in found.items() for other in others if level[other] >= level[own]]
    assert [row for row in upwards if level[row[0]] != level[row[1]]] == []
    assert _first_circle(found) == []


def test_circles_are_found() -> None:
    assert _first_circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert _first_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_backends_are_known_to_the_factory_alone(path: Path) -> None:
    """Only a backend's own folder, the factory, and the bench that measures it import a backend."""
    name = _name(path)
    if name.startswith(("detectors/cpu/", "detectors/fake/", "detectors/trt/")) or name in (
        "detectors/factory.py",
        "daemon/bench/efficiency.py",
        "daemon/bench/peers/compare.py",
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
