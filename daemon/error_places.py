"""Where mistakes of a configuration are: the line of each, and the id of its source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from daemon.errors import ConfigError

_STEP = re.compile(r"[^.\[\]]+")
_KEY = re.compile(r"key `([^`]+)`")
_SHOWN = 10  # in one line
_MOST = 1000


@dataclass(frozen=True)
class _Location:
    """Attributes:
    line: from 1.
    id: of the source; empty without one.
    """

    line: int
    id: str

    def __str__(self) -> str:
        return f"({self.id}, line {self.line})" if self.id else f"(line {self.line})"


def together(mistakes: Sequence[str], text: str, loader: type[yaml.SafeLoader]) -> ConfigError:
    """All mistakes in the order of the file, each once: in `mistakes` all of them, and the first ones in one line.

    Args:
        mistakes: each begins with the path of its key, as far as it has one.
        text: of the file.
    """
    root = yaml.compose(text, loader)
    places = {message: _place_of(message, root) for message in mistakes}
    lines = [
        f"{message} {place}" if place else message
        for message, place in sorted(places.items(), key=lambda row: row[1].line if row[1] else 0)
    ]
    if len(lines) == 1:
        return ConfigError(lines[0])
    shown = "; ".join(lines[:_SHOWN])
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return ConfigError(f"{len(lines)} mistakes: {shown}{more}", lines[:_MOST])


def keys_written_twice(text: str, loader: type[yaml.SafeLoader]) -> list[str]:
    """A line for each such key, with its path and its lines; none where the text is no YAML."""
    try:
        return [*_twice(yaml.compose(text, loader), "", set())]
    except yaml.YAMLError:
        return []


def _twice(node: yaml.Node | None, path: str, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:  # an alias: told where it stands
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _twice(item, f"{path}[{index}]", seen)
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            where, line = f"{path}.{key.value}".lstrip("."), key.start_mark.line + 1
            if (first := lines.setdefault(str(key.value), line)) != line:
                yield f"{where}: is written twice, in lines {first} and {line}"
            yield from _twice(value, where, seen)


def _place_of(message: str, node: yaml.Node | None) -> _Location | None:
    """None where the message names no key of the file."""
    path, colon, words = message.partition(": ")
    steps = _STEP.findall(path) if colon and " " not in path else []
    if unknown := _KEY.search(words if steps else message):
        steps.append(unknown[1])
    line, id = None, ""
    for step in steps:
        key, node = _child(node, step)
        if key is None:
            break
        line = key.start_mark.line + 1
        if isinstance(node, yaml.MappingNode) and not id and path.startswith("sources["):
            _, own = _child(node, "id")
            id = own.value if isinstance(own, yaml.ScalarNode) else ""
    return None if line is None else _Location(line, id)


def _child(node: yaml.Node | None, step: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Where the value of a key or the item of a list begins, and the value."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == step), (None, None))
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        item = node.value[int(step)]
        return item, item
    return None, None
