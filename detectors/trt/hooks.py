"""Classes that TensorRT calls back. Its base classes come with the library, so each is made for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger(__name__)


def make_logger(trt: Any) -> Any:
    """A logger that logs TensorRT's errors once each; its warnings do not help an operator."""
    logged: set[str] = set()

    def note(text: str) -> None:
        if text not in logged:
            logged.add(text)
            log.error("tensorrt", text=text)

    return _make(trt, note, lambda text: log.debug("tensorrt", text=text))


def make_collector(trt: Any, errors: list[str]) -> Any:
    """A logger that collects errors. They are reported only if a build fails: successful builds have some too."""
    return _make(trt, errors.append, lambda _text: None)


def _make(trt: Any, on_error: Callable[[str], None], on_other: Callable[[str], None]) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc]
        """Called from TensorRT's own threads, too."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            is_error = severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR)
            (on_error if is_error else on_other)(text)

    return Logger()


def make_profiler(trt: Any, rows: dict[str, list[float]]) -> Any:
    """A profiler that adds the milliseconds of each run to the rows of a layer."""

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        """Called by TensorRT."""

        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            rows.setdefault(layer_name, []).append(ms)

    return Profiler()
