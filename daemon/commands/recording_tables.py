"""Tables of `lookout recordings`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from daemon.clock import local_text
from daemon.commands.recordings import Part, Summary
from daemon.commands.times import length_text
from daemon.recording.causes import MEANINGS
from daemon.recording.records import Lock
from daemon.redact import printable


def show_summaries(rows: Sequence[Summary], console: Console) -> None:
    table = _table("source", "from", "to", "recorded", "covered", "size", "files", "locks")
    for row in rows:
        covered = row.recorded / (row.end - row.begin) if row.end > row.begin else 1.0
        table.add_row(
            _text(row.source),
            local_text(row.begin),
            local_text(row.end),
            length_text(row.recorded),
            f"{covered:.2%}",
            _size(row.bytes),
            str(row.files),
            str(row.locks),
        )
    _show(table, console, "nothing is recorded")


def show_parts(rows: Sequence[Part], console: Console) -> None:
    table = _table("source", "from", "to", "length", "what", "size")
    for row in rows:
        if row.cause is None:
            what, size = Text("recorded"), _size(row.bytes)
        else:
            words = row.detail or MEANINGS.get(row.cause, "")
            what, size = _text(f"{row.cause}: {words}"), ""
        times = local_text(row.begin), local_text(row.end), length_text(row.end - row.begin)
        table.add_row(_text(row.source), *times, what, size)
    _show(table, console, "no gap")


def show_locks(rows: Sequence[Lock], console: Console) -> None:
    table = _table("id", "source", "from", "to", "by", "reason")
    for row in rows:
        times = local_text(row.begin), local_text(row.end)
        table.add_row(row.id, _text(row.source), *times, _text(row.by), _text(row.reason))
    _show(table, console, "nothing is locked")


def _table(*names: str) -> Table:
    """Nothing in it is cut off: an id is to be given to another command."""
    return Table(*(Column(name, overflow="fold", no_wrap=name == "id") for name in names))


def _show(table: Table, console: Console, nothing: str) -> None:
    console.print(table if table.row_count else nothing)


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"


def _text(text: str) -> Text:
    return Text(printable(text))
