"""The house rules that a test can hold: who imports whom, who may speak of GPUs, and no print, no wall clock."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.assignments import Classes, assignments, nodes

ROOT = Path(__file__).resolve().parents[1]
FILES = [
    path
    for package in ("daemon", "detectors", "calibration", "lookout", "lookoutd")
    for path in sorted((ROOT / package).rglob("*.py"))
]
TESTS = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if path.parent.name != "speed"]
GPU_FILES = (
    "detectors/trt/",
    "detectors/cuda.py",
    "detectors/nvrtc.py",
    "detectors/factory.py",
    "detectors/ort/providers.py",  # onnxruntime's names
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


# They write these for each box of each frame: a call for each would cost more than the comparison that it follows.
_ASSIGNED_FOR_EACH_BOX = {
    ("daemon/analytics/broad_phase.py", "State"),
    ("daemon/analytics/broad_phase.py", "Track"),
    ("daemon/analytics/source_rules.py", "State"),
    ("daemon/analytics/source_rules.py", "Track"),
}


# Of the daemon, lowest first: each imports only what stands before it. A file at the top of daemon/ is a package.
LAYERS = (
    ("errors", "clock", "appended_file", "files", "redact", "validation", "error_places", "geometry", "schedule"),
    ("lateness", "progress"),
    ("rule_config",),
    ("rule_checks", "view_config", "fleet_config", "batch_config"),
    ("config",),
    ("log",),
    ("system",),
    ("lifecycle",),
    ("etcd",),
    ("sources",),
    ("pipeline",),
    ("analytics",),
    ("classification",),
    ("capture",),
    ("publish",),
    ("tracing",),
    ("peers",),
    ("monitoring",),
    ("recording",),
    ("control",),
    ("parts",),
    ("fleet",),
    ("http",),
    ("playback",),
    ("bridge",),
    ("dashboard",),
    ("viewing",),
    ("seams",),
    ("daemon",),
    ("build",),
    ("batch",),
    ("commands",),
    ("bench",),
    ("cli",),
    ("__main__",),
)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _held(found: Iterable[str]) -> None:
    """No place breaks a rule; each that does is a line `file:line: what`."""
    lines = list(found)
    assert not lines, "\n".join(["", *lines])


def _matches(path: Path, pattern: re.Pattern[str]) -> list[str]:
    lines = enumerate(path.read_text().splitlines(), 1)
    return [f"{_name(path)}:{number}: {word}" for number, line in lines for word in pattern.findall(line)]


@cache
def _imports(path: Path) -> list[tuple[int, str]]:
    """Lines and modules; for `from package import name` both, because the name may be a module."""
    found: list[tuple[int, str]] = []
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            found.append((node.lineno, node.module or ""))
            found += [(node.lineno, f"{node.module}.{name.name}") for name in node.names]
        elif isinstance(node, ast.Import):
            found += [(node.lineno, name.name) for name in node.names]
    return found


def _imported(path: Path) -> set[str]:
    return {name for _, name in _imports(path)}


def test_imports_go_one_way() -> None:
    """detectors and lookout know nobody, calibration knows detectors; of the daemon, only the command line knows
    calibration."""
    forbidden = {
        "detectors": ("daemon", "calibration", "lookoutd"),
        "calibration": ("daemon", "lookoutd"),
        "daemon": ("calibration",),
        "lookout": ("daemon", "detectors", "calibration", "lookoutd"),
        "lookoutd": ("daemon", "detectors", "calibration"),
    }
    allowed = {"lookoutd/__main__.py": ("daemon",)}
    _held(
        f"{_name(path)}:{line}: imports {name}"
        for path in FILES
        if not _name(path).startswith(("daemon/cli.py", "daemon/commands/"))
        for line, name in _imports(path)
        if name.partition(".")[0] in forbidden[_name(path).partition("/")[0]]
        if not name.startswith(allowed.get(_name(path), ("-",)))
    )


def test_programs_that_listen_need_two_packages() -> None:
    """What they import of Lookout imports nothing else, at once or later."""
    known = {*sys.stdlib_module_names, "lookout", "msgspec", "zmq"}
    _held(
        f"{_name(path)}:{line}: imports {name}"
        for path in FILES
        if _name(path).startswith("lookout/")
        for line, name in _imports(path)
        if name.partition(".")[0] not in known
    )


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
        name: {other for other in _imported(path) if other in modules and other != name and not _is_package(other)}
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
            others = {name.split(".")[1] for name in _imported(path) if name.startswith("daemon.")} & level.keys()
            found.setdefault(own, set()).update(others - {own})
    assert found.keys() == level.keys()
    upwards = [(own, other) for own, others in found.items() for other in others if level[other] >= level[own]]
    assert [row for row in upwards if level[row[0]] != level[row[1]]] == []
    assert _first_circle(found) == []


def test_circles_are_found() -> None:
    assert _first_circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert _first_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_backends_are_known_to_the_factory_alone() -> None:
    """Only a backend's own folder and the factory import a backend."""
    backends = ("detectors.ort", "detectors.fake", "detectors.trt")
    folders = ("detectors/ort/", "detectors/fake/", "detectors/trt/")
    factory = "detectors/factory.py"
    _held(
        f"{_name(path)}:{line}: imports {module}"
        for path in FILES
        if not _name(path).startswith(folders) and _name(path) != factory
        for line, module in _imports(path)
        if module.startswith(backends)
    )


