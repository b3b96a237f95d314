"""`lookout fleet`: what operators do with the sources and members of a fleet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from daemon.clock import Clock, SystemClock
from daemon.commands.fleet_rows import Placing, rows_of, source_records
from daemon.config.load import load_fleet, load_raw
from daemon.errors import ConfigError, LookoutError
from daemon.fleet import operations
from daemon.fleet.open_coordinator import open_coordinator
from daemon.fleet.operations import Backup, listed
from daemon.fleet.port import Coordinator
from daemon.fleet.records import FleetView
from daemon.fleet.status import FleetStatus, status_of
from daemon.fleet_config import FleetConfig, check_fleet
from daemon.redact import printable
from daemon.system.stop_token import StopToken

NOT_IN_TIME = 1  # exit code
_POLL_S = 0.25


@dataclass(frozen=True)
class Fleet:
    """An opened coordinator, and the name of the fleet."""

    coordinator: Coordinator
    name: str


@contextmanager
def opened(config: Path, coordinator: str | None, name: str | None) -> Iterator[Fleet]:
    """The fleet that a configuration file names, or a URL.

    Raises:
        LookoutError: none is named, or it cannot be opened.
    """
    if coordinator is None:
        found = load_fleet(config)
        found = msgspec.structs.replace(found, name=name) if name else found
    else:
        found = FleetConfig(coordinator=coordinator, name=name or FleetConfig().name)
    check_fleet(found, has_sources=False)
    with closing(open_coordinator(found)) as connection:
        yield Fleet(connection, found.name)


def status(fleet: Fleet) -> FleetStatus:
    return status_of(fleet.coordinator.view(), fleet.name)


def add(fleet: Fleet, arguments: Sequence[str], file: Path | None, placing: Placing, *, replace: bool) -> None:
    """Add sources of the command line, or of a file.

    Raises:
        LookoutError: one of them cannot be used, or is there already; nothing is added.
    """
    if (file is None) == (not arguments):
        raise LookoutError("give sources on the command line, or a file of them with --from: one of both")
    rows: Any = rows_of(arguments) if file is None else load_raw(file).get("sources")
    if not isinstance(rows, list):
        raise ConfigError(f"{file}: has no list `sources`")
    records, warnings = source_records(rows, placing)
    for line in warnings:
        click.echo(printable(line), err=True)
    done = operations.add(fleet.coordinator, records, replace=replace)
    parts = [f"{_sources(done.added)} added"]
    parts += [f"{len(done.replaced)} replaced"] if done.replaced else []
    parts += [f"{done.unchanged} there already"] if done.unchanged else []
    click.echo(", ".join(parts))


def remove(fleet: Fleet, sources: Sequence[str]) -> None:
    operations.remove(fleet.coordinator, sources)
    click.echo(f"{_sources(len(set(sources)))} removed")


def drain(fleet: Fleet, member: str, reason: str, wait_s: float | None, clock: Clock | None = None) -> int:
    """Take all sources from a member; with a time limit, wait until they are elsewhere.

    Returns:
        The exit code.
    """
    before = _sources_of(fleet.coordinator.view(), member)
    waiting = operations.drain(fleet.coordinator, member, reason)
    if waiting:
        click.echo(f"no other member has room for {_sources(len(waiting))}: {printable(listed(waiting))}", err=True)
    if wait_s is None:
        click.echo(f"{printable(member)} is drained")
        return 0
    is_done = _until(fleet.coordinator, lambda view: _is_empty(view, member, before), wait_s, clock or SystemClock())
    if not is_done:
        left = sum(owned.member == member for owned in fleet.coordinator.view().owned.values())
        click.echo(f"{printable(member)} still has {_sources(left)} after {wait_s:g} s", err=True)
        return NOT_IN_TIME
    click.echo(f"{printable(member)} is drained, and has no source any more")
    return 0


def undrain(fleet: Fleet, member: str) -> None:
    operations.undrain(fleet.coordinator, member)
    click.echo(f"{printable(member)} gets sources again")


def move(fleet: Fleet, sources: Sequence[str], member: str, *, pinned: bool) -> None:
    operations.move(fleet.coordinator, sources, member, pinned=pinned)
    click.echo(f"{_sources(len(set(sources)))} moved to {printable(member)}" + (", and pinned there" if pinned else ""))


# --- back-up -------------------------------------------------------------------------------------------------------


def backup(fleet: Fleet, file: Path) -> None:
    """Write sources, drains and pins to a file that its owner alone can read.

    Raises:
        LookoutError: the file cannot be written; an older one stays as it is.
    """
    kept = operations.backup_of(fleet.coordinator.view(), fleet.name)
    content = msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n"
    try:
        _write(file, content)
    except OSError as error:
        raise LookoutError(f"{file} cannot be written: {error.strerror}") from error
    click.echo(f"{_sources(len(kept.sources))}, {len(kept.drained)} drains and {len(kept.pins)} pins: {file}")


def restore(fleet: Fleet, file: Path, *, replace: bool) -> None:
    """Write the content of a back-up to the coordinator.

    Raises:
        LookoutError: the file is not a back-up, or a source is there already with another configuration.
    """
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=Backup)
    except OSError as error:
        raise LookoutError(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise LookoutError(f"{file} is not a back-up of `lookout fleet backup`: {error}") from error
    done = operations.restore(fleet.coordinator, kept, replace=replace)
    added = done.added
    click.echo(f"{_sources(added.added)} restored, {len(added.replaced)} replaced, {added.unchanged} there already")
    if done.lost_pins:
        click.echo(f"their member is not in the fleet: no pin for {printable(listed(done.lost_pins))}", err=True)


def _write(file: Path, content: bytes) -> None:
    """Replace a file at once: it is old or new, never half."""
    number, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # mode 0600
    try:
        with os.fdopen(number, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


# --- waiting -------------------------------------------------------------------------------------------------------


def _sources_of(view: FleetView, member: str) -> set[str]:
    """Sources that a member owns, or is to own."""
    wanted = {id for id, want in view.wants.items() if want.member == member}
    return (wanted | {id for id, owned in view.owned.items() if owned.member == member}) & view.sources.keys()


def _is_empty(view: FleetView, member: str, before: set[str]) -> bool:
    """Whether a member has nothing any more, and each source that it had has another owner, or waits."""
    if _sources_of(view, member):
        return False
    rest = [view.wants.get(id) for id in before & view.sources.keys() if id not in view.owned]
    return all(want is not None and want.member is None for want in rest)


def _until(coordinator: Coordinator, condition: Callable[[FleetView], bool], limit_s: float, clock: Clock) -> bool:
    """Wait until the records meet a condition; returns whether they do in time."""
    until_ns = clock.monotonic_ns() + round(limit_s * 1e9)
    pause = StopToken()
    while not condition(coordinator.view()):
        if clock.monotonic_ns() >= until_ns:
            return False
        clock.wait(pause, _POLL_S)
    return True


def _sources(count: int) -> str:
    return "1 source" if count == 1 else f"{count} sources"
