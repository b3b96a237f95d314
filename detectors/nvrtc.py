"""Compiles kernels for the present GPU and caches them; the only importer of the compiler's bindings."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from detectors.cuda import CudaError
from detectors.port import BackendUnavailableError, DetectorError

try:
    from cuda.bindings import nvrtc
except ImportError as error:
    raise BackendUnavailableError("CUDA's Python bindings are not installed: pip install cuda-python") from error

_OPTIONS = ("--std=c++17", "--fmad=false")  # no fused multiply-add: the same arithmetic as the reference


def compile_cubin(source: Path, architecture: str, cache: Path | None = None) -> bytes:
    """Compile a .cu file with NVRTC for an architecture such as "sm_90"; needs no GPU and no driver. It may include the
    other files of its folder.

    Args:
        cache: folder of compiled kernels, by hash of source, options, compiler and architecture.

    Raises:
        BackendUnavailableError: NVRTC is missing.
        DetectorError: a compiler error, with its message.
    """
    text, headers = source.read_bytes(), _headers(source)
    try:
        version: tuple[int, int] = _checked(nvrtc.nvrtcVersion())
    except RuntimeError as error:  # library not found
        raise BackendUnavailableError(
            "NVRTC, which compiles the kernels for your GPU, is not installed: pip install 'cuda-toolkit[nvrtc]'"
        ) from error
    options = (f"--gpu-architecture={architecture}", *_OPTIONS)
    key = hashlib.sha256(repr((text, headers, version, options)).encode()).hexdigest()[:32]
    cached = cache / f"{source.stem}-{architecture}-{key}.cubin" if cache else None
    if cached and cached.is_file():
        return cached.read_bytes()
    cubin = _compile(text, source.name, headers, options)
    if cached:
        _write_atomically(cached, cubin)
    return cubin


def _headers(source: Path) -> dict[str, bytes]:
    """The files that a file includes, directly or not, by name."""
    found: dict[str, bytes] = {}
    names = [source.name]
    for name in names:
        text = (source.parent / name).read_text()
        more = [path for path in re.findall(r'^#include "(.+)"$', text, re.M) if path not in names]
        names += more
        found |= {path: (source.parent / path).read_bytes() for path in more}
    return found


def _compile(text: bytes, name: str, headers: Mapping[str, bytes], options: Sequence[str]) -> bytes:
    names = [header.encode() for header in headers]
    program = _checked(nvrtc.nvrtcCreateProgram(text, name.encode(), len(names), [*headers.values()], names))
    try:
        try:
            _checked(nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options]))
        except CudaError as error:
            compiler_log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
            _checked(nvrtc.nvrtcGetProgramLog(program, compiler_log))
            message = compiler_log.rstrip(b"\0").decode(errors="replace").strip()
            raise DetectorError(f"{name} does not compile with {' '.join(options)}: {message}") from error
        cubin: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
        _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, also with concurrent writers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.replace(file.name, path)


def _checked(result: tuple[Any, ...]) -> Any:
    """The values of a call, or a CudaError with NVRTC's own name and explanation."""
    status, *values = result
    if int(status) != 0:
        raise CudaError(str(status.name), nvrtc.nvrtcGetErrorString(status)[1].decode())
    return values[0] if len(values) == 1 else values
