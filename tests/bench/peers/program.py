"""Another engine in a process of its own: `python program.py FOLDER`.

It imports numpy and the engine's library alone, so that an interpreter without Lookout can run it. FOLDER has job.json
and inputs.npz. result.json comes back, and outputs.npz with the raw outputs of the pictures that are compared.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

_DIE_WITH_PARENT = 1  # prctl(2): PR_SET_PDEATHSIG
_TURNS = 5
_MAX_TIMES = 10  # batches between two looks at the time
_MIN_SINGLES, _MAX_SINGLES = 3, 50  # batches whose latency is measured
_PROFILED = 2  # runs
_MAX_NAMES = 4
_OPSET = 17  # the newest whose operators onnx2torch 1.5 knows
_MAX_TEXT = 300
_PREFIX = "array-"  # no name of an argument of numpy's
_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_TENSORRT = "TensorrtExecutionProvider"
_PROVIDERS = {"onnxruntime-cpu": _CPU, "onnxruntime-cuda": _CUDA, "onnxruntime-tensorrt": _TENSORRT}


class NotRunError(Exception):
    """The engine does not run here: one line with the cause and the remedy."""


class Engine(Protocol):
    """An opened model.

    Attributes:
        version: of the engine's library.
        precision: of the arithmetic.
        batch: pictures.
        note: a remark on how it runs; may be empty.
    """

    version: str
    precision: str
    batch: int
    note: str

    def seconds(self, times: int) -> float:
        """Seconds for some batches, one after the other, to the end of the last."""

    def outputs(self, rows: Sequence[int]) -> Arrays:
        """Raw outputs of these pictures of the batch, by name."""

    def close(self) -> None:
        """Release what outlives the process."""


def measured(engine: Engine, seconds: float) -> dict[str, Any]:
    """Rate and latency in steady state.

    Args:
        seconds: of the measurement of the rate.
    """
    engine.seconds(1)  # allocates
    until, one = monotonic() + seconds / _TURNS, engine.seconds(1)
    while monotonic() < until:
        one = engine.seconds(1)
    times = max(1, min(_MAX_TIMES, round(seconds / _TURNS / _MAX_TIMES / one)))
    rates = [_rate(engine, times, seconds / _TURNS) for _ in range(_TURNS)]
    singles = max(_MIN_SINGLES, min(_MAX_SINGLES, round(seconds / _TURNS / one)))
    return {
        "version": engine.version,
        "precision": engine.precision,
        "note": engine.note,
        "images_per_s": round(median(rates), 1),
        "lowest": round(min(rates), 1),
        "highest": round(max(rates), 1),
        "batch_ms": round(median(engine.seconds(1) for _ in range(singles)) * 1e3, 3),
    }


def _rate(engine: Engine, times: int, seconds: float) -> float:
    done, taken, until = 0, 0.0, monotonic() + seconds
    while not done or monotonic() < until:
        taken += engine.seconds(times)
        done += engine.batch * times
    return done / taken


class OnnxRuntime:
    """A session whose tensors lie where its provider computes."""

    def __init__(self, job: dict[str, Any], inputs: Arrays, folder: Path) -> None:
        provider = _PROVIDERS[job["peer"]]
        where = "cpu" if provider == _CPU else "cuda"
        package = "onnxruntime" if provider == _CPU else "onnxruntime-gpu"
        ort = _library("onnxruntime", package)
        self.version, self.precision, self.batch = str(ort.__version__), job["precision"], job["batch"]
        if provider not in ort.get_available_providers():
            raise NotRunError(
                f"onnxruntime {self.version} has no {provider}: pip install {package}, into an environment without "
                "onnxruntime (--peer-python)"
            )
        if provider != _CPU:
            _load_libraries(ort)
        self._session = open_session(ort, job["model"], provider_options(provider, job), job["threads"], folder)
        require_provider(self._session, provider)
        self._session.disable_fallback()
        self._names = [node.name for node in self._session.get_outputs()]
        self._binding = self._session.io_binding()
        for name, array in inputs.items():
            value = ort.OrtValue.ortvalue_from_numpy(array, where, job["device"] if where == "cuda" else 0)
            self._binding.bind_ortvalue_input(name, value)
        for name in self._names:
            self._binding.bind_output(name, where, job["device"] if where == "cuda" else 0)
        for _ in range(_PROFILED):
            self._session.run_with_iobinding(self._binding)
        self.note = _notes(placement(Path(self._session.end_profiling()), provider), where != "cpu" and self.precision)

    def seconds(self, times: int) -> float:
        begun = perf_counter()
        for _ in range(times):
            self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()
        return perf_counter() - begun

    def outputs(self, rows: Sequence[int]) -> Arrays:
        self._session.run_with_iobinding(self._binding)
        return {name: array[rows] for name, array in zip(self._names, self._binding.copy_outputs_to_cpu())}

    def close(self) -> None:
        """Nothing outlives the process."""


def provider_options(provider: str, job: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """Providers and their options, for `InferenceSession`."""
    device = {"device_id": str(job["device"])}
    if provider == _CPU:
        return [(_CPU, {})]
    if provider == _CUDA:
        return [(_CUDA, device)]
    flags = {
        "trt_fp16_enable": str(job["precision"] in ("fp16", "int8")),
        "trt_int8_enable": str(job["precision"] == "int8"),
        "trt_builder_optimization_level": str(job["level"]),
    }
    return [(_TENSORRT, {**device, **flags}), (_CUDA, device)]


def open_session(ort: Any, model: str, providers: list[tuple[str, dict[str, str]]], threads: int, folder: Path) -> Any:
    """A session that writes a profile of its first runs into the folder. It may run on other providers than asked."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.enable_profiling = True
    settings.profile_file_prefix = str(folder / "profile")
    return ort.InferenceSession(model, settings, providers=providers)


