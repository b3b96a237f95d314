"""The part of TensorRT that Lookout calls, on onnxruntime over the driver's stand-in (cuda_stub.cpp).

As in TensorRT an engine runs when the stream reaches it, in memory that a context was given. The fake is stricter: a
context whose shape has changed since its graph was captured, or that shares its activations with another context at the
same time, adds to `failures`. Names that a version lacks do not exist here. LOOKOUT_TEST_TENSORRT is the version, such
as "8.6.1", or "rtx-1.7.1" for TensorRT RTX, which has the interface of 11 and more.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import traceback
import weakref
from collections import Counter
from collections.abc import Sequence
from enum import Enum, IntEnum, IntFlag
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

_SOME = os.environ.get("LOOKOUT_TEST_TENSORRT", "8.6.1")
RTX, VERSION = _SOME.startswith("rtx-"), _SOME.removeprefix("rtx-")
MAJOR = 11 if RTX else int(VERSION.partition(".")[0])
failures: list[str] = []  # errors of the caller
called: Counter[str] = Counter()
_fail: Counter[str] = Counter()
_cuda = ctypes.CDLL("libcuda.so.1")
_cuda.cuMemAlloc.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_cuda.cuMemFree.argtypes = (ctypes.c_uint64,)
_MAGIC = b"a plan\n"
_ACTIVATIONS = 64 << 10  # bytes a picture


def fail_nth(name: str, number: int) -> None:
    """Let a call of this name fail, as without memory; the next call is number 1."""
    _fail[name] = number


def calm() -> None:
    """Reset failures and counts."""
    _fail.clear()
    called.clear()


def _fails(name: str) -> bool:
    called[name] += 1
    if _fail[name] > 0:
        _fail[name] -= 1
        return _fail[name] == 0
    return False


# --- enums -------------------------------------------------------------------------------------------------------

_FLAGS = {8: ["EXPLICIT_BATCH"], 10: ["EXPLICIT_BATCH", "STRONGLY_TYPED"], 11: ["STRONGLY_TYPED"]}
_BUILDER = {8: ["FP16", "INT8", "TF32"], 10: ["FP16", "INT8", "TF32"], 11: ["TF32"]}
if RTX:
    _BUILDER[11] = ["TF32", "REQUIRE_USER_ALLOCATION"]
_TACTICS = ["CUBLAS", "CUBLAS_LT", "CUDNN"] * (MAJOR < 11) + ["EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"]
_PREVIEW = {8: ["PROFILE_SHARING_0806"], 10: ["PROFILE_SHARING_0806"], 11: ["ALIASED_PLUGIN_IO_10_03"]}


def _enum(name: str, members: list[str]) -> Any:
    return IntEnum(name, [(member, number) for number, member in enumerate(members)])


NetworkDefinitionCreationFlag = _enum("NetworkDefinitionCreationFlag", _FLAGS[MAJOR])
BuilderFlag = _enum("BuilderFlag", _BUILDER[MAJOR])
TacticSource = _enum("TacticSource", _TACTICS)
PreviewFeature = _enum("PreviewFeature", _PREVIEW[MAJOR])


class TensorIOMode(Enum):
    INPUT = 1
    OUTPUT = 2


class DataType(Enum):
    FLOAT = 0
    HALF = 1
    INT32 = 3
    UINT8 = 5
    INT64 = 8


class ProfilingVerbosity(Enum):
    DETAILED = 2


class LayerInformationFormat(Enum):
    JSON = 1


float32, float16, int32, int64 = DataType.FLOAT, DataType.HALF, DataType.INT32, DataType.INT64
_DTYPES: dict[DataType, np.dtype[Any]] = {
    DataType.FLOAT: np.dtype(np.float32),
    DataType.HALF: np.dtype(np.float16),
    DataType.INT32: np.dtype(np.int32),
    DataType.UINT8: np.dtype(np.uint8),
    DataType.INT64: np.dtype(np.int64),
}
_OF_ORT = {
    "tensor(float)": DataType.FLOAT,
    "tensor(float16)": DataType.HALF,
    "tensor(int32)": DataType.INT32,
    "tensor(uint8)": DataType.UINT8,
    "tensor(int64)": DataType.INT64,
}


def nptype(dtype: DataType) -> type[np.generic]:
    return _DTYPES[dtype].type


class ILogger:
    """A base class."""

    class Severity(IntEnum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2
        INFO = 3

    def log(self, severity: Any, text: str) -> None: ...


class IProfiler:
    """A base class."""


# --- building ----------------------------------------------------------------------------------------------------


class Tensor:
    def __init__(self, name: str, dtype: DataType, shape: Sequence[int | str]) -> None:
        self.name, self.dtype = name, dtype
        self.shape = tuple(size if isinstance(size, int) else -1 for size in shape)


class INetworkDefinition:
    def __init__(self, flags: int) -> None:
        known = [flag for flag in NetworkDefinitionCreationFlag if flags & 1 << int(flag)]
        if MAJOR == 8 and not known:
            raise RuntimeError("networks without an explicit batch are not supported")
        self.model: bytes | None = None
        self._inputs: list[Tensor] = []

    def take(self, content: bytes) -> None:
        settings = ort.SessionOptions()  # it runs nothing
        settings.intra_op_num_threads, settings.graph_optimization_level = 1, ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
        self.model = content
        self._inputs = [Tensor(node.name, _OF_ORT[node.type], node.shape) for node in session.get_inputs()]

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    def get_input(self, index: int) -> Tensor:
        return self._inputs[index]


class IOptimizationProfile:
    def __init__(self) -> None:
        self.shapes: dict[str, list[list[int]]] = {}

    def set_shape(self, name: str, *shapes: tuple[int, ...]) -> None:
        self.shapes[name] = [list(shape) for shape in shapes]


class ITimingCache:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> bytes:
        return self.content or b"timings"

    def combine(self, other: ITimingCache, _ignore_mismatch: bool) -> bool:
        return bool(other.content)


class IBuilderConfig:
    builder_optimization_level, profiling_verbosity, max_aux_streams = 3, None, -1

    def __init__(self) -> None:
        self.flags = {flag for flag in BuilderFlag if flag.name == "TF32"}
        self.features: set[Any] = set()
        self.tactics = 0
        self.profiles: list[IOptimizationProfile] = []
        self.progress_monitor: Any = None
        self._timings = ITimingCache(b"")

    def set_flag(self, flag: Any) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag)

    if RTX:
        num_compute_capabilities = 0

        def set_compute_capability(self, compute_capability: Any, index: int) -> bool:
            self.architectures = {**getattr(self, "architectures", {}), index: compute_capability.name}
            return index < self.num_compute_capabilities

    def set_tactic_sources(self, sources: int) -> bool:
        self.tactics = sources
        return True

    def set_preview_feature(self, feature: Any, on: bool) -> None:
        self.features = self.features | {feature} if on else self.features - {feature}

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, content: bytes) -> ITimingCache | None:
        return ITimingCache(content) if content in (b"", b"timings") else None

    def set_timing_cache(self, cache: ITimingCache, _ignore_mismatch: bool) -> bool:
        self._timings = cache
        return True

    def get_timing_cache(self) -> ITimingCache:
        return self._timings


class _Problem:
    def __init__(self, text: str) -> None:
        self._text = text

    def desc(self) -> str:
        return self._text

    def node(self) -> int:
        return -1


class OnnxParser:
    def __init__(self, network: INetworkDefinition, _logger: ILogger) -> None:
        self._network, self._problems = network, list[_Problem]()

    @property
    def num_errors(self) -> int:
        return len(self._problems)

    def get_error(self, number: int) -> _Problem:
        return self._problems[number]

    def parse_from_file(self, path: str) -> bool:
        with open(path, "rb") as file:
            return self.parse(file.read())

    def parse(self, content: bytes) -> bool:
        try:
            self._network.take(content)
        except Exception as error:  # noqa: BLE001 - onnxruntime's own
            self._problems.append(_Problem(str(error).splitlines()[0]))
            return False
        return True


class Builder:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def create_network(self, flags: int) -> INetworkDefinition:
        return INetworkDefinition(flags)

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig()

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> bytes | None:
        if os.environ.get("LOOKOUT_TEST_NOISE"):  # as libraries print, past Python
            ctypes.CDLL(None).puts(b"a library says something")
            ctypes.CDLL(None).fflush(None)
            os.write(1, b"and something else, ")
        if os.environ.get("LOOKOUT_TEST_NO_BUILD") or network.model is None:
            self._logger.log(ILogger.Severity.ERROR, "Could not find any implementation for node Conv_0")
            return None
        for step in range(3 if config.progress_monitor else 0):
            if step == 0:
                config.progress_monitor.phase_start("Building engine", None, 3)
            config.progress_monitor.step_complete("Building engine", step)
        first = network.get_input(0)
        header = {
            "version": VERSION,
            "input": first.dtype.name,
            "profiles": [profile.shapes for profile in config.profiles],
            "shared": MAJOR > 8 or any(feature.name == "PROFILE_SHARING_0806" for feature in config.features),
            "flags": sorted(flag.name for flag in config.flags),
            "aux_streams": config.max_aux_streams,
            "level": config.builder_optimization_level,
            "for": sorted(getattr(config, "architectures", {}).values()),
        }
        return _MAGIC + json.dumps(header).encode() + b"\n" + network.model


# --- running -----------------------------------------------------------------------------------------------------


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, plan: bytes) -> ICudaEngine | None:
        header, _, content = plan.removeprefix(_MAGIC).partition(b"\n")
        if not plan.startswith(_MAGIC) or json.loads(header)["version"] != VERSION or _fails("deserialize"):
            self._logger.log(ILogger.Severity.ERROR, "this plan is of another version")
            return None
        if RTX and _own_architecture() not in json.loads(header)["for"]:
            self._logger.log(ILogger.Severity.ERROR, f"The engine cannot run on this GPU: {_own_architecture()}")
            return None
        try:
            return ICudaEngine(json.loads(header), content, len(plan))
        except MemoryError:
            self._logger.log(ILogger.Severity.ERROR, "out of memory")
            return None

    if RTX:

        def get_engine_validity(self, plan: bytes) -> tuple[str, int]:
            header = json.loads(plan.removeprefix(_MAGIC).partition(b"\n")[0])
            other = 0 if _own_architecture() in header["for"] else EngineInvalidityDiagnostics.UNSUPPORTED_CC
            return "INVALID" if other else "VALID", int(other)


def _own_architecture() -> str:
    """Of the GPU; the driver counts whom it is asked by."""
    return f"SM{os.environ['LOOKOUT_TEST_CAPABILITY'].replace('.', '')}"


class _DeviceMemory:
    """Memory that is freed with its owner."""

    def __init__(self, size: int) -> None:
        pointer = ctypes.c_uint64()
        if _cuda.cuMemAlloc(ctypes.byref(pointer), size):
            raise MemoryError
        self.pointer, self.size = pointer.value, size
        weakref.finalize(self, _free, self.pointer)


def _free(pointer: int) -> None:
    if status := _cuda.cuMemFree(pointer):
        failures.append(f"memory of an engine or context is freed where it cannot be: {status}")


def _common(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """One shape of several; -1 for the dimensions that differ."""
    return tuple(sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*shapes))


class ICudaEngine:
    def __init__(self, header: dict[str, Any], content: bytes, size: int) -> None:
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = 1
        self.session = ort.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
        self.header = header
        self._weights = _DeviceMemory(size)
        self._contexts = weakref.WeakSet[IExecutionContext]()
        self.inputs = [node.name for node in self.session.get_inputs()]
        self._types = {
            node.name: _OF_ORT[node.type] for node in (*self.session.get_inputs(), *self.session.get_outputs())
        }
        self._types[self.inputs[0]] = DataType[header["input"]]
        self._shapes = self._run_once()
        profiles = header["profiles"]
        self.most = profiles[0][self.inputs[0]][-1][0] if profiles else self._shapes[self.inputs[0]][0]

    def _run_once(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor; -1 for the dimensions that differ: of outputs in the first profile alone."""
        profiles = self.header["profiles"]
        if not profiles:
            return self.shapes_of({})
        inputs = self.inputs
        least, most = profiles[0], profiles[-1]
        runs = [self.shapes_of({name: tuple(profile[name][0]) for name in inputs}) for profile in profiles]
        own = runs[:1]
        if least[inputs[0]][0][0] != most[inputs[0]][-1][0]:
            own.append(self.shapes_of({name: (2, *least[name][0][1:]) for name in inputs}))
        return {name: _common([run[name] for run in (own + runs[1:] if name in inputs else own)]) for name in runs[0]}

    def shapes_of(self, given: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor for these shapes of inputs, or for their own."""
        nodes = self.session.get_inputs()
        whole = {node.name: tuple(given.get(node.name, node.shape)) for node in nodes}
        zeros = {node.name: np.zeros(whole[node.name], _DTYPES[_OF_ORT[node.type]]) for node in nodes}
        outputs = self.session.run(None, zeros)
        return whole | {node.name: array.shape for node, array in zip(self.session.get_outputs(), outputs)}

    @property
    def num_io_tensors(self) -> int:
        return len(self._shapes)

    def get_tensor_name(self, index: int) -> str:
        return list(self._shapes)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def get_tensor_dtype(self, name: str) -> DataType:
        return self._types[name]

    def create_engine_inspector(self) -> EngineInspector:
        return EngineInspector(self)

    def create_execution_context(self, given: Any = None) -> IExecutionContext | None:
        config = given if RTX and isinstance(given, IRuntimeConfig) else None
        owns = MAJOR == 8 or (config.memory if config else given) in (None, ExecutionContextAllocationStrategy.STATIC)
        made = self._context(_DeviceMemory if owns else None)
        if made:
            made.config = config
        return made

    if RTX:

        def create_runtime_config(self) -> IRuntimeConfig:
            return IRuntimeConfig(self)

    @property
    def memory_of_a_context(self) -> int:
        """Of the profile that needs most."""
        return self.most * _ACTIVATIONS * max(1, len(self.header["profiles"]))

    def _context(self, memory: Any) -> IExecutionContext | None:
        if _fails("create_execution_context") or (not self.header["shared"] and len(self._contexts)):
            return None
        try:
            made = IExecutionContext(self, memory(self.memory_of_a_context) if memory else None)
        except MemoryError:
            return None
        self._contexts.add(made)
        return made

    if MAJOR < 11:

        @property
        def device_memory_size(self) -> int:
            return self.memory_of_a_context

        def create_execution_context_without_device_memory(self) -> IExecutionContext | None:
            return self._context(None)

    if MAJOR > 8:

        @property
        def device_memory_size_v2(self) -> int:
            return self.memory_of_a_context


def _layer(name: str, kind: str, reads: str, writes: str) -> dict[str, Any]:
    inputs, outputs = ([{"Name": "x", "Format/Datatype": text}] for text in (reads, writes))
    return {"Name": name, "LayerType": kind, "Inputs": inputs, "Outputs": outputs}


# What the inspector tells of every engine, with the milliseconds that a profiler hears.
_LAYERS = (
    (_layer("/model.0/conv/Conv + /model.0/act/Relu", "CaskConvolution", "Int8 format", "FP16 format"), 0.75),
    (_layer("x_QuantizeLinear", "Scale", "Row major linear FP32", "Int8 format"), 0.2),
    (_layer("/model.$1/Concat", "Reformat", "FP16 format", "FP16 format"), 0.05),
)


class EngineInspector:
    execution_context: Any = None

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine

    def get_engine_information(self, _format: LayerInformationFormat) -> str:
        return json.dumps({"Layers": [row for row, _ in _LAYERS]})


class IExecutionContext:
    profiler: Any = None
    config: IRuntimeConfig | None = None

    def __init__(self, engine: ICudaEngine, memory: _DeviceMemory | None) -> None:
        self.engine = engine
        self._memory = memory
        self.activations = memory.pointer if memory else 0
        self.generation = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._profile = 0

    def set_optimization_profile_async(self, index: int, stream_handle: int) -> bool:
        if _fails("set_optimization_profile_async") or not stream_handle or self._shapes:
            return False  # it would forget the shapes
        self._profile = index
        return index < len(self.engine.header["profiles"])

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        profiles = self.engine.header["profiles"]
        least, _, most = profiles[self._profile][name] if profiles else [self.engine.get_tensor_shape(name)] * 3
        fits = all(low <= size <= high for low, size, high in zip(least, shape, most))
        if _fails("set_input_shape") or not fits:
            return False
        self.generation += self._shapes.get(name) != tuple(shape)
        self._shapes[name] = tuple(shape)
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if not self._shapes:
            return self.engine.get_tensor_shape(name)
        return self.engine.shapes_of(self._shapes)[name]

    def set_tensor_address(self, name: str, address: int) -> bool:
        if _fails("set_tensor_address") or name not in [
            self.engine.get_tensor_name(n) for n in range(self.engine.num_io_tensors)
        ]:
            return False
        self._addresses[name] = address
        return True

    def execute_async_v3(self, stream_handle: int) -> bool:
        known = len(self._addresses) == self.engine.num_io_tensors and len(self._shapes) == len(self.engine.inputs)
        if _fails("execute_async_v3") or not known or not self.activations:
            return False
        if RTX:
            self._compile()
        for row, took in _LAYERS if self.profiler else ():
            self.profiler.report_layer_time(row["Name"], took)
        run = _Run(weakref.ref(self), self.generation, dict(self._shapes), dict(self._addresses))
        number = next(_numbers)
        _runs[number] = run
        return int(_cuda.cuLaunchHostFunc(ctypes.c_void_p(stream_handle), _CALLBACK, ctypes.c_void_p(number))) == 0

    if RTX:

        def _compile(self) -> None:
            """Of its shape, as it is configured; what a graph would keep must not be the general kernels."""
            if self.config is None or self.config.dynamic_shapes_kernel_specialization_strategy.name != "EAGER":
                failures.append("a context runs general kernels")
            elif self.config.cuda_graph_strategy.name != "DISABLED":
                failures.append("a context captures graphs of its own")
            elif self.config.cache:
                self.config.cache.add(json.dumps([self.engine.header, sorted(self._shapes.items())]))

        def is_stream_capturable(self, stream: int) -> bool:
            return bool(stream) and "REQUIRE_USER_ALLOCATION" in self.engine.header["flags"]

    if MAJOR == 8:

        @property
        def device_memory(self) -> int:
            return self.activations

        @device_memory.setter
        def device_memory(self, pointer: int) -> None:
            self._give(pointer)

    else:

        def set_device_memory(self, pointer: int, size: int) -> None:
            if size < self.engine.memory_of_a_context:
                failures.append(f"{size} bytes are too few for activations")
            self._give(pointer)

    def _give(self, pointer: int) -> None:
        if pointer % 256:
            failures.append("activations are not aligned to 256 bytes")
        self.activations = pointer


class _Run:
    """An enqueued run."""

    def __init__(
        self,
        context: weakref.ref[IExecutionContext],
        generation: int,
        shapes: dict[str, Any],
        addresses: dict[str, int],
    ) -> None:
        self._context, self._generation, self._shapes, self._addresses = context, generation, shapes, addresses

    def run(self) -> None:
        context = self._context()
        if context is None:
            raise RuntimeError("a context runs that is gone")
        if context.generation != self._generation:
            raise RuntimeError("a context runs after its shape has changed")
        if context.activations in _busy:
            raise RuntimeError("two contexts use the same activations at once")
        _busy.add(context.activations)
        try:
            scratch = (ctypes.c_byte * context.engine.memory_of_a_context).from_address(context.activations)
            ctypes.memset(scratch, 0x5A, ctypes.sizeof(scratch))
            self._compute(context)
        finally:
            _busy.discard(context.activations)

    def _compute(self, context: IExecutionContext) -> None:
        engine = context.engine
        inputs = {name: self._array(name, shape, engine.get_tensor_dtype(name)) for name, shape in self._shapes.items()}
        wanted = {node.name: _DTYPES[_OF_ORT[node.type]] for node in engine.session.get_inputs()}
        found = engine.session.run(None, {name: array.astype(wanted[name]) for name, array in inputs.items()})
        for node, array in zip(engine.session.get_outputs(), found):
            self._array(node.name, array.shape, engine.get_tensor_dtype(node.name))[...] = array
        if context.profiler:
            context.profiler.report_layer_time("all of it", 0.1)

    def _array(self, name: str, shape: tuple[int, ...], dtype: DataType) -> npt.NDArray[Any]:
        kind = _DTYPES[dtype]
        raw = (ctypes.c_byte * (prod(shape) * kind.itemsize)).from_address(self._addresses[name])
        return np.frombuffer(memoryview(raw), kind).reshape(shape)


_busy: set[int] = set()
_runs: dict[int, _Run] = {}
_numbers = itertools.count(1)


def _compute(number: int) -> None:
    try:
        _runs[number].run()
    except Exception:  # noqa: BLE001 - the test reports it
        failures.append(traceback.format_exc())


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_compute)  # the function that the driver calls


class ExecutionContextAllocationStrategy(Enum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class IRuntimeCache:
    """Kernels that were compiled for this card: here, what they were compiled for."""

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine  # the stricter of what bindings may do: it must be released first
        self._head = f"kernels of {VERSION} for {_own_architecture()}"
        self._kernels: set[str] = set()

    def add(self, kernel: str) -> None:
        called["compile"] += kernel not in self._kernels
        self._kernels.add(kernel)

    def serialize(self) -> bytes:
        return "\n".join((self._head, *sorted(self._kernels))).encode()

    def deserialize(self, blob: bytes) -> bool:
        head, *kernels = blob.decode().split("\n")
        if head != self._head:
            return False
        self._kernels.update(kernels)
        return True


class IRuntimeConfig:
    """How contexts run."""

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self.memory: Any = None
        self.cache: IRuntimeCache | None = None
        self.dynamic_shapes_kernel_specialization_strategy: Any = None
        self.cuda_graph_strategy: Any = None

    def set_execution_context_allocation_strategy(self, strategy: Any) -> None:
        self.memory = strategy

    def create_runtime_cache(self) -> IRuntimeCache:
        return IRuntimeCache(self._engine)

    def set_runtime_cache(self, cache: IRuntimeCache) -> bool:
        self.cache = cache
        return True


ComputeCapability = _enum("ComputeCapability", ["NONE", "CURRENT", "SM75", "SM80", "SM86", "SM89", "SM120", "SM121"])
EngineInvalidityDiagnostics = IntFlag("EngineInvalidityDiagnostics", ["VERSION_MISMATCH", "UNSUPPORTED_CC"])
CudaGraphStrategy = _enum("CudaGraphStrategy", ["DISABLED", "WHOLE_GRAPH_CAPTURE"])
DynamicShapesKernelSpecializationStrategy = _enum("Specialization", ["LAZY", "EAGER", "NONE"])

if not RTX:
    del ComputeCapability, EngineInvalidityDiagnostics, CudaGraphStrategy, DynamicShapesKernelSpecializationStrategy

if MAJOR > 8:

    class IProgressMonitor:
        """A base class."""

else:
    del ExecutionContextAllocationStrategy

__version__ = VERSION
__all__ = [name for name in dir(sys.modules[__name__]) if not name.startswith("_")] + ["__version__"]
