"""Tables of `lookout fleet status` and `rebalance`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from daemon.fleet.demand import RESOURCES
from daemon.fleet.rebalance import Rebalance
from daemon.fleet.status import FleetStatus, MemberRow, SourceRow
from daemon.redact import printable

_COLOURS = {
    "ready": "green",
    "owned": "green",
    "drained": "yellow",
    "leaving": "yellow",
    "starting": "yellow",
    "claiming": "yellow",
    "moving": "yellow",
    "gone": "red",
    "waiting": "red",
}
_FULL = 0.9  # a share that is shown in red
_MAX_ROWS = 40


def show_status(status: FleetStatus, console: Console, *, every_source: bool) -> None:
    """Print members, and the sources that are not where they are to be, or all."""
    for part in _parts(status, every_source=every_source):
        console.print(part)


def show_rebalance(found: Rebalance, console: Console, *, dry_run: bool) -> None:
    """Print the moves, and the load of members before and after."""
    if not found.moves:
        console.print("nothing to move: the members are evenly loaded, or no move would make them so")
        return
    table = Table("member", "before", "after")
    for name, before in found.before.items():
        table.add_row(_text(name), f"{before:.0%}", f"{found.after[name]:.0%}")
    console.print(table)
    moves = Table("source", "from", "to")
    for row in found.moves[:_MAX_ROWS]:
        moves.add_row(*map(_text, (row.source, row.before, row.after)))
    console.print(moves)
    if len(found.moves) > _MAX_ROWS:
        console.print(f"and {len(found.moves) - _MAX_ROWS} more")
    console.print(f"{len(found.moves)} moves" + (": a dry run, and nothing was moved" if dry_run else ""))


def _parts(status: FleetStatus, *, every_source: bool) -> Iterator[RenderableType]:
    yield _members(status.members)
    rows = [row for row in status.sources if every_source or row.state not in ("owned", "disabled")]
    if rows:
        yield _sources(rows if every_source else rows[:_MAX_ROWS])
    if len(rows) > _MAX_ROWS and not every_source:
        yield f"and {len(rows) - _MAX_ROWS} more: --sources shows all"
    for key, reason in status.problems.items():
        yield Text(printable(f"cannot be read: {key}: {reason}"), "red")
    owned = sum(row.state == "owned" for row in status.sources)
    placer = printable(status.placer) if status.placer else "none: no source is placed"
    yield Text(
        f"fleet {printable(status.name)}: {len(status.sources)} sources, {owned} owned, {status.unplaced} unplaced; "
        f"placer {placer}",
        "red" if status.unplaced or not status.placer else "",
    )


def _members(rows: list[MemberRow]) -> Table:
    resources = [name for name in RESOURCES if any(name in row.usage for row in rows)]
    table = Table("member", "state", "sources", *resources, "release", "labels", "notes")
    for row in rows:
        cells = [_share(row.usage.get(name, 0.0)) for name in resources]
        sources = str(row.owned) if row.owned == row.wanted else f"{row.owned} of {row.wanted}"
        labels = ", ".join(f"{key}={value}" for key, value in row.labels.items())
        table.add_row(
            _text(row.name), _state(row.state), sources, *cells, _text(row.release), _text(labels), _text(_notes(row))
        )
    return table


def _notes(row: MemberRow) -> str:
    notes = [row.reason] if row.reason else []
    times = "once" if row.losses == 1 else f"{row.losses} times"
    notes += [f"lost {times} within an hour"] if row.losses else []
    notes += ["held down"] if row.held_down else []
    return "; ".join(notes)


def _sources(rows: list[SourceRow]) -> Table:
    table = Table("source", "state", "member", "owner", "epoch", "priority", "reason")
    for row in rows:
        member = f"{row.member or ''}{' (pinned)' if row.pinned else ''}"
        numbers = ["" if row.epoch is None else str(row.epoch), str(row.priority)]
        table.add_row(
            _text(row.id), _state(row.state), _text(member), _text(row.owner or ""), *numbers, _text(row.reason)
        )
    return table


def _state(state: str) -> Text:
    return Text(state, _COLOURS.get(state, ""))


def _share(share: float) -> Text:
    return Text(f"{share:.0%}" if share else "", "red" if share > _FULL else "")


def _text(text: str) -> Text:
    return Text(printable(text))
