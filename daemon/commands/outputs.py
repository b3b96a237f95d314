"""Where commands write their figures: that they can is found out before they work for it, and not after."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class OutputFile(click.ParamType):  # type: ignore[type-arg]
    """A file that can be written."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.is_dir():
            self.fail(f"{path} cannot be written: it is a folder", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{path} cannot be written: there is no folder {path.parent}", param, ctx)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            self.fail(f"{path} cannot be written: not with this user's rights", param, ctx)
        return path


class OutputFolder(click.ParamType):  # type: ignore[type-arg]
    """A folder that is there, or can be made."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not nearest.is_dir():
            self.fail(f"{path} cannot be written: {nearest} is no folder", param, ctx)
        if not os.access(nearest, os.W_OK | os.X_OK):
            self.fail(f"{path} cannot be written: not with this user's rights in {nearest}", param, ctx)
        return path


JSON_FILE = click.option("--json", "json_file", type=OutputFile(), help="Write the figures to this file.")
