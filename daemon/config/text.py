"""Values as they are written: ${NAME} in secrets and URLs, paths, and keys written twice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from daemon.config.section import VARIABLE
from daemon.errors import ConfigError
from daemon.redact import Secret, Url, percent_encoded
from daemon.validation import is_path, is_secret, strings

UNSET = (
    "is not set: set it, or write it into a file `environment` beside the configuration, and run as a user who may "
    "read that"
)


class Loader(yaml.SafeLoader):
    """Refuses a key written twice, which YAML forbids and PyYAML lets pass."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = list[Any]()  # a key may be anything
        for written, _ in node.value:
            key = self.construct_object(written, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is written twice", written.start_mark)
            seen.append(key)
        return super().construct_mapping(node, deep)


def hook(kind: type, value: object) -> object:
    text = _text(value)
    if issubclass(kind, Url):
        return Url(_filled_url(text), text)
    filled = VARIABLE.sub(_from_environment, text)
    return kind(filled, text) if issubclass(kind, Secret) else Path(filled)


def hook_as_written(kind: type, value: object) -> object:
    text = _text(value)
    return kind(text) if issubclass(kind, Secret) else Path(text)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    if not value:
        raise ValueError("is empty")
    return value


def _filled_url(text: str) -> str:
    """With the values of ${NAME}, percent-encoded where a URL has credentials, or a query."""
    behind = text.rfind("@")
    query = text.find("?", behind + 1)

    def value(match: re.Match[str]) -> str:
        within = "://" in text and (match.start() < behind or 0 <= query < match.start())
        found = _from_environment(match)
        return percent_encoded(found) if within else found

    return VARIABLE.sub(value, text)


def _from_environment(match: re.Match[str]) -> str:
    if match[1]:
        return match[0][1:]
    value = os.environ.get(match[2])
    if value is None:
        raise ValueError(f"the environment variable {match[2]} {UNSET}")
    return value


_SURROGATES = re.compile("[\ud800-\udfff]")  # stand for bytes of a name that are no UTF-8


def check_variables(raw: object, kind: type, before: str = "") -> None:
    """
    Raises:
        ConfigError: the first of `problems_of_variables`.
    """
    for problem in problems_of_variables(raw, kind, before):
        raise ConfigError(problem)


def problems_of_variables(raw: object, kind: type, before: str = "") -> Iterator[str]:
    """Texts that cannot be what they are, or where ${NAME} would stay as it is.

    Args:
        before: the path of the value, with a dot behind it, or nothing.
    """
    for where, value in strings(raw):
        if _SURROGATES.search(value) and not is_path(where, raw, kind):
            yield f"{before}{where}: has bytes that are no text in UTF-8"
        elif any(not found[1] for found in VARIABLE.finditer(value)) and not is_secret(where, raw, kind):
            yield (
                f"{before}{where}: ${{NAME}} is only replaced in URLs and secrets; write the value itself, or "
                "$${{NAME}} in a path that has this text"
            )
