"""Differences between TensorRT 8.6, 10 and 11 and TensorRT RTX; the rest of the backend is the same for all.

| | 8.6 | 10 | 11 | RTX |
|---|---|---|---|---|
| networks | explicit batch by a flag | strongly typed by a flag | always strongly typed | always strongly typed |
| FP16 | builder flag | in the graph | in the graph | in the graph |
| INT8 | pairs in the graph and builder flags | in the graph | in the graph | no convolutions |
| FP8 | never | in the graph | in the graph | in the graph, from compute capability 8.9 on |
| an engine is for | the card that built it | that card | that card | named compute capabilities |
| kernels are chosen | by the builder | by the builder | by the builder | where it runs, and kept in a cache |
| contexts sharing a profile | a preview feature | always | always | always |
| progress of a build | none | IProgressMonitor | IProgressMonitor | IProgressMonitor |
| memory of a context | device_memory_size | device_memory_size_v2 | device_memory_size_v2 | device_memory_size_v2 |
| contexts without memory | a method | a strategy | a strategy | a strategy in a configuration |
| setting it | device_memory | set_device_memory | set_device_memory | set_device_memory |

TensorRT 10 supports both ways to FP16; it gets that of 11: one file, one arithmetic, no deprecated flag. Enum values
change between versions, so only names are used, after a check that they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from detectors.port import BackendUnavailableError, DetectorError
from detectors.trt.cards import in_words
from detectors.trt.runtime_cache import RuntimeCache, configured

Precision = Literal["fp32", "fp16", "int8", "fp8"]


def is_rtx(trt: Any) -> bool:
    """Whether engines are built for compute capabilities, and compiled for a card where they run."""
    return hasattr(trt, "ComputeCapability")


def is_strongly_typed(trt: Any) -> bool:
    """Whether a network takes each tensor's precision from the graph."""
    return hasattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED")


def make_network(trt: Any, builder: Any) -> Any:
    """An empty network with an explicit batch dimension, strongly typed if supported."""
    flags = trt.NetworkDefinitionCreationFlag
    name = "STRONGLY_TYPED" if is_strongly_typed(trt) else "EXPLICIT_BATCH"
    return builder.create_network(1 << int(getattr(flags, name)))


def set_precision(trt: Any, config: Any, network: Any, precision: Precision) -> str:
    """Set the builder's precision; returns a description. TF32 is off, because it rounds to 10 bits."""
    flags = trt.BuilderFlag
    if hasattr(flags, "TF32"):
        config.clear_flag(flags.TF32)
    if precision == "fp32":
        return "FP32 from the graph"
    if is_strongly_typed(trt):
        types = {"int8": "INT8 and FP16", "fp8": "FP8 and FP16"}.get(precision, "FP16")
        return f"{types} in the graph, strongly typed"
    if precision == "fp8":
        raise BackendUnavailableError(f"TensorRT {trt.__version__} has no FP8, 10 and later do: use int8 or fp16")
    config.set_flag(flags.FP16)
    if precision == "int8":  # Q/DQ pairs select the layers and round the input
        config.set_flag(flags.INT8)
        return "INT8 in the graph, FP16 by builder flags where faster"
    for number in range(network.num_inputs):
        if network.get_input(number).dtype == trt.float32:
            network.get_input(number).dtype = trt.float16
    return "FP16 by builder flag"


def set_tactics(trt: Any, config: Any) -> None:
    """Use TensorRT's own convolutions: YOLO needs no others, and the engine loads without cuBLAS and cuDNN."""
    names = ("EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")
    known = [getattr(trt.TacticSource, name) for name in names if hasattr(trt.TacticSource, name)]
    config.set_tactic_sources(sum(1 << int(source) for source in known))


def architectures_of(trt: Any) -> set[str] | None:
    """The architectures that engines can be built for, such as "sm_86"; None for that of the builder's card."""
    if not is_rtx(trt):
        return None
    return {f"sm_{name.removeprefix('SM')}" for name in dir(trt.ComputeCapability) if name.startswith("SM")}


