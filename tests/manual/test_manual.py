"""Man pages have each command and each key, and a typesetter has nothing against them."""

from __future__ import annotations

import re
import subprocess
from datetime import date
from pathlib import Path

import pytest

from daemon.cli import cli
from daemon.config.root import Config
from tests.manual.__main__ import files, write
from tests.manual.commands_page import commands_page
from tests.manual.config_page import config_page
from tests.manual.roff import escaped
from tests.reference.keys import all_structs, keys_of
from tests.support.commands import leaves

DAY = date(2026, 1, 31)


def test_each_command_and_its_options_have_a_place() -> None:
    page = commands_page(DAY)
    for name, command in leaves(cli):
        if not command.hidden:
            assert f'.SS "lookout {escaped(name)} ' in page, name
    for option in ("--save", "--public-key", "--builder-level"):
        assert escaped(option) in page


def test_each_key_is_explained() -> None:
    page = config_page(DAY)
    for struct in all_structs(Config):
        for key in keys_of(struct):
            assert f"\n.B {escaped(key.name)}\n" in page, key.name


@pytest.mark.needs("groff")
def test_a_typesetter_takes_the_pages(tmp_path: Path) -> None:
    write(tmp_path)
    pages = sorted(tmp_path.glob("man/man?/*"))
    assert [page.name for page in pages] == ["lookout.1", "lookout.yaml.5"]
    for page in pages:
        command = ["groff", "-man", "-Tascii", "-wall", str(page)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert "192.0.2.10/stream1" in re.sub("\x08.", "", done.stdout)


def test_pages_are_the_same_whenever_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1769817600")
    made = files()
    assert made == files()
    for text in made.values():
        assert "/home/" not in text
    assert re.match(r'\.TH LOOKOUT 1 2026-01-31 "Lookout ', made["man/man1/lookout.1"])