def test_gpus_are_named_in_their_files_alone() -> None:
    """CUDA, TensorRT and NVML are details; fields of the wire and options on the command line may carry their names."""
    gpu = re.compile(r"\bcuda\b|tensorrt|pynvml|nvml(?!_)", re.IGNORECASE)
    found: list[str] = []
    for path in FILES:
        allowed = {"lookout/messages.py": 1}.get(_name(path), 0)  # GpuMetrics says where its figures come from
        if not _name(path).startswith(GPU_FILES):
            found += _matches(path, gpu)[allowed:]
    _held(found)


def test_no_thread_takes_a_name_that_python_keeps_for_itself() -> None:
    """`_stop` breaks join up to Python 3.12, `_handle` hides a method from 3.13, `_context` breaks the start from 3.14:
    names of any version are out."""
    private = re.compile("_[a-z]")
    taken = {name for name in (*vars(threading.Thread()), *vars(threading.Thread)) if private.match(name)}
    taken |= {"_stop", "_context", "_handle", "_started", "_tstate_lock", "_os_thread_handle"}
    found: list[str] = []
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Thread") for base in node.bases):
                own = {target.attr for target in ast.walk(node) if isinstance(target, ast.Attribute)
                       and isinstance(target.ctx, ast.Store)}  # fmt: skip
                own |= {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
                found += [f"{_name(path)}:{node.lineno}: {node.name} has {name}" for name in sorted(own & taken)]
    _held(found)


_MAX_PARAMETERS = 8
_MAX_ATTRIBUTES = 20
_MAX_LINES = 400
_MAX_MODULES = 70  # of what builds a daemon
_MAX_MODULES_ALONE = 41  # of a source and a detector


def _classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in nodes(path) if isinstance(node, ast.ClassDef))


def test_constructors_have_few_parameters() -> None:
    """More are a missing noun."""
    found: list[str] = []
    for path in FILES:
        for node in _classes(path):
            made = next((row for row in node.body if isinstance(row, ast.FunctionDef) and row.name == "__init__"), None)
            count = len(made.args.args) - 1 + len(made.args.kwonlyargs) if made else 0
            if count > _MAX_PARAMETERS:
                found.append(f"{_name(path)}:{node.lineno}: {node.name} takes {count}")
    _held(found)


def test_classes_have_few_attributes() -> None:
    """More are a missing noun. Values that nobody changes, such as a section of the configuration, have as many as
    there are facts."""
    found: list[str] = []
    for path in FILES:
        for node in _classes(path):
            count = len(_attributes(node))
            if count > _MAX_ATTRIBUTES and not _is_value(node):
                found.append(f"{_name(path)}:{node.lineno}: {node.name} has {count}")
    _held(found)


def test_files_of_the_daemon_can_be_read_at_once() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in FILES if _name(path).startswith("daemon/")}
    _held(f"{name}: {length} lines" for name, length in lengths.items() if length > _MAX_LINES)


def _attributes(node: ast.ClassDef) -> set[str]:
    declared = [
        row for row in node.body if isinstance(row, ast.AnnAssign) and "Final" not in ast.unparse(row.annotation)
    ]
    assigned = [row for row in ast.walk(node) if isinstance(row, ast.Attribute) and isinstance(row.ctx, ast.Store)]
    return {ast.unparse(row.target) for row in declared} | {
        row.attr for row in assigned if ast.unparse(row.value) == "self"
    }


def _is_value(node: ast.ClassDef) -> bool:
    bases = [ast.unparse(base) for base in node.bases]
    return "Section" in bases or any(
        "frozen=True" in ast.unparse(row) for row in (*node.decorator_list, *node.keywords)
    )


def test_no_hook_is_silent() -> None:
    """Where nobody listens, the attribute or parameter is None, which a reader and mypy see. A function that does
    nothing until somebody replaces it is forgotten in silence."""
    found: list[str] = []
    of_daemon = [path for path in FILES if _name(path).startswith("daemon/") and "/bench/" not in _name(path)]
    for path in of_daemon:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                values = [*node.args.defaults, *(row for row in node.args.kw_defaults if row)]
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and "self." in ast.unparse(node).partition("=")[0]:
                values = [node.value] if node.value else []
            else:
                continue
            silent = [row for row in values if isinstance(row, ast.Lambda) and ast.unparse(row.body) == "None"]
            found += [f"{_name(path)}:{row.lineno}: {ast.unparse(row)}" for row in silent]
    _held(found)


