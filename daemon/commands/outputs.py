"""Output options of commands, checked before the work instead of after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class OutputFile(click.ParamType):  # type: ignore[type-arg]
    """A writable file."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.is_dir():
            self.fail(f"{path} cannot be written: it is a folder", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{path} cannot be written: the folder {path.parent} does not exist", param, ctx)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            self.fail(f"{path} cannot be written: permission denied", param, ctx)
        return path


class OutputFolder(click.ParamType):  # type: ignore[type-arg]
    """A writable folder that exists or can be created."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not nearest.is_dir():
            self.fail(f"{path} cannot be written: {nearest} is not a folder", param, ctx)
        if not os.access(nearest, os.W_OK | os.X_OK):
            self.fail(f"{path} cannot be written: permission denied in {nearest}", param, ctx)
        return path


JSON_FILE = click.option("--json", "json_file", type=OutputFile(), help="Write the figures to this file.")
