"""Documents are in plain English.

| rule | refused | instead |
|---|---|---|
| length | a sentence of more than 35 words | two sentences, one idea each |
| subject | a statement that starts with "Who", "What", "Whoever", "Whatever" or "That which" | "Clients that ..." |
| noun | "and who", "but who", "of who", "by who" and the like, where a noun is missing | "clients that ..." |
| title | a page without a title, or with two | one line that begins with "# " |

A sentence ends with a full stop, a question mark, an exclamation mark, or its paragraph. A statement may also begin
after a colon or a semicolon. An item of a list is a paragraph, and so is a cell of a table, where a semicolon ends a
sentence too. Code is not read, and a piece of code within a sentence is one word. Headings, and words in bold that
stand for one, may begin with "What". The notebook in docs/notes is read for its titles alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")))
NOTES = sorted((ROOT / "docs/notes").glob("*.md"))
LONGEST = 35

_FENCE = re.compile(r"^ *(```|~~~)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.) +")
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]*)\)")
_SUBJECT = re.compile(r"(?:^|[:;] )(?:who|whoever|what|whatever|that which)\b(?!.*\?$)", re.IGNORECASE)
_NOUN_MISSING = re.compile(r"\b(?:and|but|or|of|by|from|for|with|to) who(?:ever)?\b", re.IGNORECASE)
_END = re.compile(r"(?<=[.!?])[\"*)]*\s+(?=[\"*(]*[A-Z0-9])")
_NO_END = re.compile(r"\b(?:e\.g|i\.e|etc|vs)\.$")


def blocks(text: str) -> Iterator[tuple[int, str, bool]]:
    """Each paragraph, item and cell: the number of its line, its words, and whether it is a cell."""
    number, words = 0, ""
    fenced = listed = headed = False
    for at, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        code = fenced or _FENCE.match(line) or (line.startswith("    ") and not words and not listed)
        title = line.startswith(("#", "<", ">"))
        if words and (code or title or not line.strip() or line.startswith("|") or _ITEM.match(line)):
            yield number, words, False
            words = ""
        if line.startswith("|"):
            if headed and not set(line) <= set("|-: "):
                for cell in re.split(r"(?<!\\)\|", line.strip("| ")):
                    yield at, cell.strip(), True
            headed = True
            continue
        headed = False
        if line.strip() and not code:
            listed = bool(_ITEM.match(line)) or (listed and line.startswith(" "))
        if line.strip() and not code and not title:
            number, words = (number, f"{words} {line.strip()}") if words else (at, _ITEM.sub("", line).strip())
    if words:
        yield number, words, False


def sentences(text: str) -> Iterator[tuple[int, str]]:
    for number, block, cell in blocks(text):
        plain = re.sub(r"``[^`]+``|`[^`]*`", "Code", _LINK.sub(r"\1", block))
        plain = re.sub(r"^\*\*[^*]+[.:?]\*\*\s*", "", plain)  # stands for a heading
        rest = ""
        for piece in re.split(r";\s+", plain) if cell else [plain]:
            for part in _END.split(piece):
                rest = f"{rest} {part}".strip()
                if not _NO_END.search(rest):
                    yield number, rest.strip("*_ ")
                    rest = ""
        if rest:
            yield number, rest


def words_of(sentence: str) -> int:
    return sum(any(sign.isalnum() for sign in word) for word in sentence.split())


def too_long(text: str) -> Iterator[str]:
    for number, sentence in sentences(text):
        if words_of(sentence) > LONGEST:
            yield f"{number}: {words_of(sentence)} words: {sentence}"


def without_subject(text: str) -> Iterator[str]:
    for number, sentence in sentences(text):
        if _SUBJECT.search(sentence):
            yield f"{number}: no noun is its subject: {sentence}"


def without_noun(text: str) -> Iterator[str]:
    for number, sentence in sentences(text):
        if _NOUN_MISSING.search(sentence):
            yield f"{number}: who, of whom: {sentence}"


def prose_of(text: str) -> str:
    """Without code, in which "# " and "](" mean something else."""
    fenced, kept = False, []
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            kept.append(re.sub(r"`[^`]*`", lambda code: code[0].strip("`").replace("](", ""), line))
    return "\n".join(kept)


def without_one_title(text: str) -> Iterator[str]:
    if (count := len(re.findall(r"^# ", prose_of(text), re.MULTILINE))) != 1:
        yield f"{count} titles"


RULES = (too_long, without_subject, without_noun)


@pytest.mark.parametrize("rule", [*RULES, without_one_title], ids=lambda rule: rule.__name__)
def test_no_page_breaks_a_rule(rule: Callable[[str], Iterable[str]]) -> None:
    pages = PAGES if rule in RULES else PAGES + NOTES
    found = [f"{page.relative_to(ROOT)}:{fault}" for page in pages for fault in rule(page.read_text())]
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Who reads slowly loses messages.", 1),
        ("What is late is dropped.", 1),
        ("One rule: what is late is dropped.", 1),
        ("- What is late is dropped. A frame goes on.", 1),
        ("| a | b |\n|---|---|\n| what is late is dropped | x |", 1),
        ("| what goes wrong | b |\n|---|---|\n| x | y |", 0),
        ("What does it cost? Nothing.", 0),
        ("## What it costs\n\n**What it buys.** Speed.", 0),
        ("A camera, and who reads it.", 1),
        ("    What is code\n\n```\nWho is code\n```", 0),
        (f"{'word ' * LONGEST}.", 0),
        (f"{'word ' * LONGEST}word.", 1),
        (f"{'word ' * LONGEST}\nword.\n", 1),
        (f"- {'word ' * LONGEST}\n- word.\n", 0),
        (f"| a |\n|---|\n| {'word ' * LONGEST}; word |", 0),
        (f"Take `{'x ' * 40}` and go.", 0),
    ],
)
def test_the_rules_find_what_they_are_for(text: str, found: int) -> None:
    faults = [fault for rule in RULES for fault in rule(text)]
    assert len(faults) == found, faults


@pytest.mark.parametrize(
    ("text", "count"), [("# One\n\n```\n# code\n```\n", 0), ("text\n", 1), ("# One\n\n# Two\n", 1)]
)
def test_pages_without_one_title_are_found(text: str, count: int) -> None:
    assert len(list(without_one_title(text))) == count
