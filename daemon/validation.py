"""Mistakes in a configuration, explained to its author: the key, the values allowed, the value found."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache, singledispatch
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

from daemon.errors import ConfigError
from daemon.redact import Secret, Url

T = TypeVar("T")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")
UNKNOWN_NAME = "[...]"  # in a path of msgspec: some value of a mapping by names
_MAX_QUOTED = 40  # characters of a value that a message quotes
_MEANT = re.compile(r"; did you mean `([^`]+)`\?$")
_MOST = 100  # mistakes of one value
_OTHER_NAMES = {"rtsp": "av", "rtmp": "av", "http": "av", "hls": "av", "file": "av", "video": "av", "usb": "camera"}


def read_yaml(text: str, loader: type[yaml.SafeLoader]) -> object:
    """YAML as Python values.

    Raises:
        ConfigError: the text is not YAML; the message names the place.
    """
    try:
        return yaml.load(text, loader)  # noqa: S506 - safe, by its type
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {_message_of(error)}") from error


@cache
def _info(kind: Any) -> inspect.Type:
    """`inspect.type_info`, which takes milliseconds."""
    return inspect.type_info(kind)


def convert(raw: object, kind: Any, hook: Any, where: str = "") -> Any:
    """Convert a value to a type, by msgspec.

    Args:
        where: the path of the value, for messages.

    Raises:
        ConfigError: the message has the path of the key, the allowed values and the value; never a secret's value.
    """
    for reason in _not_convertible(raw, where):
        raise ConfigError(reason)
    try:
        return msgspec.convert(raw, kind, dec_hook=hook)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), raw, _info(kind), where)) from error


def mistakes_of(raw: object, kind: Any, hook: Any, where: str = "") -> tuple[list[str], Any]:
    """All mistakes of a value, as far as they can be told apart: what follows a missing key of an item of a list, or a
    mistake in a mapping by names, is left out.

    Args:
        where: as of `convert`.

    Returns:
        A line for each, as `convert` would say it, and the value without its unknown keys; None if it has other
        mistakes.
    """
    found, info, rest = [*_not_convertible(raw, where)], _info(kind), deepcopy(raw)
    gone: set[tuple[str, str]] = set()  # paths and keys that were taken away here
    is_usable = not found
    while len(found) < _MOST:
        try:
            value = msgspec.convert(rest, kind, dec_hook=hook)
        except msgspec.ValidationError as error:
            text, path = _parts_of(str(error))
            missing = re.search(r"missing required field `(.+)`", text)
            if missing and (path, missing[1]) in gone:
                break
            found.append(_explain(str(error), rest, info, where))
            if meant := _MEANT.search(found[-1]):
                gone.add((path, meant[1]))  # it is not missing as well
            is_usable = is_usable and "unknown field" in text
            if missing or not _take_away(rest, found[-1], text, path, gone):
                break
        else:
            return found, value if is_usable else None
    return found, None


def unknown_keys(raw: Mapping[str, object], kind: Any) -> Iterator[str]:
    """A line for each key that a struct does not have."""
    info = _info(kind)
    for key in [key for key in raw if key not in kind.__struct_fields__]:
        yield _unknown_key(str(key), info)


def is_meant(key: str, mistake: str) -> bool:
    """Whether a line of `unknown_keys` proposes this key."""
    meant = _MEANT.search(mistake)
    return meant is not None and meant[1] == key


def strings(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and text of every string in it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from strings(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, f"{path}[{index}]")
    elif isinstance(value, str):
        yield path, value


def is_secret(path: str, raw: object, kind: Any) -> bool:
    """Whether the type of the value at this path holds a secret."""
    return _holds_secret(_at(path, raw, _info(kind))[1])


def is_path(path: str, raw: object, kind: Any) -> bool:
    """Whether the type of the value at this path is that of a path, or of what may be one."""
    wanted = _at(path, raw, _info(kind))[1]
    return isinstance(wanted, inspect.CustomType) and issubclass(wanted.cls, Path | Url)


def _parts_of(message: str) -> tuple[str, str]:
    """Text and path of a message of msgspec."""
    text, _, where = message.partition(" - at `")
    return text, where.rstrip("`").lstrip("$").lstrip(".")


def _take_away(raw: object, told: str, text: str, path: str, gone: set[tuple[str, str]]) -> bool:
    """Remove what a message is about, so that what follows can be looked at; False if it cannot be done.

    Args:
        told: the message as it was explained.
        text, path: of msgspec's.
    """
    steps: list[str | int] = []
    for key, index in _STEP.findall(path):
        if index == "...":
            return False
        steps.append(key or int(index))
    if unknown := re.search(r"unknown field `(.+)`", text):
        steps.append(unknown[1])
    while steps and not isinstance(steps[-1], str):
        steps.pop()  # without an item the others would have other numbers: the whole list goes
    if not steps:
        return False
    *before, last = steps
    holder: Any = raw
    try:
        for step in before:
            holder = holder[step]
        holder[last]
    except (LookupError, TypeError):
        return False  # a key that is no text
    if last == "type" and (advice := re.search(r": for \w+ it is (\w+)$", told)):
        holder[last] = advice[1]
    else:
        gone.add((path.rpartition(".")[0], str(last)))
        del holder[last]
    return True


def _explain(message: str, raw: object, kind: inspect.Type, before: str) -> str:
    """msgspec's "text - at `$.sources[0].url`" as "sources[0].url: must be ..."."""
    text, path = _parts_of(message)
    value, wanted = _at(path, raw, kind)
    if unknown := re.search(r"unknown field `(.+)`", text):
        text = _unknown_key(unknown[1], wanted)
    elif missing := re.search(r"missing required field `(.+)`", text):
        text = f"missing key `{missing[1]}`"
        if missing[1] == "type":
            text += f": it is one of {', '.join(_tags(wanted))}"
    elif path.rpartition(".")[2] == "type" and isinstance(value, str):
        tags = _tags(_at(path.rpartition(".")[0], raw, kind)[1])
        advice = f": for {value} it is {other}" if (other := _OTHER_NAMES.get(value)) in tags else ""
        text = f"must be one of {', '.join(tags)}, not {_shown(value)}{advice}"
    elif isinstance(value, list) and (most := re.search(r"`array` of length <= (\d+)", text)):
        text = f"may have {most[1]} items, not {len(value)}"
    elif text.startswith(("Expected", "Invalid")) and wanted is not None:
        text = f"must be {allowed_values(wanted)}"
        if UNKNOWN_NAME not in path:  # which of several values it is nobody knows
            text += f", not {_kind_of(value) if _holds_secret(wanted) else _shown(value)}"
    path = f"{before}.{path}" if before and path[:1] not in ("", "[") else before + path
    return f"{path}: {text}" if path else text


