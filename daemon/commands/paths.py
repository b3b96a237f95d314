"""Paths on the command line, checked before the work instead of within it or after it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from daemon.files import GIVEN

_EMPTY = "the path is empty; `.` is this folder"  # as that of a variable that is not set


class _Completed(click.ParamType):  # type: ignore[type-arg]
    """A path that a shell completes.

    Attributes:
        completes: what it is: "file", in which folders are, or "dir".
    """

    completes = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, param  # of click's signature
        return [CompletionItem(incomplete, type=self.completes)]


class InputName(_Completed):
    """A path to read from, or something else that has a name: a URL, a model of the catalogue, a key.

    Args:
        cameras: a device may be meant.
    """

    name = "text"

    def __init__(self, *, cameras: bool = False) -> None:
        self._cameras = cameras

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = str(value).removeprefix("file://")
        if "://" not in path:
            self._check(Path(path), param, ctx)
        return value

    def _check(self, path: Path, param: click.Parameter | None, ctx: click.Context | None) -> None:
        """Of a missing file the command itself speaks: it knows the use of it."""
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.fail(f"{path} cannot be read: {error.strerror}", param, ctx)
        is_special = not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (self._cameras and stat.S_ISCHR(mode)))
        if is_special and not str(path).startswith(GIVEN):
            self.fail(f"{path} is a pipe or a device, and not a file", param, ctx)


class InputPath(InputName):
    """A file or folder to read from."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail(_EMPTY, param, ctx)
        return Path(super().convert(value, param, ctx))


class OutputFile(_Completed):
    """A writable file.

    Args:
        makes_folder: its folder may not exist yet.
    """

    name = "path"

    def __init__(self, *, makes_folder: bool = False) -> None:
        self._makes_folder = makes_folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if reason := _unwritable_file(path, makes_folder=self._makes_folder):
            self.fail(f"{path} cannot be written: {reason}", param, ctx)
        return path


class OutputFolder(_Completed):
    """A writable folder that exists or can be created."""

    name, completes = "path", "dir"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail(_EMPTY, param, ctx)
        path = Path(value)
        if reason := _unwritable_folder(path):
            self.fail(f"{path} cannot be written: {reason}", param, ctx)
        return path


def _unwritable_file(path: Path, *, makes_folder: bool) -> str | None:
    """Why a file cannot be written; None if it can."""
    try:
        mode = path.stat().st_mode if path.exists() else stat.S_IFREG
        if stat.S_ISDIR(mode):
            return "it is a folder"
        if stat.S_ISFIFO(mode):
            return "it is a pipe"
        if not path.parent.is_dir():
            if makes_folder:
                return _unwritable_folder(path.parent)
            return f"the folder {path.parent} does not exist"
        return None if os.access(path if path.exists() else path.parent, os.W_OK) else "permission denied"
    except OSError as error:
        return error.strerror


def _unwritable_folder(path: Path) -> str | None:
    """Why a folder cannot be made or written in; None if it can."""
    try:
        nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not nearest.is_dir():
            kind = "a file" if nearest.is_file() else "something else"
            return f"{nearest} is {kind}, and not a folder"
        return None if os.access(nearest, os.W_OK | os.X_OK) else f"permission denied in {nearest}"
    except OSError as error:
        return error.strerror


JSON_FILE = click.option("--json", "json_file", type=OutputFile(), help="Write the figures to this file.")
