"""The clips of a batch, and their names: the same on every machine, wherever the archive is mounted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from daemon.errors import LookoutError
from daemon.sources.playlist import RECORDINGS

_PLAIN = "".join(chr(sign) for sign in range(0x20, 0x7F) if chr(sign) != "%")  # stands for itself in a name


@dataclass(frozen=True)
class Clip:
    """One recording.

    Attributes:
        number: its place in the sorted list.
        name: its path below the common folder, with `%XX` for each byte that is no printable text, and for `%`.
        path: where it is on this machine.
        size: bytes, when it was listed.
    """

    number: int
    name: str
    path: Path
    size: int


def find_clips(arguments: Sequence[str]) -> list[Clip]:
    """The recordings of files, folders (and the folders in them) and patterns, sorted by name, each once.

    Names begin below the deepest folder that holds all that the arguments name.

    Raises:
        LookoutError: an argument names nothing, or there is no recording.
    """
    roots, found = set[Path](), dict[Path, None]()
    for argument in arguments:
        root, paths = _found(argument)
        roots.add(root)
        found |= dict.fromkeys(paths)
    if not found:
        raise LookoutError(f"no recording is in {', '.join(arguments)}: name files, folders or patterns that hold some")
    common = Path(os.path.commonpath(roots))
    named = sorted((name_of(path.relative_to(common)), path) for path in found)
    return [Clip(number, name, path, _size_of(path)) for number, (name, path) in enumerate(named)]


def name_of(path: Path) -> str:
    """The name of a clip; `path_of` reverses it."""
    text = os.fspath(path)
    return "".join(_escaped(sign) for sign in text)


def path_of(name: str) -> Path:
    """The path below the common folder of the clip with this name."""
    return Path(os.fsdecode(unquote_to_bytes(name)))


def _escaped(sign: str) -> str:
    if sign in _PLAIN or (sign.isprintable() and not "\ud800" <= sign <= "\udfff"):
        return sign if sign != "%" else "%25"
    return quote_from_bytes(os.fsencode(sign), safe="")


def _found(argument: str) -> tuple[Path, list[Path]]:
    """The folder that names begin at, and the recordings."""
    path = Path(os.path.abspath(argument))
    if argument and path.is_dir():
        return path, list(_within(path))
    if argument and path.exists():
        return path.parent, [path]
    if argument and has_magic(argument):
        fixed = Path(os.path.abspath(_before_magic(argument)))
        matches = (Path(os.path.abspath(match)) for match in glob(argument, recursive=True))
        return fixed, [match for match in matches if match.is_file()]
    raise LookoutError(f"{argument!r} is no recording, folder or pattern that exists here")


def _before_magic(pattern: str) -> str:
    parts = Path(pattern).parts
    plain = next(number for number, part in enumerate(parts) if has_magic(part))
    return os.path.join("", *parts[:plain])


def _within(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise LookoutError(f"{error.filename} cannot be listed: {error.strerror}") from error

    for where, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(where, name)
            if path.suffix.lower() in RECORDINGS and not name.startswith(".") and path.is_file():
                yield path


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise LookoutError(f"{path} cannot be read: {error.strerror}") from error
