"""Each command's help has examples, and the real parser takes them; shells complete what is typed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from daemon.cli import cli, invoke
from daemon.commands.groups.completion import SHELLS
from tests.support.commands import leaves
from tests.support.daemon import ROOT

COMMANDS = {name: command for name, command in leaves(cli) if not command.hidden}


def _parsed(words: list[str]) -> str:
    """The command that is meant; a usage error where the parser does not take the words."""
    context, path = click.Context(cli, info_name="lookout"), list[str]()
    found: click.Command = cli
    while isinstance(found, click.Group) and words:
        inner = found.get_command(context, words[0])
        if inner is None:
            break
        path.append(words.pop(0))
        found = inner
    with found.make_context(path[-1], words, parent=context):
        return " ".join(path)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_examples_that_parse(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke([*name.split(), "--help"]) == 0
    _, found, examples = capsys.readouterr().out.partition("  Examples:\n")
    assert found, "an epilog with examples(...) is missing"
    lines = examples.splitlines()
    for line in lines:
        words = shlex.split(line.replace('eval "$(', "").replace(')"', ""), comments=True)
        words = words[: words.index(">")] if ">" in words else words
        assert words.pop(0) == "lookout"
        assert _parsed(words) == name, line
    assert lines


def test_an_example_that_does_not_parse_is_found() -> None:
    with pytest.raises(click.UsageError):
        _parsed(["run", "--no-such-option"])
    assert _parsed(["model", "list"]) == "model list"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["completion", shell]) == 0
    assert "_LOOKOUT_COMPLETE" in capsys.readouterr().out


def test_bash_completes_commands_options_values_and_files(tmp_path: Path) -> None:
    """With the script as it is printed, in a bash."""
    program = tmp_path / "lookout"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m daemon "$@"\n')
    program.chmod(0o755)
    (tmp_path / "clip.mkv").touch()
    lines = [
        "lookout recordings re",
        "lookout run --dash",
        "lookout demo --backend trt-",
        "lookout run --model yolox_n",
    ]
    ask = [f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=(); _lookout_completion lookout; "
           'echo "${COMPREPLY[*]}"' for line in lines]  # fmt: skip
    files = 'COMP_WORDS=(lookout run cl); COMP_CWORD=2; env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=2 ' \
            "_LOOKOUT_COMPLETE=bash_complete lookout"  # fmt: skip
    script = "\n".join(['eval "$(lookout completion bash)"', "compopt() { :; }", *ask, files])
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["rebuild", "--dashboard", "trt-rtx", "yolox_nano", "file,cl"]


def _numbers() -> list[tuple[str, click.Parameter]]:
    return [
        (f"{name} {parameter.name}", parameter)
        for name, command in leaves(cli)
        for parameter in command.params
        if isinstance(parameter.type, click.types.FloatParamType)
    ]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300"])
def test_no_wait_and_no_limit_is_endless(value: str) -> None:
    """Neither what is no number, nor a time that never comes."""
    taken = []
    for name, parameter in _numbers():
        try:
            parameter.type.convert(value, parameter, None)
        except click.BadParameter:
            continue
        taken.append(name)
    assert taken == []
    assert len(_numbers()) > 20
