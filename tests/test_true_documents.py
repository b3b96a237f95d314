"""What documents say of the program is so: commands, exit codes, extras, fields, heads, addresses, and backups."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest

from daemon.cli import cli
from daemon.config.root import Config
from detectors.heads.shapes import LAYOUTS
from lookout.messages import schemas
from tests.reference.keys import explanations
from tests.support.daemon import ROOT
from tests.support.documents import DOCUMENTS, name_of, tokens_of

PAGES = [path for path in DOCUMENTS if "notes" not in path.parts and path.name != "CHANGELOG.md"]
OPERATIONS = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
_PLACEHOLDERS = re.compile(r"^[A-Z]+$|^<.*>$|^\.\.\.$")


@cache
def _spans(path: Path) -> tuple[str, ...]:
    """Pieces of code within sentences."""
    return tuple(
        child.content for token in tokens_of(path) for child in token.children or () if child.type == "code_inline"
    )


@cache
def _lines(path: Path) -> tuple[str, ...]:
    """What a reader may type: lines of blocks for a shell, and pieces within sentences."""
    blocks = [token.content for token in tokens_of(path) if token.type == "fence" and token.info == "sh"]
    typed = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return (*typed, *_spans(path))


def _words(line: str) -> list[list[str]]:
    """Of each command of a line; nothing for what is no command line."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words = list(lexer)
    except ValueError:
        return []
    commands: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set("|&;"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]


def _complaint(words: list[str]) -> str | None:
    """What is wrong with the words behind `lookout`, if anything is."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name.startswith("daemon."):
            return None  # the name of a process
        if name not in command.commands:
            is_argument = _PLACEHOLDERS.match(name) or bool(command.params)
            return None if is_argument and command is not cli else f"no command {name}"
        command = command.commands[name]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {
        "--help",
        "-h",
        "--version",
    }
    wrong = [word for word in rest if re.match(r"--[a-z]|-[a-z]$", word) and word.partition("=")[0] not in known]
    return f"{command.name} has no {', '.join(wrong)}" if wrong else None


def _of_lookout(line: str) -> Iterator[list[str]]:
    for words in _words(line):
        at = 1 if words[0] == "sudo" else 0
        if words[at:] and re.fullmatch(r"(\S*/bin/)?lookout", words[at]):
            yield words[at + 1 :]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_and_their_options_exist(path: Path) -> None:
    found = [(line, wrong) for line in _lines(path) for words in _of_lookout(line) if (wrong := _complaint(words))]
    assert found == []


def test_commands_that_do_not_exist_are_found() -> None:
    lines = ["sudo lookout chekc -c a.yaml", "a | .venv/bin/lookout run --nope", "lookout recordings list --locks # x"]
    complaints = [_complaint(words) for line in lines for words in _of_lookout(line)]
    assert complaints == ["no command chekc", "run has no --nope", None]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_what_else_is_typed_exists(path: Path) -> None:
    """Targets of make, modules of Python, and units of systemd."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    units = {unit.stem.partition("@")[0] for unit in (ROOT / "systemd").iterdir()}
    missing: list[str] = []
    for words in (words for line in _lines(path) for words in _words(line)):
        plain = words[1:] if words[0] == "sudo" else words
        if plain[:1] == ["make"] and len(plain) > 1 and re.fullmatch(r"[a-z-]+", plain[1]):
            missing += [f"make {plain[1]}"] if plain[1] not in targets else []
        if re.fullmatch(r"(\S*/)?python3?", plain[0] if plain else "") and plain[1:2] == ["-m"] and len(plain) > 2:
            own = plain[2].partition(".")[0] in ("daemon", "tests", "lookout", "calibration", "detectors")
            missing += [f"python -m {plain[2]}"] if own and find_spec(plain[2]) is None else []
        if plain[:1] in (["systemctl"], ["journalctl"]):
            named = [re.split(r"[@.]", word)[0] for word in plain[1:] if re.match(r"lookout[\w@.-]*$", word)]
            missing += [f"unit {name}" for name in named if name not in units]
    assert missing == []


def test_every_exit_code_is_explained() -> None:
    """Those that the code names as such, and what Ctrl-C gives."""
    table = OPERATIONS[OPERATIONS.index("## Exit codes") :].partition("\n## ")[0]
    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)}
    named = {0, *_codes()}
    assert named == explained
    assert "130" in table


