"""A configuration from the command line: `lookout run SOURCE ... --model MODEL` needs no file."""

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
# Written by `lookout run --save`. What is not here has its default; Lookout's own config.yaml has every key, explained.
"""


def sources_of(words: Sequence[str]) -> list[str]:
    """The lines of the configuration that describe these sources.

    Args:
        words: a URL, a file, a folder, a pattern, or the number of a USB camera each.

    Raises:
        LookoutError: one is nothing that could be a source.
    """
    lines, taken = ["sources:"], set[str]()
    for word in words:
        id, body = _source(word)
        lines += [f"  - id: {_unique(id, taken)}  # the topic is detections/<id>/", *(f"    {line}" for line in body)]
    return lines


def yaml_of(sources: Sequence[str], model: Path, labels: str | None = None, endpoint: str | None = None) -> str:
    """A configuration as a commented file.

    Args:
        sources: as `sources_of` gives them.
        labels: of a model whose file holds none; None otherwise.
        endpoint: None for the usual one.
    """
    lines = [_FIRST, "model:", f"  path: {_quoted(str(model.resolve()))}"]
    if labels:
        lines.append(f"  labels: {_quoted(labels)}  # its file holds none")
    lines += ["  confidence: 0.25  # weaker boxes are left out", "", *sources]
    if endpoint:
        lines += ["", "publisher:", f"  endpoint: {_quoted(endpoint)}  # where subscribers connect"]
    return "\n".join(lines) + "\n"


def config_of(text: str) -> Config:
    """The configuration of what `yaml_of` has written.

    Raises:
        ConfigError: a word on the command line is not what it must be.
    """
    return parse(text)


def save(text: str, path: Path) -> None:
    """Write it for its owner alone, because URLs may hold passwords.

    Raises:
        LookoutError: there is such a file, or it cannot be written.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise LookoutError(f"{path} exists, and is not overwritten: choose another name for --save") from error
    except OSError as error:
        raise LookoutError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise LookoutError(f"{path} cannot be written: {error.strerror}") from error


def _source(word: str) -> tuple[str, list[str]]:
    """A name for it, and the lines that describe it."""
    if word.isdecimal():
        return f"usb-{int(word)}", ["type: camera", f"device: {int(word)}  # /dev/video{int(word)}"]
    if word.startswith("/dev/"):
        return Path(word).name, ["type: camera", f"device: {_quoted(word)}"]
    if "://" in word:
        return _host_of(word), ["type: av", f"url: {_quoted(word)}"]
    path = Path(word)
    if word and (path.exists() or has_magic(word)):
        name = "recordings" if has_magic(word) or path.is_dir() else path.stem
        where = path.absolute() if has_magic(word) else path.resolve()
        return name, ["type: av", f"url: {_quoted(str(where))}"]
    shown = word.rpartition("@")[2]  # a URL that is mistyped may hold a password
    raise LookoutError(
        f"source {shown!r} is no URL (rtsp://...), no file or folder that is there, and no number of a USB camera"
    )


def _host_of(url: str) -> str:
    try:
        host = urlsplit(url).hostname
    except ValueError as error:
        raise ConfigError(f"a source is no URL: {error}") from error
    return host or "camera"


def _unique(name: str, taken: set[str]) -> str:
    """As an id may be, and no other source is named."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:60] or "source"
    for id in _numbered(plain):
        if id.lower() not in taken:
            taken.add(id.lower())
            return id
    raise AssertionError("there are always more numbers")


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def _quoted(text: str) -> str:
    """As YAML reads it back, whatever is in it."""
    return json.dumps(text, ensure_ascii=False)
