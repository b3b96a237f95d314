"""The repository's documents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.daemon import ROOT

_NOT_OURS = {"build", "bench-results", "node_modules"}


def _is_ours(folder: str) -> bool:
    return folder not in _NOT_OURS and (not folder.startswith(".") or folder == ".github")


def _documents() -> Iterator[Path]:
    """Every Markdown file of the repository. A build folder is not entered: it may hold whole systems that run."""
    for place, folders, files in os.walk(ROOT):
        folders[:] = filter(_is_ours, folders)
        yield from (Path(place, name) for name in files if name.endswith(".md"))


DOCUMENTS = sorted(_documents())


def name_of(path: Path) -> str:
    """As it stands in a failure."""
    return path.relative_to(ROOT).as_posix()


def tokens_of(path: Path) -> list[Token]:
    """Its parts, read as GitHub reads them."""
    return MarkdownIt("gfm-like", {"linkify": False}).parse(path.read_text(encoding="utf-8"))
