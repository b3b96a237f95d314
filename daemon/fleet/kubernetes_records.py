"""All records of a fleet as Kubernetes has them, decoded once each, and views of them.

A source is a ConfigMap, with where it is wanted. A Lease says that a member lives, and has its record. Another Lease
says which membership owns a source; it means nothing once that membership's Lease is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from daemon.clock import Clock
from daemon.fleet.kubernetes_client import Kind
from daemon.fleet.kubernetes_names import EPOCH, ID, JOINED, KIND, MEMBERSHIP, RECORD, REFUSED, SEEN
from daemon.fleet.kubernetes_objects import Event, Object, number
from daemon.fleet.records import FleetView, HoldDown, MemberRecord, Owned, SourceRecord, StreamFormat, Want

SOURCE, WANT, STATE = "source", "want", "state"  # keys of a ConfigMap's data


class Timed(msgspec.Struct, frozen=True):
    """A count that ends.

    Attributes:
        mark: another one for each time that it is written.
    """

    count: int
    seconds: float
    mark: str


class State(msgspec.Struct, frozen=True):
    """Facts about members that may be gone: a ConfigMap of the fleet.

    Attributes:
        joined: the last number that was given to a membership.
    """

    joined: int = 0
    drained: dict[str, str] = {}
    losses: dict[str, Timed] = {}
    held: dict[str, Timed] = {}
    left: dict[str, int] = {}


class Refusal(msgspec.Struct, frozen=True):
    """Attributes:
    uid: of the source that was refused; one that is added anew has another.
    """

    uid: str
    reason: str


class Ages:
    """How long this process has known of a record: clocks of machines are not compared."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[str, int] = {}

    def has_ended(self, timed: Timed) -> bool:
        now = self._clock.monotonic_ns()
        return now - self._first.setdefault(timed.mark, now) >= timed.seconds * 1e9

    def forget(self, marks: Iterable[str]) -> None:
        """Keep these alone."""
        kept = {*marks}
        self._first = {mark: first for mark, first in self._first.items() if mark in kept}


@dataclass(frozen=True)
class _Source:
    id: str
    uid: str
    record: SourceRecord
    want: Want | None
    seen: StreamFormat | None


@dataclass(frozen=True)
class _Joined:
    id: str
    uid: str
    joined: int
    record: MemberRecord | None
    refused: Mapping[str, Refusal]


@dataclass(frozen=True)
class _Owner:
    id: str
    member: str
    membership: str
    epoch: int


@dataclass
class _Rows:
    """By the object's name."""

    source: dict[str, _Source] = field(default_factory=dict)
    member: dict[str, _Joined] = field(default_factory=dict)
    owner: dict[str, _Owner] = field(default_factory=dict)
    placer: dict[str, _Owner] = field(default_factory=dict)
    state: dict[str, State] = field(default_factory=dict)

    def of(self, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self, kind)
        return found