def _codes() -> Iterator[int]:
    for path in sorted((ROOT / "daemon").rglob("*.py")):
        text = path.read_text()
        for number in re.findall(r"^[A-Z_]+ = (\d+)  # exit code", text, re.M):
            yield int(number)
        for numbers in re.findall(r"^[A-Z_, ]+ = ([\d, ]+)  # exit codes", text, re.M):
            yield from (int(number) for number in numbers.split(","))
    from daemon.cli import OUTPUT_ERROR, USER_ERROR

    yield from (OUTPUT_ERROR, USER_ERROR)


def test_extras_are_spelled_in_one_way_and_exist() -> None:
    """By the name of the package, which holds wherever Lookout came from. README, Makefile and CI install it first."""
    project = (ROOT / "pyproject.toml").read_text()
    part = project[project.index("[project.optional-dependencies]") : project.index("[project.scripts]")]
    extras = set(re.findall(r"^([a-z0-9]+) = \[", part, re.M))
    code = [path for name in ("daemon", "detectors", "calibration", "lookout") for path in (ROOT / name).rglob("*.py")]
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in (*code, *PAGES, ROOT / "CHANGELOG.md")}
    other = [name for name, text in texts.items() if re.search(r"['\"]\.\[[a-z]", text) and name != "README.md"]
    assert other == []
    used = {
        extra
        for text in texts.values()
        for row in re.findall(r"lookoutd\[([a-z0-9,]+)\]", text)
        for extra in row.split(",")
    }
    assert len(used) > 8
    assert used <= extras


@cache
def _structs() -> dict[str, dict[str, Any]]:
    """Properties of each struct of the wire, by its name."""
    return {
        name: struct.get("properties", {})
        for schema in schemas().values()
        for name, struct in json.loads(schema)["$defs"].items()
    }


@cache
def _nested() -> dict[str, set[str]]:
    """Fields of fields that hold structs, by the names of these fields."""
    nested: dict[str, set[str]] = {}
    for properties in _structs().values():
        for name, kind in properties.items():
            for struct in re.findall(r"#/\$defs/(\w+)", json.dumps(kind)):
                nested.setdefault(name, set()).update(_structs()[struct])
    return nested


def test_the_header_of_a_packet_is_described() -> None:
    wire = (ROOT / "docs/wire.md").read_text(encoding="utf-8")
    part = wire[wire.index("## Packets of video") :].partition("\n## ")[0]
    fields = {name for cell in re.findall(r"^\| (`.*?) \|", part, re.M) for name in re.findall(r"`(\w+)`", cell)}
    assert fields == set(_structs()["Packet"])


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_fields_within_fields_exist(path: Path) -> None:
    """Such as `unseen.longest_gap`; a section of the configuration may have the same name."""
    nested, sections = _nested(), set(Config.__struct_fields__)
    wrong = [
        span
        for span in _spans(path)
        if (found := re.fullmatch(r"([a-z_]+)\.([a-z_]+)", span))
        and found[1] in nested.keys() - sections
        and found[2] not in nested[found[1]] | {"py"}
    ]
    assert wrong == []


def test_the_configuration_names_every_head() -> None:
    from daemon.config.model import ModelConfig

    text = explanations(ModelConfig)["head"]
    assert [name for name in LAYOUTS if not re.search(rf"[ ,]{name}(,|$|\s)", text)] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_addresses_of_http_exist(path: Path) -> None:
    """Those of one word, such as `/live`, that are no folder here and no page of another program."""
    served = {"/healthz", "/recordings", *_addresses()}
    spans = [span for span in _spans(path) if re.fullmatch(r"/[a-z]+", span)]
    assert [span for span in spans if span not in served and not Path(span).exists() and span != "/targets"] == []


@cache
def _addresses() -> frozenset[str]:
    return frozenset(_addresses_in_code())


def _addresses_in_code() -> Iterator[str]:
    for path in (ROOT / "daemon/http").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"/[a-z]+", node.value):
                yield node.value


def test_all_that_a_service_keeps_is_named_where_one_reads_of_backups() -> None:
    """The folders of state of each unit, and the files that Lookout makes there."""
    page = (ROOT / "docs/backup.md").read_text(encoding="utf-8")
    for unit in (ROOT / "systemd").iterdir():
        for key, folder in re.findall(r"^(State|Cache)Directory=([a-z-]+)$", unit.read_text(), re.M):
            place = f"/var/{'lib' if key == 'State' else 'cache'}/{folder}"
            assert re.search(rf"{place}(?![\w-])", page), place
    for name in (
        "events.sqlite",
        "bridge.sqlite",
        "index.sqlite",
        "http.sources_file",
        "events.snapshots",
        "/etc/lookout",
    ):
        assert name in page
    assert "nothing else to keep" not in OPERATIONS
