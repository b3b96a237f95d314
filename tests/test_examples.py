"""The documents' examples: each is at least what its language accepts, and every command and option exists."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
import yaml
from _pytest.mark.structures import ParameterSet

from daemon.cli import cli
from daemon.commands.fleet_rows import Placing, source_records
from daemon.config.load import parse
from lookout.messages import decode
from tests.bench.__main__ import bench
from tests.support.daemon import ROOT
from tests.support.documents import DOCUMENTS, name_of, tokens_of

_OF_THEIR_DAY = ("docs/notes/", "docs/benchmarks/")  # with the commands that there were
_FORMER = ("CHANGELOG.md", *_OF_THEIR_DAY)  # with names that are no more
_OF_TODAY = [path for path in DOCUMENTS if not name_of(path).startswith(_FORMER)]
_BLOCKS = [
    (token.info.split(" ")[0], token.content, f"{name_of(path)}:{token.map[0] + 1}")
    for path in DOCUMENTS
    if not name_of(path).startswith(_OF_THEIR_DAY)
    for token in tokens_of(path)
    if token.type in ("fence", "code_block") and token.map
]
_LANGUAGES = {"", "sh", "python", "js", "json", "sql", "yaml", "text", "{toctree}", "{literalinclude}"}
_LEAST = {"model": {"path": "model.onnx"}, "sources": [{"id": "street", "type": "synthetic"}]}
_SECRETS = {"BOT": "123456789:AAE-a-secret-that-is-long", "HOOK": "whsec_" + "c2VjcmV0" * 4}  # of a form of their own
_WITHIN = re.compile(r"(lookout|python -m tests\.bench) [a-z]+ ")
_COMMAND = re.compile(r"(sudo )?([\w./]*lookout|make|python -m|pip install) ")


def _examples(language: str) -> list[ParameterSet]:
    return [pytest.param(text, id=where) for known, text, where in _BLOCKS if known == language]


def test_there_are_examples_of_each_language() -> None:
    languages = {language for language, *_ in _BLOCKS}
    assert languages <= _LANGUAGES
    assert {"", "sh", "python", "json"} <= languages


@pytest.mark.parametrize("text", _examples("sh"))
def test_commands_are_ones_that_shell_make_and_lookout_know(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text.replace("<this repository>", "."), text=True, check=True)
    _check_lines(text)


@pytest.mark.parametrize("text", _examples(""))
def test_commands_between_figures_and_drawings_are_known_as_well(text: str) -> None:
    _check_lines("\n".join(line for line in _lines(text) if _COMMAND.match(line)))


@pytest.mark.parametrize("path", _OF_TODAY, ids=name_of)
def test_commands_within_sentences_are_known(path: Path) -> None:
    children = [child for token in tokens_of(path) for child in token.children or () if child.type == "code_inline"]
    lines = [child.content for child in children if _WITHIN.match(child.content)]
    for line in lines:
        _check_command([word for word in line.replace("|", " ").split() if word != "..."])


def _lines(text: str) -> list[str]:
    """With what goes on in the next line after a backslash."""
    return text.replace("\\\n", " ").splitlines()


def _check_lines(text: str) -> None:
    for line in _lines(text):
        words = shlex.split(line, comments=True) if line.count("'") % 2 == 0 else []  # what goes on in the next line
        _check_command([word for word in words if word != "sudo"])


def _check_command(words: list[str]) -> None:
    """That what the first word starts knows the others.

    Raises:
        AssertionError: it does not.
    """
    if words[:1] == ["make"]:
        assert _is_made(words[1]), words
    elif words and Path(words[0]).name == "lookout":
        ends = [number for number, word in enumerate(words) if word in ("&&", "||", "|")] or [len(words)]
        _check_options(cli, words[1 : ends[0]])
        _check_command(words[ends[0] + 1 :])
    elif words[:3] == ["python", "-m", "tests.bench"]:
        _check_options(bench, words[3:])
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]) is not None, words
    elif words[:2] == ["pip", "install"]:
        assert {name for word in words for name in _extras(word)} <= _EXTRAS, words


def _is_made(target: str) -> bool:
    dry = ["make", "--dry-run", "-C", str(ROOT), target]
    return subprocess.run(dry, capture_output=True, check=False).returncode == 0


def _extras(word: str) -> list[str]:
    found = re.fullmatch(r"\.\[([\w,]+)\]", word)
    return found[1].split(",") if found else []


_EXTRAS = {*re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text().split("optional-dependencies]")[1], re.M)}


def _check_options(command: click.Command, words: list[str]) -> None:
    """That a command has these subcommands and options; former names do not count."""
    while isinstance(command, click.Group) and words[:1] != ["--help"]:
        assert words or command.invoke_without_command, command.name
        if command.invoke_without_command and (not words or words[0].startswith("-")):
            break
        assert words[0] in command.commands, words
        command, words = command.commands[words[0]], words[1:]
        assert not command.hidden, words
    shown = [row for row in command.params if not (isinstance(row, click.Option) and row.hidden)]
    known = {name for row in shown for name in (*row.opts, *row.secondary_opts)} | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known, words


def test_commands_that_nobody_knows_are_found() -> None:
    wrong = ["make demos", "lookout runs", "lookout run --confg x", "lookout keys new x && lookout key"]
    former = ["lookout bench part python", "lookout evaluate --level 3", "python -m tests.bench page"]
    for line in [*wrong, *former, "pip install .[no]", "python -m tests.nothing"]:
        with pytest.raises(AssertionError):
            _check_command(line.split())
    _check_command(["lookout", "keys", "new", "x", "--name", "y", "&&", "lookout", "check", "-c", "z"])


@pytest.mark.parametrize("text", _examples("python"))
def test_programs_compile(text: str) -> None:
    compile(text, "example", "exec")


@pytest.mark.parametrize("text", _examples("json"))
def test_messages_are_ones_that_a_reader_takes(text: str) -> None:
    """And so are lines of a file."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        assert all(json.loads(line) for line in text.splitlines())
        return
    if "schema" in whole:
        name = whole["schema"].partition(".")[2].partition("/")[0]
        kind = {"event": "events", "clip": "clips", "store": "stores"}.get(name, name)
        assert decode(f"{kind}/x/".encode(), text.encode()).schema == whole["schema"]


@pytest.mark.parametrize("text", _examples("yaml"))
def test_configurations_are_taken(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that shows only some keys has the least beside them that a daemon starts with. Sources that say something
    to a placer are for `lookout fleet add`."""
    for name in re.findall(r"\$\{(\w+)\}", text):
        monkeypatch.setenv(name, _SECRETS.get(name.partition("_")[0], "a-secret-that-is-long-enough"))
    found = yaml.safe_load(text)
    if any("fleet" in row for row in found.get("sources", ())):
        source_records(found["sources"], Placing())
    else:
        least: dict[str, object] = {**_LEAST, "sources": []} if "fleet" in found else {**_LEAST}
        if "models" in found:
            del least["model"]
        parse(yaml.safe_dump({**least, **found}, sort_keys=False))
