"""What every backend asks of a model's file before it loads it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from detectors.port import DetectorError, Options

_ENGINES = (".plan", ".engine", ".trt")
_TORCH = (".pt", ".pth", ".torchscript")


def read(path: Path) -> bytes:
    """The file's content.

    Raises:
        DetectorError: it cannot be read, or cannot be a model.
    """
    try:
        if path.is_char_device() or path.is_block_device():  # which may have no end
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
        raise DetectorError(f"model {path} is a built engine: give the ONNX file, engines are built from it and kept")
    return content


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def quantised(content: bytes, metadata: Mapping[str, str]) -> str | None:
    """What the quantised layers of an ONNX file compute in, "int8" or "fp8"; None for a float model.

    The metadata may say so; otherwise the file is searched for the name of the operator that all such files have,
    which needs no parser.
    """
    told = metadata.get("lookout.precision")
    if told in ("int8", "fp8"):
        return told
    return "int8" if b"DequantizeLinear" in content else None


def input_size(shape: Sequence[int | str], metadata: Mapping[str, str], options: Options) -> tuple[int, int]:
    """Width and height of a model's input, pixels.

    Args:
        shape: (batch, 3, height, width), a string where the model leaves it open.
        metadata: the ONNX file's own key-value pairs.

    Raises:
        DetectorError: the model leaves it open and nobody says; or fixed, and another is asked for.
    """
    height, width = shape[2], shape[3]
    if isinstance(height, int) and isinstance(width, int):
        if options.input_size not in (None, (width, height)):
            raise DetectorError(
                f"{options.path}: the model's input is fixed at {width}x{height}: drop model.input_size"
            )
        return width, height
    if options.input_size is not None:
        return options.input_size
    sizes = [int(part) for part in metadata.get("imgsz", "").strip("[]").split(",") if part.strip().isdigit()]
    if len(sizes) == 2:
        return sizes[1], sizes[0]
    raise DetectorError(f"{options.path}: the model's input size is dynamic: set model.input_size, such as [640, 640]")


def fixed_batch(size: int | None, options: Options) -> tuple[str, ...]:
    """What to tell of a file that is made for batches of one size.

    Args:
        size: that it is made for, None for any.
    """
    if size is None or size >= options.max_batch:
        return ()
    return (
        f"{options.path.name} is made for batches of {size}, where {options.max_batch} could be taken: export it with "
        "a dynamic batch (dynamic=True), and a GPU does many times as much",
    )
