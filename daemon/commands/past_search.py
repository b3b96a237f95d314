"""`lookout recordings search`: rules that are asked of the past."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from daemon.clock import SystemClock, local_text
from daemon.commands.events import words_of
from daemon.commands.times import length_text
from daemon.config.load import load_raw
from daemon.config.text import Loader
from daemon.errors import ConfigError
from daemon.files import read_text
from daemon.recording import causes
from daemon.recording.index_reader import IndexReader
from daemon.recording.search import answers
from daemon.recording.search.answers import Answer, End, PastEvent, Progress, Unseen, line_of
from daemon.recording.search.asked import Asked, rule_from
from daemon.recording.search.search import search
from daemon.recording.store import Store
from daemon.redact import printable
from daemon.rule_checks import check_rules
from daemon.rule_config import RuleConfig
from daemon.system.streams import is_output_read
from daemon.validation import read_yaml
from lookout.messages import Event

_MEANINGS = {**causes.MEANINGS, **answers.MEANINGS}
_FILES = (".yaml", ".yml", ".json")


def rules_of(
    config: Path, source: str, named: Sequence[str], zones: Sequence[str], lines: Sequence[str]
) -> list[RuleConfig]:
    """The rules of the command line.

    Args:
        named: files, or names of rules of the source in the configuration.
        zones, lines: points.

    Raises:
        ConfigError: one is wrong, or unknown.
        click.UsageError: there is none.
    """
    found: list[RuleConfig] = []
    for name in named:
        is_file = "/" in name or name.endswith(_FILES)
        found += _in_file(Path(name)) if is_file else [_in_config(config, source, name)]
    for kind, rows in (("zone", zones), ("line", lines)):
        for number, text in enumerate(rows, 1):
            name = kind if len(rows) == 1 else f"{kind}-{number}"
            found.append(rule_from({"type": kind, "name": name, "points": _points(kind, text)}, f"--{kind}"))
    if not found:
        raise click.UsageError("name what to look for: --rule FILE or NAME, --zone POINTS, or --line POINTS")
    check_rules(found, "")
    return found


def asked(source: str, rules: Sequence[RuleConfig], begin: int, end: int) -> Asked:
    """The question, up to now at most."""
    return Asked(source, rules, begin, max(begin + 1, min(end, SystemClock().utc_ns())))


def show(store: Store, index: IndexReader, question: Asked, *, as_json: bool) -> int:
    """Print each answer as it is found.

    Returns:
        The exit code.
    """
    for answer in search(store, index, question, SystemClock().utc_ns()):
        if not is_output_read():
            return 0
        if as_json:
            sys.stdout.write(line_of(answer).decode())
        elif not isinstance(answer, Progress):
            sys.stdout.write(printable(_words(answer)) + "\n")
        sys.stdout.flush()
    return 0


def _words(answer: Answer) -> str:
    if isinstance(answer, PastEvent):
        partial = "  (partial: boxes of the track from before are missing)" if answer.partial else ""
        return f"{local_text(answer.at)}  {words_of(_message_of(answer))}{partial}"
    if isinstance(answer, Unseen):
        words = answer.detail or _MEANINGS.get(answer.cause, "")
        return f"not seen: {local_text(answer.begin)} to {local_text(answer.end)}: {answer.cause}: {words}"
    assert isinstance(answer, End)  # noqa: S101 - the caller leaves the others out
    seen, unseen = (length_text(round(seconds * 1e9)) for seconds in (answer.seen_s, answer.unseen_s))
    return f"{answer.events} event{'' if answer.events == 1 else 's'}; {seen} searched, {unseen} not seen"


def _message_of(event: PastEvent) -> Event:
    own: dict[str, Any] = {
        name: getattr(event, name) for name in event.__struct_fields__ if name in Event.__struct_fields__
    }
    return Event(id="", number=0, index=0, **own)


def _in_file(path: Path) -> list[RuleConfig]:
    try:
        raw = read_yaml(read_text(path), Loader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    try:
        return [rule_from(raw)]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _in_config(config: Path, source: str, name: str) -> RuleConfig:
    rows = load_raw(config).get("sources")
    sources = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    own = next((row for row in sources if row.get("id") == source), None)
    if own is None:
        raise ConfigError(f"{config}: has no source {source!r}: name a FILE with a rule, or use --zone or --line")
    rules = own.get("rules")
    named = {str(row.get("name")): row for row in rules if isinstance(row, dict)} if isinstance(rules, list) else {}
    if name not in named:
        there = f"there are {', '.join(named)}" if named else "it has none"
        raise ConfigError(f"{config}: source {source!r} has no rule {name!r}: {there}; a file ends with .yaml")
    return rule_from(named[name], f"{config}: rule {name}")


def _points(kind: str, text: str) -> list[list[float]]:
    try:
        rows = [[float(number) for number in pair.split(",")] for pair in text.split()]
    except ValueError:
        rows = []
    if not rows or any(len(row) != 2 for row in rows):
        raise ConfigError(f'--{kind}: {text!r} is no list of points: write such as "0.1,0.2 0.9,0.2 0.9,0.8"')
    return rows
