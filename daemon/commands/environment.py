"""The file `environment` beside a configuration: what a service gets from it holds for commands as well.

systemd reads it as root and gives it to the daemon (EnvironmentFile=), whose user may not read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from daemon.commands.paths import InputPath
from daemon.files import read_text

NAME = "environment"
_LINE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_QUOTED = re.compile(r"""\s*(?:'([^']*)'|"((?:\\.|[^"\\])*)")""")


class ConfigFile(InputPath):
    """A configuration file. Variables of the file `environment` beside it hold, unless they are set otherwise."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = super().convert(value, param, ctx)
        for name, text in variables_beside(path):
            os.environ.setdefault(name, text)
        return path


def variables_beside(config: Path) -> Iterator[tuple[str, str]]:
    """Names and values, in the notation of systemd; none where there is no such file that may be read."""
    try:
        lines = read_text(config.parent / NAME).splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        if found := _LINE.fullmatch(line):
            yield found[1], _value(found[2])


def _value(text: str) -> str:
    """Quotes at the beginning of a value are no part of it, and a backslash takes the meaning of what follows."""
    value = ""
    while piece := _QUOTED.match(text):
        value += piece[1] if piece[1] is not None else re.sub(r'\\(["\\`$])', r"\1", piece[2])
        text = text[piece.end() :]
    return value + re.sub(r"\\(.)", r"\1", text.strip())
