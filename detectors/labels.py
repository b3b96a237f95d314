"""Class labels: from the ONNX metadata, a text file, or the built-in COCO list."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from detectors.port import DetectorError

_COCO = Path(__file__).with_name("coco.txt")
_LONGEST = 128  # characters; a label is in every message


def resolve(
    wanted: str | None, metadata: Mapping[str, str], classes: int | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The labels of a model, and notes on any that were made up.

    Args:
        wanted: a file of one label a line, "coco", or None for the model's own metadata (`names`).
        metadata: the ONNX file's own key-value pairs.
        classes: how many the output has, None where it does not tell.

    Raises:
        DetectorError: the file cannot be read, the count is another than the model's, or a label is no plain text.
    """
    if wanted is not None:
        labels, origin = _read(_COCO if wanted == "coco" else Path(wanted)), f"the list {wanted}"
    elif "names" in metadata:
        labels, origin = _parse(metadata["names"]), "the model's metadata"
    elif classes is not None:
        made_up = tuple(f"class_{number}" for number in range(classes))
        return made_up, (f"the model names no labels: using class_0 to class_{classes - 1}; set model.labels",)
    else:
        raise DetectorError("the model names no labels and its output does not tell how many: set model.labels")
    if classes is not None and len(labels) != classes:
        raise DetectorError(f"{origin} has {len(labels)} labels, but the model's output has {classes} classes")
    for number, label in enumerate(labels):
        if not label.isprintable() or len(label) > _LONGEST:
            shown = ascii(label[:40])
            raise DetectorError(f"{origin}: label {number}, {shown}, is not a printable text of up to {_LONGEST} signs")
    return labels, ()


def _read(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DetectorError(f"labels file {path} cannot be read: {error}") from error
    labels = tuple(line.strip() for line in lines if line.strip())
    if not labels:
        raise DetectorError(f"labels file {path} is empty: write one label a line")
    return labels


def _parse(names: str) -> tuple[str, ...]:
    """A dictionary or list literal, as ultralytics writes it: {0: 'person', 1: 'bicycle'}."""
    try:
        value = ast.literal_eval(names)
        items = [value[key] for key in sorted(value)] if isinstance(value, dict) else list(value)
        return tuple(str(item) for item in items)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise DetectorError(f"the model's metadata `names` is not a list of labels: {names[:60]!r}") from error
