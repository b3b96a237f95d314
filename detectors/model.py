"""A model file before a backend loads it: its checks, and its digest, that of the ONNX file and of the files beside it
that hold its weights.
"""

from __future__ import annotations

import ast
import hashlib
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath

from detectors.onnx_graph import OnnxGraph, graph_of
from detectors.port import DetectorError, Options, Size

_ENGINES = (".plan", ".engine", ".trt")
_STRIDE = 32
_TORCH = (".pt", ".pth", ".torchscript")
_BLOCK = 1 << 20
_CACHED = 64  # files


def read(path: Path) -> bytes:
    """The file's content.

    Raises:
        DetectorError: the file cannot be read, or is not a model.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # it may be endless
            raise DetectorError(f"model {path} is not a file; set model.path")
        content = path.read_bytes()
    except OSError as error:
        raise DetectorError(f"model {path} cannot be read: {error.strerror}; set model.path") from error
    if not content:
        raise DetectorError(f"model {path} is empty (0 bytes): copy or export it again")
    if path.suffix in _TORCH:
        export = f"yolo export model={path.name} format=onnx dynamic=True"
        raise DetectorError(f"model {path} is a PyTorch file: export it to ONNX, such as by `{export}`")
    if path.suffix in _ENGINES:
        raise DetectorError(f"model {path} is a built engine: give the ONNX file, from which engines are built")
    return content


def quantised(content: bytes, metadata: Mapping[str, str]) -> str | None:
    """The precision of an ONNX file's quantised layers, "int8" or "fp8"; None for a float model.

    Read from the metadata, or else found by searching the file for an operator's name, without a parser.
    """
    stated = metadata.get("lookout.precision")
    if stated in ("int8", "fp8"):
        return stated
    return "int8" if b"DequantizeLinear" in content else None


def input_size(shape: Sequence[int | str], metadata: Mapping[str, str], options: Options) -> Size:
    """Width and height of a model's input, pixels.

    Args:
        shape: (batch, 3, height, width); a string for a dynamic dimension.
        metadata: the ONNX file's own key-value pairs.

    Raises:
        DetectorError: the size is dynamic and not configured, or fixed and configured differently.
    """
    height, width = shape[2], shape[3]
    if isinstance(height, int) and isinstance(width, int):
        if options.input_size not in (None, (width, height)):
            raise DetectorError(
                f"{options.path}: the model's input is fixed at {width}x{height}: remove model.input_size"
            )
        return width, height
    if options.input_size is not None:
        return options.input_size
    sizes = [int(part) for part in metadata.get("imgsz", "").strip("[]").split(",") if part.strip().isdigit()]
    if len(sizes) == 2:
        return sizes[1], sizes[0]
    raise DetectorError(f"{options.path}: the model's input size is dynamic: set model.input_size, such as [640, 640]")


def input_sizes(shape: Sequence[int | str], metadata: Mapping[str, str], options: Options) -> tuple[Size, ...]:
    """All sizes at which a model is opened; its own first.

    Args:
        shape, metadata: see `input_size`.

    Raises:
        DetectorError: as `input_size`; or the model does not run at one of the further sizes.
    """
    own = input_size(shape, metadata, options)
    stride = _stride(metadata)
    further = [size for size in dict.fromkeys(options.further_sizes) if size != own]
    for width, height in further:
        asked = f"{options.path}: an input_size of {width}x{height} is not possible"
        sides = shape[3], shape[2]
        if any(isinstance(side, int) and side != wanted for side, wanted in zip(sides, (width, height))):
            fixed = "x".join(str(side) if isinstance(side, int) else "any" for side in sides)
            raise DetectorError(f"{asked}: the model's input is fixed at {fixed}; export it with dynamic=True")
        if width % stride or height % stride:
            near = "x".join(str(max(1, round(side / stride)) * stride) for side in (width, height))
            raise DetectorError(f"{asked}: sides must be multiples of {stride}, such as {near}")
    return (own, *further)


def _stride(metadata: Mapping[str, str]) -> int:
    """Pixels of which sides must be multiples, from ultralytics' metadata; 32 without it."""
    stated = metadata.get("stride", "")
    return int(stated) if stated.isdigit() and int(stated) > 0 else _STRIDE


def fixed_batch(size: int | None, options: Options) -> tuple[str, ...]:
    """A note on a file with a fixed batch size smaller than `max_batch`; empty otherwise.

    Args:
        size: the file's batch size; None if dynamic.

    Raises:
        DetectorError: the file has a batch without pictures.
    """
    if size is not None and size < 1:
        raise DetectorError(
            f"{options.path}: the model's batch is fixed at {size}: export it with a dynamic batch (dynamic=True)"
        )
    if size is None or size >= options.max_batch:
        return ()
    return (
        f"{options.path.name} has a fixed batch size of {size}, but {options.max_batch} is possible: export it with a "
        "dynamic batch (dynamic=True) to run many times faster on a GPU",
    )


def within_nms(
    options: Options, metadata: Mapping[str, str], graph: OnnxGraph | None = None
) -> tuple[Options, tuple[str, ...]]:
    """Options for a file with NMS inside, and a note if its largest batch is smaller than `max_batch`.

    Ultralytics exports NMS for as many pictures as the export's `batch` says. All further pictures of a batch would
    come back without boxes. The NMS of a file that states no batch may serve the first picture alone.

    Args:
        graph: of the file; None if it is not here.
    """
    inside = graph is not None and graph.count("NonMaxSuppression") > 0
    batch = _stated_batch(metadata, inside=inside) or (1 if inside else 0)
    if not 0 < batch < options.max_batch:
        return options, ()
    return replace(options, max_batch=batch), (
        f"{options.path.name} has NMS inside for batches up to {batch}, so {options.max_batch} is not possible: export "
        f"it with batch={options.max_batch}, or without NMS",
    )


def _stated_batch(metadata: Mapping[str, str], *, inside: bool) -> int:
    """The largest batch of a file's NMS as ultralytics states it; 0 if it does not, or has no NMS."""
    try:
        stated = ast.literal_eval(metadata.get("args", "{}"))
        batch = int(metadata.get("batch", "0"))
    except (ValueError, SyntaxError, TypeError):
        return 0
    return batch if inside or (isinstance(stated, dict) and stated.get("nms") is True) else 0


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
