"""Sentences of docstrings and comments have a noun for a subject."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("daemon", "detectors", "calibration", "lookout", "lookoutd")
PRONOUN = re.compile(r"\b(?:Who|Whoever|Whose|What|That which|who (?:has|have))\b")
SENTENCE = re.compile(r"(?:^|[.:;] )(?:Who|Whoever|Whose|What|That which) |\bwho (?:has|have)\b")


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments, with their first lines' numbers."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for offset, line in enumerate(node.value.value.split("\n")):
                yield node.lineno + offset, line.strip()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def _without_noun(text: str) -> list[tuple[int, str]]:
    if not PRONOUN.search(text):
        return []
    return [(line, prose) for line, prose in _prose(text) if SENTENCE.search(prose)]


def test_sentences_have_a_noun_for_a_subject() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{line}: needs a noun: {prose}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, prose in _without_noun(path.read_text())
    ]
    assert not found, "\n".join(["", *found])


def test_a_sentence_without_one_is_found() -> None:
    text = '"""Who reads slowly loses messages."""\nvalue = 1  # a caller who has it\nWhat = "What is code"\n'
    assert [line for line, _ in _without_noun(text)] == [1, 2]
