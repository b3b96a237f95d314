"""config.yaml: every key once, with its default and its explanation, and examples where a default says little."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from daemon.config.model import ClassifierConfig
from daemon.config.root import Config
from daemon.config.sources import AvConfig, CameraConfig, SyntheticConfig
from tests.reference.keys import Key, Struct, as_yaml, keys_of, own_keys, shared_keys, summary, tag_of

_HEAD = """\
# Every key of Lookout, once, with its default. This file runs as it is: `make run`, or `lookout run -c config.yaml`.
# Relative paths are relative to this file. Unknown keys are refused. ${NAME} is replaced from the environment in URLs
# and secrets, and nowhere else; $${NAME} is that text itself. Try a changed file with `lookout check -c config.yaml`.
"""
_WIDTH = 132
_COLUMN = 32  # of explanations
_COLUMN_WITHIN = 26  # likewise, in an example that is a comment itself

# Values that are not defaults.
_VALUES: dict[str, dict[str, object]] = {"model": {"path": "models/demo.onnx"}}
_SOURCES: dict[Struct, dict[str, object]] = {
    SyntheticConfig: {"id": "street", "fps": 15, "seed": 1},
    AvConfig: {"id": "camera-1", "enabled": False, "url": "rtsp://192.0.2.10/stream1"},
    CameraConfig: {"id": "usb-0", "enabled": False},
}
_RULE: dict[str, object] = {
    "name": "door",
    "type": "zone",
    "points": [[0.1, 0.5], [0.4, 0.5], [0.4, 0.9], [0.1, 0.9]],
    "labels": ["person"],
    "dwell_s": [60],
    "active": "mon-fri 22:00-06:00",
    "timezone": "Europe/Berlin",
}
_CLASSIFIER: dict[str, object] = {"name": "color", "path": "color.onnx", "for": ["car", "truck", "bus"]}


def config_yaml() -> str:
    """The text of the file."""
    sections = ["\n".join(_section(key)) for key in keys_of(Config)]
    return "\n\n".join([_HEAD.rstrip(), *sections]) + "\n"


def _section(key: Key) -> Iterator[str]:
    """A key at the top of the file, and all within it."""
    if key.name == "sources":
        yield from _lines("sources:", key.explanation)
        for index, kind in enumerate(_SOURCES):
            yield from [""] * (index > 0)
            yield from _source(kind, is_first=index == 0)
    elif key.is_section:
        yield from _lines(f"{key.name}:", key.explanation)
        for own in keys_of(key.structs[0]):
            yield from _key(own, "  ", _VALUES.get(key.name, {}))
    elif key.structs == [ClassifierConfig]:
        yield from _with_example("classifiers: []", key, keys_of(ClassifierConfig), _CLASSIFIER)
    else:
        yield from _key(key, "", {})


def _source(kind: Struct, *, is_first: bool) -> Iterator[str]:
    """A source of a type. Keys of all sources stand in the first one."""
    shared, values = shared_keys(list(_SOURCES)), _SOURCES[kind]
    for key in shared:
        if key.name == "id":
            head = f"  - id: {as_yaml(values['id'])}"
            yield from _lines(head, key.explanation if is_first else "")
            yield from _lines(f"    type: {tag_of(kind)}", summary(kind))
        elif is_first and key.structs and tag_of(key.structs[0]):
            yield from _with_example("    rules: []", key, _keys_of_rule(key), _RULE)
        elif is_first:
            yield from _key(key, "    ", values)
        elif key.name in values:
            yield f"    {key.name}: {as_yaml(values[key.name])}"
    for key in own_keys(kind, shared):
        yield from _key(key, "    ", values)


def _keys_of_rule(rules: Key) -> list[Key]:
    """The keys that the example of a rule has, with `type`."""
    shown, *others = rules.structs
    known = {key.name: key for key in keys_of(shown)}
    kinds = ", ".join(f"{tag_of(other)} ({summary(other).partition('. ')[0]})" for other in others)
    known["type"] = replace(known["name"], name="type", explanation=f"or {kinds}")
    return [known[name] for name in _RULE]


def _key(key: Key, indent: str, values: Mapping[str, object]) -> Iterator[str]:
    """A key with its default, or with a value of the examples."""
    return _lines(f"{indent}{key.name}: {as_yaml(values.get(key.name, key.default))}", key.explanation)


def _with_example(head: str, key: Key, within: Sequence[Key], values: Mapping[str, object]) -> Iterator[str]:
    """A list that is empty, and an item of it in the comment."""
    yield from _lines(head, f"{key.explanation}. Such as")
    for index, own in enumerate(within):
        row = f"{'  ' if index else '- '}{own.name}: {as_yaml(values.get(own.name, own.default))}"
        for line in _lines(row, own.explanation, _COLUMN_WITHIN, _WIDTH - _COLUMN - 2):
            yield f"{' ' * _COLUMN}# {line}"


def _lines(head: str, explanation: str, column: int = _COLUMN, width: int = _WIDTH) -> Iterator[str]:
    """A line of YAML with a comment, which may take several lines."""
    if not explanation:
        return iter([head])
    begin = f"{head}  ".ljust(column) + "# "
    words = textwrap.wrap(
        explanation, width, initial_indent=begin, subsequent_indent=f"{' ' * column}# ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return iter(words)
