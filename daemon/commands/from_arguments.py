"""A configuration from command-line arguments: `lookout run SOURCE ... --model MODEL`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from glob import escape, has_magic, iglob
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from daemon.config.load import parse
from daemon.config.root import Config
from daemon.config.section import literal
from daemon.errors import ConfigError, LookoutError
from daemon.files import is_device

DEFAULT_CONFIDENCE = 0.25
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
        lines += [
            f"  - id: {_plain(_unique(id, taken))}  # the topic is detections/<id>/",
            *(f"    {line}" for line in body),
        ]
    return lines


def yaml_of(
    sources: Sequence[str],
    model: Path,
    labels: str | None = None,
    endpoint: str | None = None,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    tracked: bool = False,
) -> str:
    """A configuration as a commented file.

    Args:
        sources: from `sources_of`.
        labels: for a model without its own; None otherwise.
        endpoint: None for the default.
        confidence: boxes below it are left out.
        tracked: objects get ids.
    """
    lines = [_FIRST, "model:", f"  path: {_quoted(literal(str(model.resolve())))}"]
    if labels:
        lines.append(f"  labels: {_quoted(labels)}  # the model has none")
    lines += [f"  confidence: {confidence:g}  # weaker boxes are left out", "", *sources]
    if tracked:
        lines += ["", "tracking:", "  enabled: true  # objects get ids"]
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
        raise LookoutError(f"{path} already exists: choose another name") from error
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
    if "://" in argument:
        return _host_of(argument), ["type: av", f"url: {_quoted(argument)}"]
    path = Path(argument)
    if is_device(argument):
        return path.name, ["type: camera", f"device: {_quoted(argument)}"]
    if argument and path.exists():
        url = literal(str(path.resolve()))  # a name that is found on the disk is nothing else
        return "recordings" if path.is_dir() else path.stem, ["type: av", f"url: {_quoted(url)}"]
    if has_magic(argument):
        return "recordings", ["type: av", f"url: {_quoted(_pattern(argument))}"]
    shown = argument.rpartition("@")[2]  # a mistyped URL may hold a password
    raise LookoutError(
        f"source {shown!r} is not a URL (rtsp://...), an existing file or folder, or the number of a USB camera"
    )


def _pattern(argument: str) -> str:
    """An absolute pattern. One that matches files is taken as it stands; in any other ${NAME} is replaced."""
    if next(iglob(argument), None) is not None:
        argument = literal(argument)
    elif argument.startswith("${"):  # which may be an absolute path
        return argument
    return os.path.join(literal(escape(os.getcwd())), argument)


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


def _plain(id: str) -> str:
    """Without quotes, unless YAML takes it for a number, a date or nothing."""
    return id if yaml.safe_load(id) == id else _quoted(id)


def _quoted(text: str) -> str:
    """A YAML string. Signs that YAML does not allow are escaped; so are bytes of a name that are no UTF-8."""
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if quoted.isprintable() else "".join(map(_escaped, quoted))


def _escaped(sign: str) -> str:
    return sign if sign.isprintable() else f"\\U{ord(sign):08x}"