def test_no_object_is_changed_from_outside() -> None:
    """A class with behaviour assigns its attributes itself. Those of a plain record are assigned by the file that
    defines it, and by no other. Objects of libraries are free."""
    classes, used, found = Classes(FILES), set[tuple[str, str]](), list[str]()
    for path in FILES:
        name = _name(path)
        if not name.startswith("daemon/"):
            continue
        for row in assignments(path, classes):
            if (name, row.of) in _ASSIGNED_FOR_EACH_BOX:
                used.add((name, row.of))
            elif not row.is_of_record:
                found.append(f"{name}:{row.line}: assigns {row.text} of {row.of}")
    _held(found)
    assert used == _ASSIGNED_FOR_EACH_BOX


def test_changes_from_outside_are_found(tmp_path: Path) -> None:
    """By annotation, by constructor and by name; not of libraries, of frozen classes and of a file's own records."""
    file = tmp_path / "planted.py"
    file.write_text(_PLANTED)
    rows = [(row.text, row.of, row.is_of_record) for row in assignments(file, Classes([file]))]
    assert rows == [
        ("a.level", "Tank", False),
        ("b.level", "Tank", False),
        ("c.level", "Tank", False),
        ("record.depth", "Record", True),
    ]


_PLANTED = """
import library

@dataclass
class Record:
    depth: int = 0

@dataclass(frozen=True)
class Frozen:
    width: int = 0

class Tank:
    def __init__(self):
        self.level = 0

    def fill(self):
        self.level += 1

def change(a: Tank, tanks, frozen, packet: library.Packet):
    b, d = Tank(), library.Tank()
    a.level = 1
    b.level -= 1
    for c in tanks:
        c.level, packet.level, d.level = 1, 2, 3
    for record in tanks:
        record.depth = 1
    frozen.width = frozen.length = 1
"""


def test_one_function_builds_a_daemon() -> None:
    """Features attach in their kits."""
    assert len((ROOT / "daemon" / "build.py").read_text().splitlines()) <= 150


def test_what_builds_a_daemon_loads_no_feature() -> None:
    """A kit is a door: it loads its feature when it opens it."""
    loaded = _loaded("import daemon.build")
    assert len(loaded) < _MAX_MODULES, loaded


@pytest.mark.parametrize(
    ("source", "most"),
    [("SyntheticConfig(id='one')", _MAX_MODULES_ALONE), ("AvConfig(id='one', url=Url('rtsp://camera/one'))", 70)],
    ids=["drawn", "FFmpeg"],
)
def test_a_source_and_a_detector_load_little_else(source: str, most: int) -> None:
    """The core without a daemon: a source, and a model that has looked at a picture."""
    loaded = _loaded(f"{_ALONE}make_source({source})")
    assert len(loaded) < most, loaded


_ALONE = """
from pathlib import Path
from daemon.config.sources import AvConfig, SyntheticConfig
from daemon.redact import Url
from daemon.sources.factory import make_source
from detectors.factory import open_detector
from detectors.port import Options
detector = open_detector("cpu", Options(Path("models/demo.onnx"), threads=1))
detector.lane().detect([detector.sample(640, 360)])
"""


def _loaded(code: str) -> list[str]:
    """The modules of ours that a process has loaded after some code."""
    packages = ("daemon", "detectors", "calibration", "lookout", "lookoutd")
    code += f"\nimport sys; print(*(name for name in sys.modules if name.split('.')[0] in {packages}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_time_comes_from_the_clock() -> None:
    """Nobody but the clock reads the wall clock or sleeps: what waits, waits for a stop as well."""
    called = re.compile(r"time\.time\(|time\.time_ns\(|datetime\.|time\.sleep\(")
    imported = ("time.sleep", "time.time", "time.time_ns")
    found: list[str] = []
    for path in FILES:
        if _name(path) == "daemon/clock.py":
            continue
        found += _matches(path, called)
        if _name(path) != "daemon/sources/nvdec/session.py":  # some 0.1 ms while the decoder works
            found += [f"{_name(path)}:{line}: imports {name}" for line, name in _imports(path) if name in imported]
    _held(found)


def test_no_test_is_passed_by_being_quick() -> None:
    """What is promised by the clock is measured in tests/speed: a busy machine is no mistake."""
    clocks = {"monotonic", "perf_counter", "monotonic_ns", "perf_counter_ns"}
    found: list[str] = []
    for path in TESTS:
        for node in nodes(path):
            if isinstance(node, ast.Assert):
                asked = {call.id for call in ast.walk(node.test) if isinstance(call, ast.Name)} & clocks
                found += [f"{_name(path)}:{node.lineno}: asserts {name}" for name in sorted(asked)]
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                found += [f"{_name(path)}:{node.lineno}: imports sleep" for name in node.names if name.name == "sleep"]
    _held(found)
