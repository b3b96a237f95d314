"""Commands of operators, for the command line and for HTTP: checked against the records first, then written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from daemon.errors import LookoutError
from daemon.fleet.placement import place
from daemon.fleet.port import Coordinator
from daemon.fleet.rebalance import Rebalance, rebalance
from daemon.fleet.records import FleetView, SourceRecord, Want

_MAX_NAMES = 10


class UnknownError(LookoutError):
    """The fleet has no such member, or no such source."""


class ConflictError(LookoutError):
    """The fleet's present state does not allow it."""


@dataclass(frozen=True)
class Added:
    """Attributes:
    added, unchanged: numbers of sources.
    replaced: ids of sources that were there with another configuration.
    """

    added: int
    unchanged: int
    replaced: Sequence[str]


def add(coordinator: Coordinator, sources: Mapping[str, SourceRecord], *, replace: bool) -> Added:
    """Write sources.

    Raises:
        ConflictError: a source is there already with another configuration, and `replace` is not set.
    """
    there = coordinator.view().sources
    changed = sorted(id for id, record in sources.items() if id in there and there[id] != record)
    if changed and not replace:
        raise ConflictError(f"in the fleet already, with another configuration: {listed(changed)}; --replace writes it")
    cases = {id.lower(): id for id in there}
    for id in sources:
        if cases.get(id.lower(), id) != id:
            raise ConflictError(f"{id!r} and {cases[id.lower()]!r}, which is in the fleet, differ in their case alone")
    wanted = {id: record for id, record in sources.items() if there.get(id) != record}
    coordinator.put_sources(wanted, replace=replace)
    return Added(len(wanted) - len(changed), len(sources) - len(wanted), changed)


def remove(coordinator: Coordinator, sources: Sequence[str]) -> None:
    """Raises:
    UnknownError: nothing is removed.
    """
    check_sources(coordinator.view(), sources)
    coordinator.remove_sources(sources)


def drain(coordinator: Coordinator, member: str, reason: str) -> list[str]:
    """Take all sources from a member; it gets none until `undrain`.

    Returns:
        Sources that no other member has room for: they wait.
    """
    view = coordinator.view()
    check_member(view, member, may_be_gone=True)
    its_own = {id for id, want in view.wants.items() if want.member == member}
    wants = place(replace(view, drained={**view.drained, member: reason}))
    coordinator.drain(member, reason)
    return sorted(id for id in its_own if id in wants and wants[id].member is None)


def undrain(coordinator: Coordinator, member: str) -> None:
    """Let a member have sources again."""
    view = coordinator.view()
    if member not in view.drained:
        check_member(view, member, may_be_gone=True)
        raise ConflictError(f"{member} is not drained")
    coordinator.undrain(member)


def move(coordinator: Coordinator, sources: Sequence[str], member: str, *, pinned: bool = True) -> None:
    """Move sources to a member.

    Args:
        pinned: they stay there while they can.

    Raises:
        UnknownError, ConflictError: the member cannot have one of them, with the reason; nothing is moved.
    """
    view = coordinator.view()
    check_sources(view, sources)
    check_member(view, member)
    asked = {id: Want(member=member, pinned=pinned) for id in sources}
    found = place(replace(view, wants={**view.wants, **asked}))
    for id in sources:
        if id in found:
            raise ConflictError(f"{id} cannot be moved to {member}: {found[id].reason}")
    coordinator.move(sources, member, pinned=pinned)


def rebalanced(coordinator: Coordinator, *, dry_run: bool) -> Rebalance:
    """Compute a better placement, and put it into effect unless it is a dry run."""
    found = rebalance(coordinator.view())
    if not dry_run:
        by_member: dict[str, list[str]] = {}
        for row in found.moves:
            by_member.setdefault(row.after, []).append(row.source)
        for member, sources in sorted(by_member.items()):
            coordinator.move(sources, member, pinned=False)
    return found


# --- back-up -------------------------------------------------------------------------------------------------------


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """Records that operators have written. Claims and places are not part of it.

    Attributes:
        pins: the member of each pinned source.
    """

    fleet: str
    sources: dict[str, SourceRecord]
    drained: dict[str, str] = {}
    pins: dict[str, str] = {}
    about: str = "written by `lookout fleet backup`"


@dataclass(frozen=True)
class Restored:
    """Attributes:
    lost_pins: sources whose member is not in the fleet now.
    """

    added: Added
    lost_pins: Sequence[str]


def backup_of(view: FleetView, fleet: str) -> Backup:
    """The records to keep; ${NAME} stays as it is written."""
    pins = {id: want.member for id, want in view.wants.items() if want.pinned and want.member and id in view.sources}
    return Backup(fleet=fleet, sources=dict(view.sources), drained=dict(view.drained), pins=pins)


def restore(coordinator: Coordinator, backup: Backup, *, replace: bool) -> Restored:
    """Write sources, drains and pins again. Sources that are not in the back-up stay.

    Raises:
        ConflictError: as `add`.
    """
    added = add(coordinator, backup.sources, replace=replace)
    for member, reason in backup.drained.items():
        coordinator.drain(member, reason)
    members = coordinator.view().members
    by_member: dict[str, list[str]] = {}
    for id, member in backup.pins.items():
        if member in members:
            by_member.setdefault(member, []).append(id)
    for member, sources in by_member.items():
        coordinator.move(sources, member)
    return Restored(added, sorted(id for id, member in backup.pins.items() if member not in members))


# --- checks --------------------------------------------------------------------------------------------------------


def check_sources(view: FleetView, sources: Iterable[str]) -> None:
    """Raises:
    UnknownError: the fleet has not all of them.
    """
    if unknown := sorted(set(sources) - view.sources.keys()):
        raise UnknownError(f"not a source of the fleet: {listed(unknown)}")


def check_member(view: FleetView, member: str, *, may_be_gone: bool = False) -> None:
    """Raises:
    UnknownError: it is not in the fleet.
    """
    known = {*view.members, *view.drained, *view.losses} if may_be_gone else {*view.members}
    if may_be_gone:
        known |= {want.member for want in view.wants.values() if want.member}
    if member not in known:
        others = f"the members are {listed(sorted(view.members))}" if view.members else "it has no member now"
        raise UnknownError(f"{member} is not a member of the fleet: {others}")


def listed(names: Sequence[str]) -> str:
    """Names for a line of text."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
