"""`lookout init`: writes a configuration from questions or options, and checks it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from daemon.commands.check import check
from daemon.commands.command_line_config import TypedConfig
from daemon.commands.from_arguments import save, sources_of
from daemon.errors import LookoutError


def init(typed: TypedConfig, path: Path, *, asks_model: bool) -> int:
    """Write a configuration and check it; asks for missing values on a terminal.

    Args:
        asks_model: ask which one, with the typed one as the usual answer.

    Returns:
        The exit code of `lookout check`.

    Raises:
        LookoutError: a source is missing or invalid, or the file exists.
    """
    if path.exists():
        raise LookoutError(f"{path} already exists: pass another name with --out")
    asks = sys.stdin.isatty()
    if not typed.sources and not asks:
        raise LookoutError("no source: lookout init rtsp://... ; on a terminal it asks")
    if not typed.sources:
        typed = replace(typed, sources=_ask_for_sources())
    if asks_model and asks:
        words = "Model: an ONNX file, or a name of `lookout model list`"
        typed = replace(typed, named_model=click.prompt(words, default=typed.named_model))
    text, config = typed.read()
    typed.model.fetch(Console(file=sys.stderr))
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