def _unknown_key(key: str, kind: inspect.Type | None) -> str:
    fields = [field.encode_name for field in kind.fields] if isinstance(kind, inspect.StructType) else []
    keys = [*fields, *(["type"] if isinstance(kind, inspect.StructType) and kind.tag else [])]
    words = key.split("_")
    parts = [name for name in keys if name.startswith(key) or set(words) <= set(name.split("_"))]
    close = [*difflib.get_close_matches(key, keys, n=1), *parts]
    return f"unknown key `{key}`" + (f"; did you mean `{close[0]}`?" if close else f"; known are {', '.join(keys)}")


def _at(path: str, raw: object, kind: inspect.Type | None) -> tuple[object, inspect.Type | None]:
    """The value at a path, and its type; None where that is not known."""
    kind = _chosen(kind, raw)
    for key, index in _STEP.findall(path):
        if key:
            raw = raw.get(key) if isinstance(raw, dict) else None
            if isinstance(kind, inspect.StructType):
                kind = next((field.type for field in kind.fields if field.encode_name == key), None)
            else:
                kind = kind.value_type if isinstance(kind, inspect.DictType) else None
        else:
            inside = isinstance(raw, list) and index.isdecimal() and int(index) < len(raw)
            raw = raw[int(index)] if inside else None  # type: ignore[index]
            if isinstance(kind, inspect.TupleType):
                kind = kind.item_types[int(index)]
            elif isinstance(kind, inspect.DictType):
                kind = kind.value_type
            else:
                kind = getattr(kind, "item_type", None)
        kind = _chosen(kind, raw)
    return raw, kind


