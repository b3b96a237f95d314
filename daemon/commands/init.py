"""`lookout init`: writes a configuration from questions or options, and checks it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from daemon.commands.check import check
from daemon.commands.from_arguments import config_of, save, sources_of, yaml_of
from daemon.commands.model import find
from daemon.errors import LookoutError


def init(sources: Sequence[str], model: str | None, endpoint: str | None, path: Path, usual_model: str) -> int:
    """Write a configuration and check it; asks for missing values on a terminal.

    Args:
        usual_model: default model.

    Returns:
        The exit code of `lookout check`.

    Raises:
        LookoutError: a source is missing or invalid, or the file exists.
    """
    if path.exists():
        raise LookoutError(f"{path} already exists: pass another name with --out")
    asks = sys.stdin.isatty()
    if not sources and not asks:
        raise LookoutError("no source: lookout init rtsp://... ; on a terminal it asks")
    described = sources_of(sources or _ask_for_sources())
    if model is None and asks:
        model = click.prompt("Model: an ONNX file, or a name of `lookout model list`", default=usual_model)
    found, entry = find(model or usual_model, Console(file=sys.stderr))
    text = yaml_of(described, found, entry.labels if entry else None, endpoint)
    config = config_of(text)
    save(text, path)
    click.echo(f"{path} is written; checking it")
    code = check(config)
    click.echo(f"lookout run -c {path}" if code == 0 else f"correct {path}, and try again: lookout check -c {path}")
    return code


def _ask_for_sources() -> list[str]:
    found: list[str] = []
    while True:
        words = (
            "Another source, or enter" if found else "Source: a URL, a file, a folder, or the number of a USB camera"
        )
        word = click.prompt(words, default="" if found else None, show_default=False).strip()
        if not word:
            return found
        try:
            sources_of([word])
        except LookoutError as error:
            click.echo(str(error), err=True)
        else:
            found.append(word)
