"""Class labels: from the ONNX metadata, a text file, or the built-in COCO list.

Files that have none in them are known by their digest, whatever they are called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detectors.metadata import LABEL_KEYS, leaves
from detectors.model import digest_of
from detectors.port import DetectorError
from detectors.semantics import Origin

_COCO = Path(__file__).with_name("coco.txt")
# COCO's category ids reach to 90, and 80 of them are in use. Models of 91 outputs have a number for each id.
_COCO_IDS = 91
_COCO_GAPS = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
_MAX_LENGTH = 128  # characters; labels are part of every message
_MAX_CLASSES = 1 << 16
_LINE = re.compile(r"\s*(\d+)\s*[:=]\s*(.*?)\s*")  # of YAML
_NUMBERED_LINE = re.compile(r"\s*(\d+)\s+(\S.*?)\s*")
_INVENTED = re.compile(r"LABEL_\d+|\d+")  # names of which an exporter knows no others
_NAME_KEYS = ("name", "label", "class_name")
# SHA-256 and bytes of the makers' release files, and `model.labels` of them.
KNOWN_FILES = {
    ("c789161ed43c8269fcd4e67c67eeeb4e80c622da2eb296a20bc6007bd18a0b7d", 3_659_407): "coco",  # yolox_nano
    ("427cc366d34e27ff7a03e2899b5e3671425c262ea2291f88bb942bc1cc70b0f7", 20_219_662): "coco",  # yolox_tiny
    ("c5c2d13e59ae883e6af3b45daea64af4833a4951c92d116ec270d9ddbe998063", 35_858_002): "coco",  # yolox_s
}
KNOWN_SIZES = {size for _, size in KNOWN_FILES}


@dataclass(frozen=True)
class Labels:
    """The labels of a model.

    Attributes:
        names: one per class id, from 0. A class id without a label has a name with its number.
        notes: on invented labels.
        origin: family: they are invented.
        are_numbered: the file states the class id of each label.
    """

    names: tuple[str, ...]
    notes: tuple[str, ...]
    origin: Origin
    are_numbered: bool = False


def resolve(override: str | None, metadata: Mapping[str, str], classes: int | None) -> Labels:
    """The labels of a model.

    Args:
        override: a file with one label per line, "coco", or None for the model's own metadata.
        metadata: the ONNX file's own key-value pairs.
        classes: number of classes of the output; None if unknown.

    Raises:
        DetectorError: the file cannot be read, the count differs from the model's, or a label is not printable text.
    """
    if override is not None:
        source = f"the list {override}"
        found = Labels(_listed(override, classes), (), "key")
    elif stated := _stated(metadata, classes):
        source, found = "the model's metadata", stated
    elif classes is not None:
        note = f"the model has no labels: using class_0 to class_{classes - 1}; set model.labels"
        return Labels(tuple(map(_unnamed, range(classes))), (note,), "family")
    else:
        raise DetectorError("the model has no labels and an unknown number of classes: set model.labels")
    if classes is not None and len(found.names) != classes:
        remedy = "; set model.labels" if override is None else ""
        raise DetectorError(
            f"{source} has {len(found.names)} labels, but the model's output has {classes} classes{remedy}"
        )
    for number, label in enumerate(found.names):
        if not label.isprintable() or len(label) > _MAX_LENGTH:
            shown = ascii(label[:40])
            raise DetectorError(
                f"{source}: label {number}, {shown}, is not printable text of at most {_MAX_LENGTH} characters"
            )
    return found


def known_labels(path: Path) -> str | None:
    """`model.labels` of a known file; None of any other, and of what cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size not in KNOWN_SIZES:
            return None
        content = path.read_bytes()
        return KNOWN_FILES.get((digest_of(path, content), len(content)))
    except (OSError, DetectorError):  # whoever opens the model says so
        return None


def _unnamed(number: int) -> str:
    return f"class_{number}"


def _listed(name: str, classes: int | None) -> tuple[str, ...]:
    """The labels of a list."""
    lines = _lines(_COCO if name == "coco" else Path(name))
    if name == "coco" and classes == _COCO_IDS:
        rest = iter(lines)
        return tuple(_unnamed(number) if number in _COCO_GAPS else next(rest) for number in range(_COCO_IDS))
    return _with_gaps(lines, classes)