def _chosen(kind: inspect.Type | None, raw: object) -> inspect.Type | None:
    """Of several structs the one that the mapping's `type` names; of a type and null the type."""
    if not isinstance(kind, inspect.UnionType):
        return kind
    others = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
    if len(others) == 1:
        return others[0]
    structs = [one for one in kind.types if isinstance(one, inspect.StructType)]
    if not isinstance(raw, dict):
        return kind
    tag = raw.get("type")
    return next((one for one in structs if one.tag == tag or len(structs) == 1), kind)


def _tags(kind: inspect.Type | None) -> list[str]:
    """The values of `type` that tell the structs of a union apart."""
    types = kind.types if isinstance(kind, inspect.UnionType) else ()
    return [str(one.tag) for one in types if isinstance(one, inspect.StructType) and one.tag]


def _holds_secret(kind: inspect.Type | None) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(_holds_secret(one) for one in kind.types)
    return isinstance(kind, inspect.CustomType) and issubclass(kind.cls, Secret)


@singledispatch
def allowed_values(_: inspect.Type) -> str:
    """The allowed values of a type, in words."""
    return "something else"


@allowed_values.register
def _(kind: inspect.UnionType) -> str:
    others = (one for one in kind.types if not isinstance(one, inspect.NoneType))
    return " or ".join(dict.fromkeys(map(allowed_values, others)))


@allowed_values.register
def _(kind: inspect.IntType) -> str:
    return f"a whole number{_range(kind)}"


@allowed_values.register
def _(kind: inspect.FloatType) -> str:
    return f"a number{_range(kind)}"


@allowed_values.register
def _(kind: inspect.StrType) -> str:
    return f"a text{_length(kind)}"


@allowed_values.register
def _(_kind: inspect.BoolType) -> str:
    return "true or false"


@allowed_values.register
def _(kind: inspect.LiteralType) -> str:
    return "one of " + ", ".join(map(str, kind.values)) if len(kind.values) > 1 else str(kind.values[0])


@allowed_values.register
def _(kind: inspect.CustomType) -> str:
    return "a path" if issubclass(kind.cls, Path) else "a URL or a path" if issubclass(kind.cls, Url) else "a text"


@allowed_values.register(inspect.ListType)
@allowed_values.register(inspect.VarTupleType)
def _(_kind: inspect.Type) -> str:
    return "a list: begin each of its items with -"


@allowed_values.register
def _(kind: inspect.TupleType) -> str:
    return f"a list of {len(kind.item_types)}: [{', '.join(allowed_values(one) for one in kind.item_types)}]"


@allowed_values.register(inspect.StructType)
@allowed_values.register(inspect.DictType)
def _(_kind: inspect.Type) -> str:
    return "a mapping: keys with a colon"


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" between {_plain(kind.ge)} and {_plain(kind.le)}"
    if kind.gt is not None and kind.le is not None:
        return f" above {_plain(kind.gt)} and up to {_plain(kind.le)}"
    limits = ((kind.ge, " of at least"), (kind.gt, " above"), (kind.le, " of at most"), (kind.lt, " below"))
    return "".join(f"{words} {_plain(limit)}" for limit, words in limits if limit is not None)


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _length(kind: inspect.StrType) -> str:
    if kind.min_length is not None and kind.min_length == kind.max_length:
        return f" of {kind.min_length} characters"
    if kind.max_length is not None:
        return f" of {kind.min_length or 0} to {kind.max_length} characters"
    return ""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_QUOTED else f"{value[:_MAX_QUOTED]}...")
    return _kind_of(value)


def _kind_of(value: object) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    kinds: dict[type, str] = {dict: "a mapping", str: "a text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value), "a number")


def _not_convertible(value: object, path: str = "") -> Iterator[str]:
    """Values that msgspec accepts or cannot explain: NaN passes any limit."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"{path}: the key {key!r} is not a text".lstrip(": ")
            yield from _not_convertible(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_convertible(item, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path}: must be a finite number"


def _message_of(error: yaml.YAMLError) -> str:
    """Place and problem in one line."""
    mark = getattr(error, "problem_mark", None)
    problem = " ".join(str(getattr(error, "problem", None) or error).split())
    if "'\\t'" in problem:
        problem = "a tab where spaces belong: indent with spaces"
    elif "mapping values are not allowed" in problem:
        problem += ": is a line indented too far, or does a text with a colon want quotes?"
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