def set_architectures(trt: Any, config: Any, architectures: Sequence[str]) -> None:
    """Build for cards of these architectures, where the builder does not build for its own.

    Raises:
        DetectorError: this version cannot build for one of them.
    """
    if is_rtx(trt):
        config.num_compute_capabilities = len(architectures)
        for number, name in enumerate(architectures):
            target = getattr(trt.ComputeCapability, name.upper().replace("_", ""), None)
            if target is None or not config.set_compute_capability(target, number):
                raise DetectorError(f"TensorRT RTX {trt.__version__} cannot build for {in_words(name)}")


def use_given_memory(trt: Any, config: Any) -> None:
    """Build engines that allocate nothing while they run: graphs could not be captured otherwise. A model that cannot
    do without is refused by the builder, and not by a capture."""
    if hasattr(trt.BuilderFlag, "REQUIRE_USER_ALLOCATION"):
        config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)


def share_profiles(trt: Any, config: Any) -> None:
    """Let all lanes' contexts use the same optimisation profiles."""
    if hasattr(trt.PreviewFeature, "PROFILE_SHARING_0806"):
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)


def limit_streams(config: Any) -> None:
    """Keep a lane's work in its own stream: lanes run in parallel, and graphs are captured from one stream."""
    config.max_aux_streams = 0


def monitor(trt: Any, config: Any, report: Callable[[str], None]) -> None:
    """Report the builder's progress if supported, such as "Building engine, 12 of 40"."""
    if not hasattr(trt, "IProgressMonitor"):
        return

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        """Called from the builder's own threads."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self._steps: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:  # noqa: ARG002 - TensorRT calls by name
            self._steps[phase_name] = num_steps

        def step_complete(self, phase_name: str, step: int) -> bool:
            report(f"{phase_name}, {step + 1} of {self._steps.get(phase_name, 0)}")
            return True  # continue

        def phase_finish(self, phase_name: str) -> None:
            self._steps.pop(phase_name, None)

    config.progress_monitor = Monitor()


def context_bytes(engine: Any) -> int:
    """Activation memory of an execution context, at the engine's largest batch."""
    name = "device_memory_size_v2" if hasattr(engine, "device_memory_size_v2") else "device_memory_size"
    return int(getattr(engine, name))


def make_context(trt: Any, engine: Any, cache: RuntimeCache | None) -> Any:
    """An execution context without activation memory; None if there is not enough memory.

    Args:
        cache: of kernels that are compiled where they run.
    """
    if is_rtx(trt):
        config = configured(trt, engine, trt.ExecutionContextAllocationStrategy.USER_MANAGED, cache)
        return config and engine.create_execution_context(config)
    if hasattr(trt, "ExecutionContextAllocationStrategy"):
        return engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
    return engine.create_execution_context_without_device_memory()


def make_own_context(trt: Any, engine: Any, cache: RuntimeCache | None) -> Any:
    """An execution context with activation memory of its own; None if there is not enough memory."""
    if is_rtx(trt):
        config = configured(trt, engine, trt.ExecutionContextAllocationStrategy.STATIC, cache)
        return config and engine.create_execution_context(config)
    return engine.create_execution_context()


def can_capture(context: Any, stream: int) -> bool:
    """Whether a context's work can become a graph; asked once its shapes are set and it has run."""
    return not hasattr(context, "is_stream_capturable") or bool(context.is_stream_capturable(stream))


def reason_against(trt: Any, runtime: Any, plan: bytes) -> str:
    """Why an engine cannot be loaded here, as far as TensorRT tells; empty if it does not."""
    if not is_rtx(trt):
        return ""
    _, bits = runtime.get_engine_validity(plan)
    reasons = trt.EngineInvalidityDiagnostics.__members__.items()
    return ", ".join(name.lower().replace("_", " ") for name, bit in reasons if int(bits) & int(bit))


def use_profile(context: Any, number: int, stream: int) -> bool:
    """Select an optimisation profile, before any shape is set; False if TensorRT refuses. A new context has the first.

    Args:
        stream: handle; the selection is complete when the stream has passed.
    """
    return number == 0 or bool(context.set_optimization_profile_async(number, stream))


def give_memory(context: Any, pointer: int, size: int) -> None:
    """Set a context's activation memory; other contexts may use it while this one does not run."""
    if hasattr(context, "set_device_memory"):
        context.set_device_memory(pointer, size)
    else:
        context.device_memory = pointer
