"""An engine, and what must be gone before its device: errors' tracebacks keep objects alive, but not what these own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import structlog

from detectors.cuda import Device
from detectors.port import DetectorError
from detectors.trt import compat
from detectors.trt.hooks import make_logger
from detectors.trt.library import Library
from detectors.trt.runtime_cache import RuntimeCache

log = structlog.get_logger(__name__)


class EngineOwner:
    """The only owner of an engine. It loads one at a time.

    Attributes:
        trt: the library's module.
        engine: None until one is loaded.
        compiled: kernels that were compiled for the engine here; None if it has all of its own.
    """

    def __init__(self, library: Library) -> None:
        self.library, self.trt = library, library.trt
        self.engine: Any = None
        self.compiled: RuntimeCache | None = None
        self._logger = make_logger(self.trt)
        self._runtime: Any = self.trt.Runtime(self._logger)

    def load(self, plan: bytes, device: Device) -> bool:
        """Load an engine; False if TensorRT rejects the plan. A lack of memory raises instead: the plan may be good.

        Raises:
            DetectorError: not enough memory is free.
        """
        if len(plan) > (free := device.free_memory()):
            raise DetectorError(f"the engine takes {len(plan) >> 20} MiB of GPU memory, {free >> 20} MiB are free")
        self.engine = self._runtime.deserialize_cuda_engine(plan)
        if self.engine is None and (reason := compat.reason_against(self.trt, self._runtime, plan)):
            log.error("an engine does not load", reason=reason)
        return self.engine is not None

    def keep_compiled(self, path: Path) -> None:
        """Take the engine's compiled kernels from a file, and keep new ones there, where it has none of its own.

        Raises:
            DetectorError: not enough memory.
        """
        if compat.is_rtx(self.trt):
            self.compiled = RuntimeCache(self.engine, path)

    def drop(self) -> None:
        """Release the engine, to load another one."""
        if self.compiled:
            self.compiled.close()
        self.compiled = self.engine = None

    def close(self) -> None:
        self.drop()
        self._runtime = None