def require_provider(session: Any, provider: str) -> None:
    """Check that a session did not fall back, which onnxruntime says in its log alone.

    Raises:
        NotRunError: it did.
    """
    found = session.get_providers()
    if provider not in found:
        raise NotRunError(f"{provider} does not load, and onnxruntime fell back to {', '.join(found)}")


def placement(profile: Path, provider: str) -> str:
    """Says which nodes ran on another provider; empty if there is none.

    Args:
        profile: a file of onnxruntime.

    Raises:
        NotRunError: no node ran on this provider.
    """
    nodes = {}
    for event in json.loads(profile.read_text()):
        if event.get("cat") == "Node" and "provider" in event.get("args", {}):
            nodes[event["name"]] = event["args"]["provider"], event["args"].get("op_name", "")
    profile.unlink()
    others = [(where, kind) for where, kind in nodes.values() if where != provider]
    if len(others) == len(nodes):
        where = f": all {len(nodes)} are on {_listed(_first(others))}" if nodes else ""
        raise NotRunError(f"{provider} loads, but no node of the model runs on it{where}")
    if not others:
        return ""
    names = _listed(kind for _, kind in others)
    return f"{len(others)} of {len(nodes)} nodes run on {_listed(_first(others))}: {names}"


def _first(rows: Iterable[tuple[str, str]]) -> Iterable[str]:
    return (row[0] for row in rows)


def _load_libraries(ort: Any) -> None:
    """Load the libraries that pip has installed: the provider finds those that are loaded."""
    with suppress(ImportError):
        import_module("tensorrt")
    if hasattr(ort, "preload_dlls"):  # since 1.21
        ort.preload_dlls()


class TorchTensorRt:
    """A module that onnx2torch makes of the file, exported and compiled."""

    def __init__(self, job: dict[str, Any], inputs: Arrays, folder: Path) -> None:
        wanted = {"torch": "torch", "torch_tensorrt": "torch-tensorrt", "onnx2torch": "onnx2torch"}
        missing = [package for module, package in wanted.items() if find_spec(module) is None]
        if missing:
            raise NotRunError(f"not installed: {', '.join(missing)}: pip install {' '.join(missing)} (--peer-python)")
        torch = self._torch = _library("torch", "torch")
        if not torch.cuda.is_available():
            raise NotRunError(f"torch {torch.__version__} finds no GPU")
        compiler = _library("torch_tensorrt", "torch-tensorrt")
        self.version, self.precision, self.batch = str(compiler.__version__), job["precision"], job["batch"]
        torch.cuda.set_device(job["device"])
        program, self._inputs, self._names = exported(torch, job["model"], inputs, f"cuda:{job['device']}")
        settings = compiler_settings(compiler.dynamo.compile, torch, job)
        self._module = compiler.dynamo.compile(program, arg_inputs=list(self._inputs), **settings)
        self.note = _notes(_parts(name for name, _ in self._module.named_children()), self.precision)

    def seconds(self, times: int) -> float:
        self._torch.cuda.synchronize()
        begun = perf_counter()
        with self._torch.no_grad():
            for _ in range(times):
                self._module(*self._inputs)
        self._torch.cuda.synchronize()
        return perf_counter() - begun

    def outputs(self, rows: Sequence[int]) -> Arrays:
        with self._torch.no_grad():
            return named(self._module(*self._inputs), self._names, rows)

    def close(self) -> None:
        """Nothing outlives the process."""


