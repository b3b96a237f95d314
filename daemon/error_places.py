"""Where mistakes of a configuration are: the line of each, and the id of its source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from daemon.errors import ConfigError

_STEP = re.compile(r"[^.\[\]]+")
_KEY = re.compile(r"key `([^`]+)`")
_SHOWN = 10


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
    """All mistakes in one line, in the order of the file; each once.

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
    shown = "; ".join(lines[:_SHOWN])
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return ConfigError(shown if len(lines) == 1 else f"{len(lines)} mistakes: {shown}{more}")


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
