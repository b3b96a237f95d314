"""The documents: the site builds without a warning, and every link within the repository leads somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from lookout.messages import schemas
from tests.support.daemon import ROOT
from tests.support.documents import DOCUMENTS, name_of, tokens_of


def _links(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        for child in token.children or ():
            target = child.attrGet("href") if child.type == "link_open" else child.attrGet("src")
            if target:
                yield str(target)


def _anchors(tokens: list[Token]) -> set[str]:
    """Of the headings, as GitHub and MyST name them."""
    found: set[str] = set()
    for heading, inline in pairwise(tokens):
        if heading.type == "heading_open":
            text = "".join(child.content for child in inline.children or ()).lower().replace(" ", "-")
            plain = "".join(sign for sign in text if sign in "-_" or category(sign)[0] in "LN")
            number = 0
            while (anchor := f"{plain}-{number}" if number else plain) in found:
                number += 1
            found.add(anchor)
    return found


def _broken(path: Path, text_tokens: list[Token]) -> list[str]:
    """Links that lead nowhere; those to other sites are left to `make linkcheck`."""
    broken = []
    for link in _links(text_tokens):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        exists = target.exists() and target.is_relative_to(ROOT)
        if not exists or (anchor and target.suffix == ".md" and anchor not in _anchors(tokens_of(target))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    assert _broken(path, tokens_of(path)) == []


def test_links_that_lead_nowhere_are_found() -> None:
    page = ROOT / "docs" / "page.md"
    text = "# A `b` c\n[1](wire.md#versions) [2](wire.md#version) [3](none.md) [4](../LICENSE) [5](#a-b-c) [6](#a-c)\n"
    tokens = MarkdownIt().parse(text)
    assert _anchors(tokens) == {"a-b-c"}
    assert _broken(page, [token for token in tokens if "#a-" not in token.content]) == []
    assert _broken(ROOT / "docs" / "wire.md", tokens)[:2] == ["wire.md#version", "none.md"]


def _sphinx(out: Path, source: Path = ROOT / "docs") -> subprocess.CompletedProcess[str]:
    """What `make docs` runs, with a folder of its own to write to."""
    dry = subprocess.run(["make", "--dry-run", "-C", str(ROOT), "docs"], check=True, capture_output=True, text=True)
    (line,) = [line for line in dry.stdout.splitlines() if "-m sphinx" in line]
    _, *words = shlex.split(line)
    assert words[-2:] == ["docs", "build/docs"]
    command = [sys.executable, *words[:-2], str(source), str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = _sphinx(tmp_path)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (tmp_path / "search.html").exists()
    start = (tmp_path / "start.html").read_text()
    assert 'id="what-it-promises"' in start  # of README.md, whose links lead to the site's pages
    assert 'href="wire.html"' in start


def test_a_link_or_an_anchor_that_is_not_there_ends_the_build(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "conf.py").write_text((ROOT / "docs" / "conf.py").read_text())
    (folder / "index.md").write_text("# One\n\n[a](none.md) [b](#two)\n")
    done = _sphinx(tmp_path / "out", folder)
    assert done.returncode != 0
    assert "none.md" in done.stderr
    assert "two" in done.stderr


def test_every_kind_of_message_has_its_schema_where_the_wire_is_described() -> None:
    there = {path.name for path in (ROOT / "docs" / "schema").iterdir()}
    linked = {Path(link).name for link in _links(tokens_of(ROOT / "docs" / "wire.md")) if link.startswith("schema/")}
    assert there == linked
    assert there == set(schemas())


def test_no_table_has_a_placeholder_in_place_of_a_figure() -> None:
    """Such a cell has capitals alone, and no other page knows the word."""
    texts = {path: path.read_text(encoding="utf-8") for path in DOCUMENTS}
    all_words = Counter(word for text in texts.values() for word in re.findall(r"[A-Z]{3,}", text))
    cells = [cell for text in texts.values() for cell in re.findall(r"(?<=\|) *([A-Z]{3,}) *(?=\|)", text)]
    assert "CUDA" in cells
    assert [cell for cell in cells if all_words[cell] < 3 or cell in ("TODO", "TBD", "FIXME", "XXX")] == []


def _rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the tables under a heading, without their heads."""
    (section,) = re.findall(rf"^## {heading}$\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [row for number, row in enumerate(rows) if number > 1]


def test_each_field_of_a_packet_s_header_stands_in_its_table_with_its_type() -> None:
    """In the order in which it is sent, and no other."""
    schema = json.loads(schemas()["packet.schema.json"])["$defs"]["Packet"]["properties"]
    told: dict[str, str] = {}
    for names, type_, meaning in _rows((ROOT / "docs" / "wire.md").read_text(), "Packets of video"):
        told |= dict.fromkeys(re.findall(r"`(\w+)`", names), type_)
        assert len(meaning) > 10
    assert [*told] == [*schema]
    assert told == {name: _type_of(row) for name, row in schema.items()}


def _type_of(row: dict[str, Any]) -> str:
    """In words, of a field in a JSON Schema."""
    if "anyOf" in row:
        return " or ".join(sorted((_type_of(other) for other in row["anyOf"]), key=lambda word: word == "null"))
    return "string" if "enum" in row else row.get("type", "object")


def test_each_field_of_the_answer_is_named_beside_it() -> None:
    fields = [*json.loads(schemas()["packets.schema.json"])["$defs"]["Packets"]["properties"]]
    (said,) = re.findall(r"^The answer on the first socket has (.*)\.$", (ROOT / "docs" / "wire.md").read_text(), re.M)
    assert re.findall(r"`(\w+)`", said) == fields


def _headings(text: str) -> list[tuple[str, str]]:
    """Levels and texts."""
    tokens = MarkdownIt().parse(text)
    return [(heading.tag, inline.content) for heading, inline in pairwise(tokens) if heading.type == "heading_open"]


def test_the_changelog_has_versions_and_the_usual_headings() -> None:
    """Those of Keep a Changelog, in its order, each once within a version."""
    (title, *rest) = _headings((ROOT / "CHANGELOG.md").read_text())
    assert title == ("h1", "Changelog")
    assert rest[0] == ("h2", "[Unreleased]")
    usual = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    last = -1
    for tag, text in rest:
        if tag == "h2":
            assert re.fullmatch(r"\[Unreleased\]|\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", text)
            last = -1
        else:
            assert (tag, text) == ("h3", text)
            assert usual.index(text) > last
            last = usual.index(text)
