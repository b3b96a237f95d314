"""The files of the page: what is from others is as its licence and hash say, and nothing needs another host."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import ROOT

STATIC = ROOT / "daemon" / "dashboard" / "static"
VENDOR = STATIC / "vendor"
MANIFEST: list[dict[str, Any]] = json.loads((VENDOR / "manifest.json").read_text())
OWN = sorted(path for path in STATIC.rglob("*.js") if VENDOR not in path.parents)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("row", MANIFEST, ids=lambda row: str(row["file"]))
def test_vendored_file(row: dict[str, Any]) -> None:
    """It is the file of the package, but for the one replacement that the manifest names."""
    content = (VENDOR / row["file"]).read_bytes()
    assert _sha256(content) == row["sha256"]
    replaced, by = row["replaced"].encode(), row["by"].encode()
    if replaced:
        assert content.count(by) == 1
        original = content.replace(by, replaced)
    else:
        original = content.removesuffix(by)
    assert _sha256(original) == row["sha256_of_original"]


def test_every_vendored_file_has_a_row_and_a_licence() -> None:
    files = {path.name for path in VENDOR.iterdir()} - {"manifest.json"}
    assert files == {row["file"] for row in MANIFEST}
    third_party = (ROOT / "THIRD_PARTY.md").read_text()
    for row in MANIFEST:
        assert (VENDOR / f"LICENSE.{row['package']}.txt").exists()
        assert f"{row['package']} {row['version']}" in third_party


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_module(path: Path) -> None:
    """Imports are files of this folder, and no module is too long to read."""
    text = path.read_text()
    assert not re.search(r"https?://(?!www\.w3\.org)", text), "another host"
    for name in re.findall(r'^(?:import|export)[^"]*from "([^"]+)";$', text, re.MULTILINE):
        assert name.startswith("."), name
        assert (path.parent / name).resolve().is_relative_to(STATIC)
        assert (path.parent / name).exists(), name
    assert len(text.splitlines()) <= 300


def test_nothing_is_inline() -> None:
    """The page's Content-Security-Policy allows neither scripts nor styles within the document."""
    text = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", text)
    unsafe = re.compile(r"innerHTML|outerHTML|document\.write|\beval\(|new Function|dangerously")
    assert [path for path in OWN if unsafe.search(path.read_text())] == []
