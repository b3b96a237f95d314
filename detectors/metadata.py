"""Facts that the metadata of ONNX files state, in the spellings of many exporters."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, cast

from detectors.port import DetectorError
from detectors.semantics import Colour, Semantics

LABEL_KEYS = (
    "names", "classes", "class_names", "labels", "id2label", "categories", "label_names", "label2id", "class_labels",
    "classnames", "class_list", "category_names", "label_map", "labelmap", "id2name", "idx2label", "idx_to_class",
    "class_to_idx", "id_to_label", "label_to_id",
)  # fmt: skip
"""Last words of keys for labels, the surest first."""

_MAX_DEPTH = 4  # of a key inside of other keys
_MAX_LENGTH = 1 << 20  # characters of a value that is read as a literal
_OF_INPUT = re.compile(r"^[A-Za-z_]\w*(?=\[)")  # OpenVINO's, such as data[1, 2, 3]
_SEPARATORS = re.compile(r"[\s,;]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CALL = re.compile(r"(?:OrderedDict|dict|list|tuple|dict_values|tensor|array)\((.*)\)", re.DOTALL)
_ADJACENT = re.compile(r"""(['"])\s+\1""")  # texts that Python's notation would make one
_MEANS, _DEVIATIONS = {"mean", "means"}, {"std", "stds", "stddev", "stdev", "deviation"}
# Words that may stand beside a mean. Other words make it that of something else, such as mean_ap.
_OF_COLOURS = {
    "image", "images", "img", "pixel", "pixels", "input", "inputs", "norm", "normalize", "normalise",
    "normalization", "normalisation", "rgb", "bgr", "channel", "channels", "color", "colour", "colors",
    "colours", "data", "dataset", "imagenet", "value", "values", "preprocess", "preprocessing", "standard",
    "standardization", "standardisation", "dev",
}  # fmt: skip
_OF_255 = {"mean_values": "mean", "scale_values": "std"}  # OpenVINO's, whose colours are 0 to 255
_ORDERS = {"color_space", "color_format", "color_order", "colour_order", "channel_order", "input_color_format",
           "color_mode", "colorspace", "colour_space", "input_color_space", "channels_order"}  # fmt: skip
_MAYBE_ORDERS = {"color", "colour", "order", "channels", "format", "input_format", "image_format", "pixel_format"}
_RGB_FLAGS = {"rgb", "is_rgb", "use_rgb", "to_rgb", "bgr_to_rgb", "bgr2rgb", "swap_rb"}
_BGR_FLAGS = {"bgr", "is_bgr", "use_bgr", "to_bgr", "rgb_to_bgr", "rgb2bgr"}
_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}
_NEAR = 1e-3  # of a factor of colours
_NOTHING = {"", "none", "null"}
_PLAIN: tuple[Colour, Colour] = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def literal(text: str) -> Any:
    """The value of a text in JSON, or in Python's notation; None if it has neither."""
    if len(text) > _MAX_LENGTH:
        return None
    text = text.strip().removeprefix("\ufeff")
    if found := _CALL.fullmatch(text):
        text = found[1]
    for read in (json.loads, _python):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None


def _python(text: str) -> Any:
    if _ADJACENT.search(text):
        raise ValueError("texts without a comma between them")
    return ast.literal_eval(text)


def leaves(metadata: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Name and value of each fact: the last word of its key, in small letters, and those inside of mappings, but for
    mappings of labels."""
    for key, text in metadata.items():
        value = literal(text)
        yield from _leaves(key, text if value is None else value, 0)


def is_ultralytics(metadata: Mapping[str, str]) -> bool:
    """Whether the file is one of ultralytics, whose models all read colours of 0 to 1."""
    named = metadata.get("author", "") + metadata.get("description", "")
    is_stated = "stride" in metadata or metadata.get("task") in ("detect", "segment", "pose", "obb", "classify")
    return "ultralytics" in named.lower() or ("names" in metadata and is_stated)


def stated_semantics(metadata: Mapping[str, str], decided: frozenset[str] = frozenset()) -> Semantics:
    """The facts that a file states.

    Args:
        decided: names of facts that keys decide.

    Raises:
        DetectorError: it states a fact twice, or in a way that Lookout cannot read; and no key decides it.
    """
    rows = list(leaves(metadata))
    orders = {name: is_rgb for name, value in rows if (is_rgb := _is_rgb(name, value)) is not None}
    if len(set(orders.values())) > 1:
        raise DetectorError(
            f"the model's metadata state two orders of channels, by {' and '.join(orders)}: export it with one of them"
        )
    rgb = next(iter(orders.values()), None)
    colours = _stated_colours([(name, value) for name, value in rows if _kind(name) not in decided])
    return Semantics(colours.get("mean"), colours.get("std"), rgb)


def _stated_colours(rows: Sequence[tuple[str, Any]]) -> dict[str, Colour]:
    """Mean and deviation for colours of 0 to 1 or of 0 to 255.

    Raises:
        DetectorError: see `stated_semantics`.
    """
    found: dict[str, dict[Colour, str]] = {"mean": {}, "std": {}}
    for name, value in rows:
        if not (kind := _kind(name)) or str(value).strip().lower() in _NOTHING:
            continue
        if (colour := _colour(value)) is None:
            raise DetectorError(
                f"the model's metadata state a {kind} that is not three numbers, {name} {str(value)[:60]!r}: set "
                "model.mean and model.std"
            )
        found[kind][_of_255(colour) if name in _OF_255 else colour] = name
    for kind, values in found.items():
        if len({_rounded(value) for value in values}) > 1:
            shown = " and ".join(f"{name} {value}" for value, name in values.items())
            raise DetectorError(
                f"the model's metadata state two values of {kind}, {shown}: set model.mean and model.std"
            )
    return _rescaled({kind: next(iter(values)) for kind, values in found.items() if values}, dict(rows))


def _rescaled(colours: dict[str, Colour], facts: Mapping[str, Any]) -> dict[str, Colour]:
    """Mean and deviation with what the preprocessors of transformers state beside them.

    Raises:
        DetectorError: it is something that mean and deviation do not say.
    """
    factor = _number(str(facts.get("rescale_factor", 1 / 255)))
    is_contradicted = factor is None or abs(factor * 255 - 1) > _NEAR or _flag(facts.get("normalize")) is False
    if colours and is_contradicted:
        raise DetectorError(
            "the model's metadata state mean and std beside a rescale_factor, or normalize: false, which change their "
            "meaning: set model.mean and model.std for colours of 0 to 1"
        )
    if _flag(facts.get("do_normalize")) is False:
        colours = dict(zip(("mean", "std"), _PLAIN))
    if _flag(facts.get("do_rescale")) is False and len(colours) == len(_PLAIN):
        return {kind: _of_255(colour) for kind, colour in colours.items()}
    return colours


def _is_rgb(name: str, value: Any) -> bool | None:
    """The order of channels that a fact states; None if it states none.

    Raises:
        DetectorError: it is another one than RGB and BGR.
    """
    if name in _RGB_FLAGS:
        return _flag(value)
    if name in _BGR_FLAGS:
        return None if (is_bgr := _flag(value)) is None else not is_bgr
    if name in _ORDERS | _MAYBE_ORDERS:
        text = str(value).strip().upper().removeprefix("S")
        if text[:3] in ("RGB", "BGR"):
            return text[:3] == "RGB"
        if name in _ORDERS and text.lower() not in _NOTHING:
            raise DetectorError(
                f"the model's metadata state {name} {str(value)[:60]!r}, and Lookout gives RGB or BGR: export the "
                "model for one of these"
            )
    words = set(name.split("_"))
    if _kind(name) and words & {"rgb", "bgr"}:
        return "rgb" in words
    return None


def _flag(value: Any) -> bool | None:
    text = str(value).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _leaves(key: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str) and isinstance(inner := literal(value), (dict, list, tuple, str)):
        value = inner  # a text of JSON within JSON
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        yield _last_word(key), value
        for name, part in value.items() if _last_word(key) not in LABEL_KEYS else ():
            yield from _leaves(str(name), part, depth + 1)
        return
    yield _last_word(key), value


def _last_word(key: str) -> str:
    return _CAMEL.sub("_", re.split(r"[\s./:]+", key.strip())[-1]).lower().replace("-", "_")


def _kind(name: str) -> str | None:
    """Which of both a name is for."""
    if name in _OF_255:
        return _OF_255[name]
    words = set(name.split("_"))
    if words - _OF_COLOURS - _MEANS - _DEVIATIONS:
        return None
    return "mean" if words & _MEANS else "std" if words & _DEVIATIONS else None


def _colour(value: Any) -> Colour | None:
    """Three numbers, or one for all channels; None for anything else."""
    if isinstance(value, str):
        value = [part for part in _SEPARATORS.split(_OF_INPUT.sub("", value).strip("[](){} ")) if part]
    while isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], (list, tuple)):
        value = value[0]
    parts = [one[0] if isinstance(one, (list, tuple)) and len(one) == 1 else one for one in _listed(value)]
    numbers = [_number(str(part)) for part in parts]
    if len(numbers) not in (1, 3) or any(number is None for number in numbers):
        return None
    return cast("Colour", tuple(numbers * 3 if len(numbers) == 1 else numbers))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _rounded(colour: Colour) -> tuple[float, ...]:
    """The same for colours of 0 to 1 and of 0 to 255."""
    return tuple(round(part, 3) for part in (_of_255(colour) if max(colour) > 1 else colour))


def _of_255(colour: Colour) -> Colour:
    return cast("Colour", tuple(part / 255 for part in colour))
