"""The digest of a model: of its ONNX file, and of the files beside it that hold its weights."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath

from detectors.model import read
from detectors.onnx_graph import graph_of
from detectors.port import DetectorError

_BLOCK = 1 << 20
_CACHED = 64  # files


def digest_of(path: Path, content: bytes | None = None) -> str:
    """The SHA-256 of a model. Files with external weights are part of it; without any it is that of the ONNX file.

    A file of weights is read once, until it changes: it may have many gigabytes.

    Args:
        content: of the ONNX file; None to read it.

    Raises:
        DetectorError: a file cannot be read, or is too short.
    """
    content = read(path) if content is None else content
    own = hashlib.sha256(content)
    graph = graph_of(content)
    sizes = graph.external if graph else {}
    if not sizes:
        return own.hexdigest()
    whole = hashlib.sha256(own.digest())
    for (location, size), file in zip(sizes.items(), external_files(path, list(sizes))):
        whole.update(f"\0{location}\0".encode() + _digest_of_file(path, file, size))
    return whole.hexdigest()


def external_files(path: Path, locations: Sequence[str]) -> list[Path]:
    """The files that hold a model's weights.

    Args:
        locations: as the ONNX file names them, relative to its folder.

    Raises:
        DetectorError: one lies outside of the folder.
    """
    found = []
    for location in locations:
        where = PurePosixPath(location)
        is_inside = not (where.is_absolute() or ".." in where.parts or PureWindowsPath(location).drive)
        if not location or not location.isprintable() or not is_inside:
            raise DetectorError(
                f"model {path}: it names weights outside of its folder, {location!r}: export it again, with its "
                "weights beside it"
            )
        found.append(path.parent / where)
    return found


def _digest_of_file(model: Path, file: Path, size: int) -> bytes:
    """Args:
    size: bytes that the file must have.
    """
    try:
        before = _version(file)
        if file.stat().st_size < size:
            raise DetectorError(
                f"model {model}: its weights in {file} are not complete, {file.stat().st_size} of {size} bytes: copy "
                "or export them again"
            )
        digest = _read_digest(file, before)
        if _version(file) != before:
            raise DetectorError(f"model {model}: {file} changed while it was read: try again when it is complete")
    except FileNotFoundError as error:
        raise DetectorError(f"model {model}: its weights lie in {file}, which does not exist: copy it there") from error
    except OSError as error:
        raise DetectorError(f"model {model}: its weights in {file} cannot be read: {error.strerror}") from error
    return digest


def _version(file: Path) -> tuple[int, ...]:
    """Facts that change with the file's content."""
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):  # may be endless
        raise DetectorError(f"{file} is not a file, and cannot hold the weights of a model")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@lru_cache(maxsize=_CACHED)
def _read_digest(file: Path, version: tuple[int, ...]) -> bytes:  # noqa: ARG001 - a part of the cache's key
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.digest()
