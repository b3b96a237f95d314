"""A configuration from command-line arguments: `lookout run SOURCE ... --model MODEL`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from glob import has_magic
from pathlib import Path
from urllib.parse import urlsplit

from daemon.config import Config, parse
from daemon.errors import ConfigError, LookoutError

_FIRST = """\
# Written by `lookout run --save`. Missing keys have their defaults; Lookout's own config.yaml explains every key.
"""


def sources_of(arguments: Sequence[str]) -> list[str]:
    """Lines of the configuration for these sources.

    Args:
        arguments: URLs, files, folders, patterns, or numbers of USB cameras.

    Raises:
        LookoutError: an argument is not a source.
    """
    lines, taken = ["sources:"], set[str]()
    for argument in arguments:
        id, body = _source(argument)
        lines += [f"  - id: {_unique(id, taken)}  # the topic is detections/<id>/", *(f"    {line}" for line in body)]
    return lines


def yaml_of(sources: Sequence[str], model: Path, labels: str | None = None, endpoint: str | None = None) -> str:
    """A configuration as a commented file.

    Args:
        sources: from `sources_of`.
        labels: for a model without its own; None otherwise.
        endpoint: None for the default.
    """
    lines = [_FIRST, "model:", f"  path: {_quoted(str(model.resolve()))}"]
    if labels:
        lines.append(f"  labels: {_quoted(labels)}  # the model has none")
    lines += ["  confidence: 0.25  # weaker boxes are left out", "", *sources]
    if endpoint:
        lines += ["", "publisher:", f"  endpoint: {_quoted(endpoint)}  # where subscribers connect"]
    return "\n".join(lines) + "\n"


def config_of(text: str) -> Config:
    """Parse a configuration from `yaml_of`.

    Raises:
        ConfigError: an argument is invalid.
    """
    return parse(text)


def save(text: str, path: Path) -> None:
    """Write the configuration readable for its owner only, because URLs may hold passwords.

    Raises:
        LookoutError: the file exists, or cannot be written.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise LookoutError(f"{path} already exists: choose another name for --save") from error
    except OSError as error:
        raise LookoutError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise LookoutError(f"{path} cannot be written: {error.strerror}") from error


def _source(argument: str) -> tuple[str, list[str]]:
    """A source's name, and its lines."""
    if argument.isdecimal():
        return f"usb-{int(argument)}", ["type: camera", f"device: {int(argument)}  # /dev/video{int(argument)}"]
    if argument.startswith("/dev/"):
        return Path(argument).name, ["type: camera", f"device: {_quoted(argument)}"]
    if "://" in argument:
        return _host_of(argument), ["type: av", f"url: {_quoted(argument)}"]
    path = Path(argument)
    if argument and (path.exists() or has_magic(argument)):
        name = "recordings" if has_magic(argument) or path.is_dir() else path.stem
        where = path.absolute() if has_magic(argument) else path.resolve()
        return name, ["type: av", f"url: {_quoted(str(where))}"]
    shown = argument.rpartition("@")[2]  # a mistyped URL may hold a password
    raise LookoutError(
        f"source {shown!r} is not a URL (rtsp://...), an existing file or folder, or the number of a USB camera"
    )


def _host_of(url: str) -> str:
    try:
        host = urlsplit(url).hostname
    except ValueError as error:
        raise ConfigError(f"a source is not a URL: {error}") from error
    return host or "camera"


def _unique(name: str, taken: set[str]) -> str:
    """A valid id that no other source has."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:60] or "source"
    for id in _numbered(plain):
        if id.lower() not in taken:
            taken.add(id.lower())
            return id
    raise AssertionError("numbers are endless")


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def _quoted(text: str) -> str:
    """A YAML string."""
    return json.dumps(text, ensure_ascii=False)