def exported(torch: Any, model: str, inputs: Arrays, device: str) -> tuple[Any, tuple[Any, ...], list[str]]:
    """A program of torch.export with the file's weights, for these shapes; its inputs, and the names of its outputs.

    Raises:
        NotRunError: onnx2torch or torch.export does not know an operator of the file.
    """
    onnx, onnx2torch = _library("onnx", "onnx"), _library("onnx2torch", "onnx2torch")
    file = onnx.load(model)
    weights = {entry.name for entry in file.graph.initializer}
    names = [entry.name for entry in file.graph.input if entry.name not in weights]
    tensors = tuple(torch.from_numpy(inputs[name]).to(device) for name in names)
    try:
        module = _torch_graph().specialised(onnx2torch.convert(file).eval().to(device), tensors)
        with torch.no_grad():
            program = torch.export.export(module, tensors)
    except Exception as error:
        opset = max(entry.version for entry in file.opset_import if entry.domain in ("", "ai.onnx"))
        remedy = f"; it has opset {opset}, so export it with {_OPSET}" if opset > _OPSET else ""
        raise NotRunError(f"onnx2torch and torch.export cannot convert the file: {_line(error)}{remedy}") from error
    return program, tensors, [entry.name for entry in file.graph.output]


def _torch_graph() -> Any:
    """The file beside this one, which is no library of the interpreter's."""
    spec = spec_from_file_location("lookout_torch_graph", Path(__file__).with_name("torch_graph.py"))
    if spec is None or spec.loader is None:
        raise NotRunError("torch_graph.py is missing: install Lookout again")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(outputs: Any, names: Sequence[str], rows: Sequence[int]) -> Arrays:
    """Outputs of a module of torch, a tensor or several, by name."""
    tensors = [outputs] if hasattr(outputs, "cpu") else list(outputs)
    return {name: tensor.detach().float().cpu().numpy()[rows] for name, tensor in zip(names, tensors)}


def compiler_settings(compile_it: Callable[..., Any], torch: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Options of the compiler. Types of the file's tensors hold: by an option, always, or by a set of precisions."""
    known = inspect.signature(compile_it).parameters
    settings: dict[str, Any] = {"optimization_level": job["level"]}
    if "use_explicit_typing" in known:
        settings["use_explicit_typing"] = True
    elif "enabled_precisions" in known:
        settings["enabled_precisions"] = {torch.float32, *([torch.float16] if job["precision"] == "fp16" else [])}
    return settings


def _parts(children: Iterable[str]) -> str:
    """Says which parts of a compiled module stay in PyTorch.

    Raises:
        NotRunError: all of them do.
    """
    names = list(children)
    compiled = sum("_run_on_acc" in name for name in names)
    left = sum("_run_on_gpu" in name for name in names)
    if not compiled:
        raise NotRunError("Torch-TensorRT compiled no part of the model")
    return f"{left} of {compiled + left} parts stay in PyTorch" if left else ""


def _notes(note: str, precision: str | bool) -> str:
    return "; ".join(filter(None, (note, "FP32 may round to TF32, its default" if precision == "fp32" else "")))


def _library(module: str, package: str) -> Any:
    """An imported module.

    Raises:
        NotRunError: it is not installed, or does not load.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise NotRunError(f"{error.name} is not installed: pip install {package} (--peer-python)") from error
    except Exception as error:  # such as a missing library, for which torch_tensorrt has no class
        raise NotRunError(f"{module} does not load: {_line(error)}") from error


def _listed(names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = ["and others"] if len(found) > _MAX_NAMES else []
    return ", ".join(found[:_MAX_NAMES] + more)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:_MAX_TEXT]


def save(path: Path, arrays: Arrays) -> None:
    """Write arrays of any names."""
    np.savez(path, **{f"{_PREFIX}{name}": array for name, array in arrays.items()})  # type: ignore[arg-type]


def load(path: Path) -> Arrays:
    """The arrays that `save` wrote."""
    with np.load(path) as file:
        return {name.removeprefix(_PREFIX): file[name] for name in file.files}


def answer(folder: Path, make: Callable[[dict[str, Any]], Engine]) -> None:
    """Measure the engine of a job, and write its result or why there is none into the folder.

    The process ends here, without the shutdown of its libraries, and it ends with its parent.
    """
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    job = json.loads((folder / "job.json").read_text())
    engine: Engine | None = None
    try:
        engine = make(job)
        found = measured(engine, job["seconds"])
        save(folder / "outputs.npz", engine.outputs(job["rows"]))
    except NotRunError as error:
        found = {"refused": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is its row's reason
        found = {"refused": f"{type(error).__name__}: {_line(error)}"}
    (folder / "result.json").write_text(json.dumps(found))
    if engine is not None:
        with suppress(Exception):  # the result is there
            engine.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    folder = Path(sys.argv[1])
    here = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != here]  # its files are no libraries
    inputs = {name: np.ascontiguousarray(array) for name, array in load(folder / "inputs.npz").items()}

    def make(job: dict[str, Any]) -> Engine:
        kind = OnnxRuntime if job["peer"] in _PROVIDERS else TorchTensorRt
        return kind(job, inputs, folder)

    answer(folder, make)


if __name__ == "__main__":
    main()
