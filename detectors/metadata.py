"""Facts that the metadata of ONNX files state, in the spellings of many exporters."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from detectors.port import DetectorError
from detectors.semantics import Colour, Semantics

_MAX_DEPTH = 4  # of a key inside of other keys
_MAX_LENGTH = 1 << 20  # characters of a value that is read as a literal
_SEPARATORS = re.compile(r"[\s,;]+")
_MEANS, _DEVIATIONS = {"mean", "means"}, {"std", "stds", "stddev", "stdev", "deviation"}
_OF_255 = {"mean_values": "mean", "scale_values": "std"}  # OpenVINO's, whose colours are 0 to 255
_ORDERS = {"color_space", "color_format", "color_order", "colour_order", "channel_order", "input_color_format"}


def literal(text: str) -> Any:
    """The value of a text in JSON, or in Python's notation; None if it has neither."""
    if len(text) > _MAX_LENGTH:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text.strip())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None


def leaves(metadata: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Name and value of each fact: the last word of its key, in small letters, and those inside of mappings."""
    for key, text in metadata.items():
        value = literal(text)
        yield from _leaves(key, text if value is None else value, 0)


def is_ultralytics(metadata: Mapping[str, str]) -> bool:
    """Whether the file is one of ultralytics, whose models all read colours of 0 to 1."""
    named = metadata.get("author", "") + metadata.get("description", "")
    return "ultralytics" in named.lower() or ("names" in metadata and ("stride" in metadata or "task" in metadata))


def stated_semantics(metadata: Mapping[str, str], decided: frozenset[str] = frozenset()) -> Semantics:
    """The facts that a file states.

    Args:
        decided: names of facts that keys decide.

    Raises:
        DetectorError: it states a fact twice, or in a way that Lookout cannot read; and no key decides it.
    """
    found: dict[str, dict[Any, str]] = {"mean": {}, "std": {}, "rgb": {}}
    for name, value in leaves(metadata):
        if (kind := _kind(name)) and (colour := _colour(value)):
            found[kind][_of_255(colour) if name in _OF_255 else colour] = name
        elif name in _ORDERS and str(value).upper() in ("RGB", "BGR"):
            found["rgb"][str(value).upper() == "RGB"] = name
    for kind, values in found.items():
        if len(values) > 1 and kind not in decided:
            shown = " and ".join(f"{name} {value}" for value, name in values.items())
            raise DetectorError(
                f"the model's metadata state two values of {kind}, {shown}: set model.mean and model.std"
            )
    single = {kind: next(iter(values)) for kind, values in found.items() if len(values) == 1}
    return Semantics(**single)


def _leaves(key: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        yield _last_word(key), value
        for name, part in value.items():
            yield from _leaves(str(name), part, depth + 1)
        return
    yield _last_word(key), value


def _last_word(key: str) -> str:
    return re.split(r"[\s./:]+", key.strip())[-1].lower().replace("-", "_")


def _kind(name: str) -> str | None:
    """Which of both a name is for."""
    if name in _OF_255:
        return _OF_255[name]
    words = set(name.split("_"))
    return "mean" if words & _MEANS else "std" if words & _DEVIATIONS else None


def _colour(value: Any) -> Colour | None:
    """Three numbers, or one for all channels; None for anything else."""
    if isinstance(value, str):
        parts = [part for part in _SEPARATORS.split(value.strip("[](){} ")) if part]
        value = [_number(part) for part in parts]
    if isinstance(value, (int, float)):
        value = [value]
    if not isinstance(value, (list, tuple)) or len(value) not in (1, 3):
        return None
    if not all(isinstance(part, (int, float)) and not isinstance(part, bool) for part in value):
        return None
    numbers = [float(part) for part in value]
    return cast("Colour", tuple(numbers * 3 if len(numbers) == 1 else numbers))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _of_255(colour: Colour) -> Colour:
    return cast("Colour", tuple(part / 255 for part in colour))
