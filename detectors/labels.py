"""Class labels: from the ONNX metadata, a text file, or the built-in COCO list."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from detectors.port import DetectorError

_COCO = Path(__file__).with_name("coco.txt")
_MAX_LENGTH = 128  # characters; labels are part of every message


def resolve(
    override: str | None, metadata: Mapping[str, str], classes: int | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The labels of a model, and notes on invented ones.

    Args:
        override: a file with one label per line, "coco", or None for the model's own metadata (`names`).
        metadata: the ONNX file's own key-value pairs.
        classes: number of classes of the output; None if unknown.

    Raises:
        DetectorError: the file cannot be read, the count differs from the model's, or a label is not printable text.
    """
    if override is not None:
        labels, origin = _read(_COCO if override == "coco" else Path(override)), f"the list {override}"
    elif "names" in metadata:
        labels, origin = _parse(metadata["names"]), "the model's metadata"
    elif classes is not None:
        made_up = tuple(f"class_{number}" for number in range(classes))
        return made_up, (f"the model has no labels: using class_0 to class_{classes - 1}; set model.labels",)
    else:
        raise DetectorError("the model has no labels and an unknown number of classes: set model.labels")
    if classes is not None and len(labels) != classes:
        raise DetectorError(f"{origin} has {len(labels)} labels, but the model's output has {classes} classes")
    for number, label in enumerate(labels):
        if not label.isprintable() or len(label) > _MAX_LENGTH:
            shown = ascii(label[:40])
            raise DetectorError(
                f"{origin}: label {number}, {shown}, is not printable text of at most {_MAX_LENGTH} characters"
            )
    return labels, ()


def _read(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DetectorError(f"labels file {path} cannot be read: {error}") from error
    labels = tuple(line.strip() for line in lines if line.strip())
    if not labels:
        raise DetectorError(f"labels file {path} is empty: write one label per line")
    return labels


def _parse(names: str) -> tuple[str, ...]:
    """A dictionary or list literal, as written by ultralytics: {0: 'person', 1: 'bicycle'}."""
    try:
        value = ast.literal_eval(names)
        items = [value[key] for key in sorted(value)] if isinstance(value, dict) else list(value)
        return tuple(str(item) for item in items)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise DetectorError(f"the model's metadata `names` is not a list of labels: {names[:60]!r}") from error
