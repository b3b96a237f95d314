"""State of the driver's stand-in, for tests in a process that uses it."""

from __future__ import annotations

import ctypes

_cuda = ctypes.CDLL("libcuda.so.1")
_seen = [0]
_cuda.cuda_report.argtypes = _cuda.cuda_calls.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
_cuda.cuda_fail.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int)
_cuda.cuda_trespasses.restype = _cuda.cuda_unlaunched.restype = ctypes.c_long
_cuda.cuda_bytes.restype = ctypes.c_size_t


def alive() -> dict[str, int]:
    """Handles and allocations that were not released, by kind."""
    return _lines(_cuda.cuda_report)


def calls() -> dict[str, int]:
    """Calls since the last `fail` or `calm`, by name."""
    return _lines(_cuda.cuda_calls)


def fail(name: str, number: int, code: int) -> None:
    """Let one call fail: the next call of this name is number 1."""
    _cuda.cuda_fail(name.encode(), number, code)


def calm() -> None:
    """Reset failures and counts."""
    _cuda.cuda_fail(b"", 0, 0)


def trespasses() -> int:
    """Accesses to memory that is not allocated, since the last call."""
    before, _seen[0] = _seen[0], int(_cuda.cuda_trespasses())
    return _seen[0] - before


def unlaunched() -> int:
    """Number of graphs that have never run."""
    return int(_cuda.cuda_unlaunched())


def device_bytes() -> int:
    """Bytes of GPU memory in use."""
    return int(_cuda.cuda_bytes())


def _lines(report: object) -> dict[str, int]:
    text = ctypes.create_string_buffer(1 << 16)
    report(text, len(text))  # type: ignore[operator]
    rows = (line.rpartition(":") for line in text.value.decode().splitlines())
    return {name: int(count) for name, _, count in rows}