def _lines(path: Path) -> list[str]:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # it may be endless
            raise DetectorError(f"labels file {path} is not a file")
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except OSError as error:
        raise DetectorError(f"labels file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DetectorError(f"labels file {path} is no text in UTF-8, at byte {error.start}") from error
    if not any(lines):
        raise DetectorError(f"labels file {path} is empty: write one label per line")
    return lines


def _with_gaps(lines: Sequence[str], classes: int | None) -> tuple[str, ...]:
    """The label of each line. A blank line is a class without a label, unless the model has as many classes as there
    are labels. Blank lines at the end count only if the model has so many classes."""
    labels = [line for line in lines if line]
    if len(labels) == classes:
        return tuple(labels)
    end = max(number for number, line in enumerate(lines) if line) + 1
    if classes is not None and end < classes <= len(lines):
        end = classes
    return tuple(line or _unnamed(number) for number, line in enumerate(lines[:end]))


def _stated(metadata: Mapping[str, str], classes: int | None) -> Labels | None:
    """The labels in the metadata; None without them.

    Raises:
        DetectorError: Lookout cannot read `names`.
    """
    values: dict[str, Any] = {}
    for name, value in leaves(metadata):
        values.setdefault(name, value)
    found: dict[str, Labels] = {}
    for name in (key for key in LABEL_KEYS if key in values):
        labels, are_numbered = _read(values[name], classes)
        if labels:
            found[name] = Labels(labels, (), "file", are_numbered)
        elif name == LABEL_KEYS[0]:
            shown = repr(str(values[name])[:60])
            raise DetectorError(f"the model's metadata `{name}` is not a list of labels: {shown}; set model.labels")
    return _agreed(found, classes)


def _agreed(found: Mapping[str, Labels], classes: int | None) -> Labels | None:
    """The labels that all keys state, of those that name as many classes as the model has.

    Raises:
        DetectorError: two differ.
    """
    fitting = {key: one for key, one in found.items() if classes in (None, len(one.names))} or found
    chosen = {key: one for key, one in fitting.items() if not all(map(_INVENTED.fullmatch, one.names))} or fitting
    if not chosen:
        return None
    first, *others = chosen
    for other in others:
        if chosen[other].names != chosen[first].names and len(chosen[other].names) == len(chosen[first].names):
            raise DetectorError(
                f"the model's metadata state two lists of labels, `{first}` and `{other}`: set model.labels"
            )
    return chosen[first]


def _read(value: Any, classes: int | None) -> tuple[tuple[str, ...], bool]:
    """The labels in a value, and whether it states their numbers; empty if it is no list of them."""
    if isinstance(value, str):
        return _read_text(value, classes)
    if isinstance(value, dict) and value:
        items = list(value.items())
        return _by_number([(number, name) for name, number in items] if _are_labels(value) else items), True
    if not isinstance(value, (list, tuple)):
        return (), False
    if value and all(isinstance(row, (list, tuple)) and len(row) == 2 for row in value):
        return _by_number([(row[0], row[1]) for row in value]), True
    if value and all(isinstance(row, dict) and "id" in row for row in value):
        return _by_number([(row["id"], row) for row in value]), True
    labels = tuple(map(_label_of, value))
    return tuple(label for label in labels if label is not None) if None not in labels else (), False


def _read_text(text: str, classes: int | None) -> tuple[tuple[str, ...], bool]:
    """As `_read`, of a text that is neither JSON nor Python's notation."""
    rows = _rows_of(text)
    for line in (_LINE, _NUMBERED_LINE):
        pairs = [pair for pair in map(line.fullmatch, rows) if pair]
        numbers = sorted(int(pair[1]) for pair in pairs)
        is_counted = line is _LINE or numbers in (list(range(len(rows))), list(range(1, len(rows) + 1)))
        if pairs and len(pairs) == len(rows) and is_counted:
            return _by_number([(pair[1], _unquoted(pair[2])) for pair in pairs]), True
    labels = tuple(map(_unquoted, rows)) if len(rows) > 1 else _words(text, classes)
    return () if any(set(label) & set('[]{}"') for label in labels) else labels, False


def _label_of(value: Any) -> str | None:
    """The label in a value, or in a mapping that has it among others; None if it is none."""
    if isinstance(value, dict):
        value = next((value[key] for key in _NAME_KEYS if key in value), None)
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def _are_labels(mapping: Mapping[Any, Any]) -> bool:
    """Whether a mapping goes from labels to class ids."""
    return all(_id_of(name) is None and _id_of(number) is not None for name, number in mapping.items())


def _by_number(pairs: Sequence[tuple[Any, Any]]) -> tuple[str, ...]:
    """The labels of pairs of class id and label. A class whose label is null has none.

    Raises:
        DetectorError: an id is none, or is there twice; or a label is none.
    """
    labels = {number: label for key, label in pairs if (number := _id_of(key)) is not None}
    if len(labels) < len(pairs):
        raise DetectorError("the model's metadata name a class twice, or without a number from 0: set model.labels")
    named = {number: _label_of(label) for number, label in labels.items() if label is not None}
    if None in named.values():
        raise DetectorError("the model's metadata have a class whose label is not a text: set model.labels")
    return tuple(named.get(number) or _unnamed(number) for number in range(max(labels) + 1))


def _id_of(key: Any) -> int | None:
    """A class id as a number or as text; None for anything else."""
    text = _unquoted(str(key)) if isinstance(key, (int, str)) and not isinstance(key, bool) else ""
    return int(text) if text.isascii() and text.isdigit() and int(text) < _MAX_CLASSES else None


def _rows_of(text: str) -> list[str]:
    """The parts of a text in YAML's notation, or with separators."""
    text = text.strip()
    if text[:1] + text[-1:] in ("{}", "[]"):
        text = text[1:-1]
    separator = next((one for one in "\n;," if one in text), "\n")
    return [part.strip().removeprefix("- ") for part in text.split(separator) if part.strip()]


def _words(text: str, classes: int | None) -> tuple[str, ...]:
    """The words of a text, if they are as many as the model has classes."""
    words = text.split()
    return (text.strip(),) if words and classes == 1 else tuple(words) if len(words) == classes else ()


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
