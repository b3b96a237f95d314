"""The repository's documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.daemon import ROOT

_NOT_OURS = {"build", "bench-results", "node_modules"}


def _documents() -> Iterator[Path]:
    """Every Markdown file of the repository."""
    for path in sorted(ROOT.rglob("*.md")):
        folders = path.relative_to(ROOT).parts[:-1]
        if not any(name in _NOT_OURS or (name.startswith(".") and name != ".github") for name in folders):
            yield path


DOCUMENTS = list(_documents())


def name_of(path: Path) -> str:
    """As it stands in a failure."""
    return path.relative_to(ROOT).as_posix()


def tokens_of(path: Path) -> list[Token]:
    """Its parts, read as GitHub reads them."""
    return MarkdownIt("gfm-like", {"linkify": False}).parse(path.read_text(encoding="utf-8"))
