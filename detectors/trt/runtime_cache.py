"""How TensorRT RTX runs engines, and the kernels that it compiles for a card, kept in a file beside the engine.

An engine of TensorRT RTX has no kernels of a card: they are compiled when it first runs there, which takes seconds.
"""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path
from typing import Any

import structlog

from detectors.port import DetectorError
from detectors.trt.files import write_whole

log = structlog.get_logger(__name__)
MOST_BYTES = 100 << 20
"""NVIDIA's documentation expects no gain from a larger cache. One that grows beyond is not kept."""
SUFFIX = ".kernels"


def cache_file(folder: Path, plan_sha256: str, gpu: str) -> Path:
    """The file of an engine on a card."""
    return folder / f"{plan_sha256[:16]}-{re.sub('[^A-Za-z0-9]+', '_', gpu)}{SUFFIX}"


def files_of(folder: Path, plan_sha256: str) -> list[Path]:
    """The files of an engine, one for each card that has run it."""
    return sorted(folder.glob(f"{plan_sha256[:16]}-*{SUFFIX}")) if plan_sha256 else []


class RuntimeCache:
    """Compiled kernels of an engine on this card. All execution contexts share them. Needs a current CUDA context.

    Args:
        path: of the file.

    Raises:
        DetectorError: not enough memory.
    """

    def __init__(self, engine: Any, path: Path) -> None:
        self.path = path
        runtime_config = engine.create_runtime_config()
        self._kernels: Any = runtime_config and runtime_config.create_runtime_cache()
        if self._kernels is None:
            raise DetectorError("no memory for an engine's compiled kernels: see the log above")
        self._saving, self._kept = threading.Lock(), ""
        content = path.read_bytes() if path.is_file() else b""
        if content and not self._kernels.deserialize(content):
            log.info("compiled kernels are of another version, driver or card: compiled again", file=path.name)
        elif content:
            self._kept = hashlib.sha256(content).hexdigest()

    def use_in(self, runtime_config: Any) -> None:
        """Let contexts of a configuration take kernels from here, and leave theirs here."""
        runtime_config.set_runtime_cache(self._kernels)

    def save(self) -> None:
        """Write the file if there are new kernels. The next start compiles again where that fails."""
        with self._saving:
            content = bytes(self._kernels.serialize() or b"")
            digest = hashlib.sha256(content).hexdigest()
            if digest == self._kept:
                return
            self._kept = digest
            if len(content) > MOST_BYTES:
                log.warning("compiled kernels are too many to keep", mib=len(content) >> 20, most=MOST_BYTES >> 20)
                return
            try:
                write_whole(self.path, content)
            except OSError as error:
                log.warning("compiled kernels cannot be kept", file=str(self.path), reason=error.strerror)

    def close(self) -> None:
        """Release them, before their engine."""
        self._kernels = None


def configured(trt: Any, engine: Any, memory: Any, cache: RuntimeCache | None) -> Any:
    """The configuration of an execution context; None if there is not enough memory.

    Each of Lookout's contexts has one shape for all its life, runs once, and is then captured in a CUDA graph together
    with what comes before and after. So:

    - Kernels are specialised eagerly. Lazily, the default, a context runs general kernels until those of its shape are
      compiled in the background; the graph would keep the general ones for ever.
    - TensorRT RTX captures no graphs of its own. It would do so within the capture, and its gain is had already.

    Args:
        memory: whose the activations are.
    """
    runtime_config = engine.create_runtime_config()
    if runtime_config is None:
        return None
    runtime_config.set_execution_context_allocation_strategy(memory)
    runtime_config.dynamic_shapes_kernel_specialization_strategy = trt.DynamicShapesKernelSpecializationStrategy.EAGER
    runtime_config.cuda_graph_strategy = trt.CudaGraphStrategy.DISABLED
    if cache:
        cache.use_in(runtime_config)
    return runtime_config
