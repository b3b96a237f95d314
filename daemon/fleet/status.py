"""The state of a fleet for operators: the command line, HTTP, the page and Prometheus show the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

import msgspec

from daemon.fleet.demand import RESOURCES, Floats
from daemon.fleet.placement import loads
from daemon.fleet.reasons import DISABLED
from daemon.fleet.records import FleetView

RowState = Literal["starting", "ready", "leaving", "drained", "gone"]
SourceState = Literal["owned", "claiming", "moving", "waiting", "disabled"]


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the fleet.

    Attributes:
        state: `gone` for one that is away, and was lost within the last hour, or that sources or a drain name.
        reason: why it is drained, or overloaded.
        owned, wanted: numbers of sources.
        usage: shares of its resources that the sources wanted there take, by resource.
        held_down: it gets only what no other member can take, because it was lost too often.
        losses: within the last hour.
    """

    name: str
    state: RowState
    reason: str = ""
    release: str = ""
    labels: dict[str, str] = {}
    owned: int = 0
    wanted: int = 0
    usage: dict[str, float] = {}
    held_down: bool = False
    losses: int = 0
    http: str | None = None
    messages: str | None = None


class SourceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A source of the fleet.

    Attributes:
        member: the one that is to own it, None if it waits.
        owner: the one that owns it now.
        epoch: of the owner.
        reason: why it waits, or why it was placed there.
    """

    id: str
    state: SourceState
    member: str | None = None
    owner: str | None = None
    epoch: int | None = None
    reason: str = ""
    pinned: bool = False
    priority: int = 0
    affinity: dict[str, str] = {}


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes:
    unplaced: number of sources that wait.
    problems: records that cannot be read, and why.
    """

    name: str
    placer: str | None
    unplaced: int
    members: list[MemberRow]
    sources: list[SourceRow]
    problems: dict[str, str] = {}


def status_of(view: FleetView, name: str) -> FleetStatus:
    """A fleet as operators see it. It holds no configuration of a source, and so no credentials."""
    sources = [_source(view, id) for id in sorted(view.sources)]
    return FleetStatus(
        name=name,
        placer=view.placer,
        unplaced=sum(row.state == "waiting" for row in sources),
        members=_members(view),
        sources=sources,
        problems=dict(view.problems),
    )


def _source(view: FleetView, id: str) -> SourceRow:
    record, want, owned = view.sources[id], view.wants.get(id), view.owned.get(id)
    owner = owned.member if owned else None
    return SourceRow(
        id=id,
        state=_state(view, id, owner),
        member=want.member if want else None,
        owner=owner,
        epoch=owned.epoch if owned else None,
        reason=want.reason if want else "no placer has placed it yet",
        pinned=want.pinned if want else False,
        priority=record.priority,
        affinity=record.affinity,
    )


def _state(view: FleetView, id: str, owner: str | None) -> SourceState:
    want = view.wants.get(id)
    if want is None or want.member is None:
        return "disabled" if want is not None and want.reason == DISABLED else "waiting"
    if owner is None:
        return "claiming"
    return "owned" if owner == want.member else "moving"


def _members(view: FleetView) -> list[MemberRow]:
    usage = loads(view)
    owned = Counter(row.member for row in view.owned.values())
    wanted = Counter(view.wants[id].member for id in view.sources if id in view.wants)
    named = {name for name in wanted if name is not None}
    names = sorted({*view.members, *view.drained, *view.losses, *named})
    return [_member(view, name, usage, owned[name], wanted[name]) for name in names]


def _member(view: FleetView, name: str, usage: Mapping[str, Floats], owned: int, wanted: int) -> MemberRow:
    record, drained = view.members.get(name), view.drained.get(name)
    row = MemberRow(
        name=name,
        state="gone",
        reason=drained or "",
        owned=owned,
        wanted=wanted,
        held_down=name in view.held,
        losses=view.losses.get(name, 0),
    )
    if record is None:
        return row
    return msgspec.structs.replace(
        row,
        state="drained" if drained is not None else record.state,
        reason=drained if drained is not None else record.overloaded or "",
        release=record.release,
        labels=record.labels,
        usage={resource: round(float(share), 4) for resource, share in zip(RESOURCES, usage[name]) if share > 0},
        http=record.endpoints.http,
        messages=record.endpoints.messages,
    )