class KubernetesRecords:
    """One thread uses it. Views are not changed afterwards."""

    def __init__(self, ages: Ages) -> None:
        self._ages = ages
        self._rows = _Rows()
        self._problems: dict[str, str] = {}
        self._ended: frozenset[str] = frozenset()  # marks, as of the last view
        self.revision = 0

    def replace(self, kind: Kind, objects: Iterable[Object], version: int) -> None:
        for section in ("source", "state") if kind == "configmaps" else ("member", "owner", "placer"):
            self._rows.of(section).clear()
        for found in objects:
            self._put(found)
        self._advance(kind, version)

    def apply(self, kind: Kind, event: Event) -> bool:
        """Returns whether a view changes: a renewal alone does not."""
        self._advance(kind, event.object.version)
        if event.type == "BOOKMARK":
            return False
        if event.type == "DELETED":
            return self._delete(event.object)
        return self._put(event.object)

    def has_aged(self) -> bool:
        """Whether a view changes because time has passed."""
        return self._now_ended() != self._ended

    def view(self) -> FleetView:
        rows = self._rows
        members = {row.id: row for row in rows.member.values() if row.record is not None}
        alive = {row.uid for row in rows.member.values()}
        sources = {row.id: row for row in rows.source.values()}
        state, self._ended = self._state(), self._now_ended()
        placers = [row.member for row in rows.placer.values() if row.membership in alive]
        return FleetView(
            revision=self.revision,
            members={id: row.record for id, row in members.items() if row.record is not None},
            joined={id: row.joined for id, row in members.items()},
            drained=state.drained,
            sources={id: row.record for id, row in sources.items()},
            wants={id: row.want for id, row in sources.items() if row.want is not None},
            owned={row.id: Owned(row.member, row.epoch) for row in rows.owner.values() if row.membership in alive},
            refused=_refused(members.values(), sources),
            seen={id: row.seen for id, row in sources.items() if row.seen is not None},
            losses={id: timed.count for id, timed in state.losses.items() if timed.mark not in self._ended},
            held={id: HoldDown(losses=row.count) for id, row in state.held.items() if row.mark not in self._ended},
            placer=placers[0] if placers else None,
            problems=dict(self._problems),
            left=state.left,
        )

    def _advance(self, kind: Kind, version: int) -> None:
        if kind == "configmaps":  # whose versions say whether a want or a source has changed
            self.revision = max(self.revision, version)

    def _put(self, found: Object) -> bool:
        name, kind = found.metadata.name, found.metadata.labels.get(KIND, "")
        if kind not in _MAKERS:  # of a newer release
            return False
        rows, before = self._rows.of(kind), dict(self._problems)
        self._problems.pop(name, None)
        try:
            row = _MAKERS[kind](found)
        except msgspec.MsgspecError as error:
            self._problems[name] = f"cannot be read: {error}"
            row = _Joined(found.note(ID), found.metadata.uid, 0, None, {}) if kind == "member" else None
        changed = rows.get(name) != row or before != self._problems
        if row is None:
            rows.pop(name, None)
        else:
            rows[name] = row
        return changed

    def _delete(self, found: Object) -> bool:
        name, kind = found.metadata.name, found.metadata.labels.get(KIND, "")
        self._problems.pop(name, None)
        return kind in _MAKERS and self._rows.of(kind).pop(name, None) is not None

    def _state(self) -> State:
        return next(iter(self._rows.state.values()), State())

    def _now_ended(self) -> frozenset[str]:
        state = self._state()
        every = [*state.losses.values(), *state.held.values()]
        self._ages.forget(timed.mark for timed in every)
        return frozenset(timed.mark for timed in every if self._ages.has_ended(timed))


def epoch_of(owner: Object | None) -> int:
    return number(owner.note(EPOCH)) if owner else 0


def _refused(members: Iterable[_Joined], sources: Mapping[str, _Source]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for member in members:
        for source, refusal in member.refused.items():
            if source in sources and sources[source].uid == refusal.uid:
                found.setdefault(source, {})[member.id] = refusal.reason
    return found


def _source(found: Object) -> _Source:
    want, seen = found.data.get(WANT), found.note(SEEN)
    return _Source(
        found.note(ID),
        found.metadata.uid,
        msgspec.json.decode(found.data.get(SOURCE, ""), type=SourceRecord),
        msgspec.json.decode(want, type=Want) if want else None,
        msgspec.json.decode(seen, type=StreamFormat) if seen else None,
    )


def _member(found: Object) -> _Joined:
    record = msgspec.json.decode(found.note(RECORD), type=MemberRecord)
    refused = msgspec.json.decode(found.note(REFUSED) or "{}", type=dict[str, Refusal])
    return _Joined(found.note(ID), found.metadata.uid, number(found.note(JOINED)), record, refused)


def _owner(found: Object) -> _Owner:
    return _Owner(found.note(ID), found.spec.holder_identity or "", found.note(MEMBERSHIP), epoch_of(found))


def state_of(found: Object) -> State:
    return msgspec.json.decode(found.data.get(STATE, "{}"), type=State)


_MAKERS: dict[str, Callable[[Object], Any]] = {
    "source": _source,
    "member": _member,
    "owner": _owner,
    "placer": _owner,
    "state": state_of,
}
