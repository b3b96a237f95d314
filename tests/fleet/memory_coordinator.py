"""A coordinator in memory, for tests of what uses one: it passes the contract, and its clock is advanced."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError, NameTakenError
from daemon.fleet.records import FleetView, HoldDown, MemberRecord, Owned, SourceRecord, StreamFormat, Want
from daemon.system.stop_token import StopToken
from tests.support.clock import ManualClock

_SLICE_S = 0.05
_HOUR_S = 3600.0


@dataclass
class Lease:
    """Attributes:
    ends_ns: by the clock.
    """

    member: str
    ttl_s: float
    ends_ns: int
    joined: int


@dataclass
class Timed:
    """A count that ends."""

    count: int
    ends_ns: int


@dataclass
class Content:
    """All records. `changed` has the revisions of wants and sources."""

    members: dict[str, tuple[MemberRecord, Lease]] = field(default_factory=dict)
    drained: dict[str, str] = field(default_factory=dict)
    sources: dict[str, SourceRecord] = field(default_factory=dict)
    wants: dict[str, Want] = field(default_factory=dict)
    owned: dict[str, tuple[Owned, Lease]] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    seen: dict[str, StreamFormat] = field(default_factory=dict)
    losses: dict[str, Timed] = field(default_factory=dict)
    held: dict[str, Timed] = field(default_factory=dict)
    left: dict[str, Timed] = field(default_factory=dict)
    placer: Lease | None = None
    changed: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))


class MemoryEngine:
    """What coordinators of one fleet share.

    Attributes:
        away: every call raises CoordinatorAwayError; leases end nevertheless only when time is advanced.
    """

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.away = False
        self.changes = threading.Condition(threading.RLock())
        self.revision = 1
        self.content = Content()

    def advance(self, seconds: float) -> None:
        """Let time pass; leases that were not renewed end."""
        with self.changes:
            self.clock.advance(seconds)
            self.expire()

    def expire(self) -> None:
        now, content = self.clock.monotonic_ns(), self.content
        for _, lease in [*content.members.values()]:
            if lease.ends_ns <= now:
                self.end(lease)
        for counts in (content.losses, content.held, content.left):
            for name in [name for name, timed in counts.items() if timed.ends_ns <= now]:
                del counts[name]
                self.touch()

    def end(self, lease: Lease) -> None:
        content = self.content
        if self.is_alive(lease):
            del content.members[lease.member]
        for source in [source for source, (_, owner) in content.owned.items() if owner is lease]:
            del content.owned[source]
        for key in [key for key in content.refused if key[1] == lease.member]:
            del content.refused[key]
        if content.placer is lease:
            content.placer = None
        self.touch()

    def is_alive(self, lease: Lease) -> bool:
        return self.content.members.get(lease.member, (None, None))[1] is lease

    def touch(self) -> int:
        self.revision += 1
        self.changes.notify_all()
        return self.revision

    def check(self) -> None:
        if self.away:
            raise CoordinatorAwayError("the coordinator does not answer")
        self.expire()

    def view(self) -> FleetView:
        content = self.content
        refused: dict[str, dict[str, str]] = {}
        for (source, member), reason in content.refused.items():
            refused.setdefault(source, {})[member] = reason
        return FleetView(
            revision=self.revision,
            members={name: record for name, (record, _) in content.members.items()},
            joined={name: lease.joined for name, (_, lease) in content.members.items()},
            drained=dict(content.drained),
            sources=dict(content.sources),
            wants=dict(content.wants),
            owned={source: owned for source, (owned, _) in content.owned.items()},
            refused=refused,
            seen=dict(content.seen),
            losses={name: timed.count for name, timed in content.losses.items()},
            held={name: HoldDown(losses=timed.count) for name, timed in content.held.items()},
            placer=content.placer.member if content.placer else None,
            problems={},
            left={name: timed.count for name, timed in content.left.items()},
        )


class MemoryRenewal:
    """See `port.Renewal`."""

    def __init__(self, engine: MemoryEngine, lease: Lease) -> None:
        self._engine, self._lease = engine, lease

    def renew(self) -> float:
        with self._engine.changes:
            self._engine.check()
            if not self._engine.is_alive(self._lease):
                raise LeaseLostError("the lease has ended")
            self._lease.ends_ns = self._engine.clock.monotonic_ns() + round(self._lease.ttl_s * 1e9)
            return self._lease.ttl_s

    def revoke(self) -> None:
        with self._engine.changes:
            if not self._engine.away:
                self._engine.end(self._lease)

    def close(self) -> None:
        pass


class MemoryMembership:
    """See `port.Membership`."""

    def __init__(self, engine: MemoryEngine, lease: Lease) -> None:
        self._engine, self._lease = engine, lease
        self._renewal = MemoryRenewal(engine, lease)

    @property
    def member(self) -> str:
        return self._lease.member

    @property
    def renewal(self) -> MemoryRenewal:
        return self._renewal

    def update(self, record: MemberRecord) -> None:
        with self._engine.changes:
            self._checked().members[self.member] = (record, self._lease)
            self._engine.touch()

    def claim(self, sources: Sequence[str]) -> dict[str, int]:
        claimed = {}
        with self._engine.changes:
            content = self._checked()
            for source in sources:
                want, owner = content.wants.get(source), content.owned.get(source)
                if want is None or want.member != self.member:
                    continue
                if owner is None:
                    owner = (Owned(self.member, self._engine.touch()), self._lease)
                    content.owned[source] = owner
                if owner[1] is self._lease:
                    claimed[source] = owner[0].epoch
        return claimed

    def release(self, sources: Sequence[str]) -> None:
        with self._engine.changes:
            owned = self._checked().owned
            for source in [source for source in sources if source in owned and owned[source][1] is self._lease]:
                del owned[source]
                self._engine.touch()

    def refuse(self, reasons: Mapping[str, str | None]) -> None:
        with self._engine.changes:
            content = self._checked()
            for source, reason in reasons.items():
                if reason is None:
                    content.refused.pop((source, self.member), None)
                elif source in content.sources:
                    content.refused[source, self.member] = reason
            self._engine.touch()

    def saw(self, pictures: Mapping[str, StreamFormat]) -> None:
        with self._engine.changes:
            content = self._checked()
            content.seen |= {source: seen for source, seen in pictures.items() if source in content.sources}
            self._engine.touch()

    def lead(self) -> bool:
        with self._engine.changes:
            content = self._checked()
            if content.placer is None:
                content.placer = self._lease
                self._engine.touch()
            return content.placer is self._lease

    def place(self, wants: Mapping[str, Want], basis: FleetView) -> int:
        written = 0
        with self._engine.changes:
            content = self._checked()
            for source, want in wants.items():
                changed = max(content.changed["wants", source], content.changed["sources", source])
                if content.placer is self._lease and source in content.sources and changed <= basis.revision:
                    content.wants[source] = want
                    content.changed["wants", source] = self._engine.touch()
                    written += 1
        return written

    def hold_down(self, member: str, seconds: float) -> None:
        with self._engine.changes:
            content, now = self._checked(), self._engine.clock.monotonic_ns()
            if content.placer is not self._lease:
                return
            count = content.losses[member].count + 1 if member in content.losses else 1
            content.losses[member] = Timed(count, now + round(_HOUR_S * 1e9))
            if seconds > 0:
                content.held[member] = Timed(count, now + round(seconds * 1e9))
            self._engine.touch()

    def leave(self) -> None:
        with self._engine.changes:
            self._engine.check()
            if self._engine.is_alive(self._lease):
                ends = self._engine.clock.monotonic_ns() + round(_HOUR_S * 1e9)
                self._engine.content.left[self.member] = Timed(self._lease.joined, ends)
            self._engine.end(self._lease)

    def _checked(self) -> Content:
        self._engine.check()
        if not self._engine.is_alive(self._lease):
            raise LeaseLostError("the lease of this member has ended")
        return self._engine.content


class MemoryCoordinator:
    """See `port.Coordinator`; several of one engine are several connections."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    def view(self) -> FleetView:
        with self._engine.changes:
            self._engine.check()
            return self._engine.view()

    def follow(self, stop: StopToken) -> Iterator[FleetView]:
        shown = 0
        while not stop.is_set:
            with self._engine.changes:
                self._engine.check()
                if self._engine.revision == shown:
                    self._engine.changes.wait(_SLICE_S)
                    continue
                view = self._engine.view()
            shown = view.revision
            yield view

    def join(self, member: str, record: MemberRecord, ttl_s: float) -> MemoryMembership:
        with self._engine.changes:
            self._engine.check()
            if member in self._engine.content.members:
                raise NameTakenError(f"a member {member} is in the fleet already")
            ends = self._engine.clock.monotonic_ns() + round(ttl_s * 1e9)
            lease = Lease(member, ttl_s, ends, self._engine.touch())
            self._engine.content.members[member] = (record, lease)
            return MemoryMembership(self._engine, lease)

    def put_sources(self, sources: Mapping[str, SourceRecord], *, replace: bool) -> list[str]:
        with self._engine.changes:
            self._engine.check()
            content = self._engine.content
            there = [source for source in sources if source in content.sources]
            for source, record in sources.items():
                if replace or source not in there:
                    content.sources[source] = record
                    content.changed["sources", source] = self._engine.touch()
            return there

    def remove_sources(self, sources: Sequence[str]) -> list[str]:
        with self._engine.changes:
            self._engine.check()
            content = self._engine.content
            there = [source for source in sources if source in content.sources]
            for source in there:
                del content.sources[source]
                content.wants.pop(source, None)
                content.seen.pop(source, None)
                for key in [key for key in content.refused if key[0] == source]:
                    del content.refused[key]
                self._engine.touch()
            return there

    def drain(self, member: str, reason: str) -> None:
        with self._engine.changes:
            self._engine.check()
            self._engine.content.drained[member] = reason
            self._engine.touch()

    def undrain(self, member: str) -> None:
        with self._engine.changes:
            self._engine.check()
            self._engine.content.drained.pop(member, None)
            self._engine.touch()

    def move(self, sources: Sequence[str], member: str, *, pinned: bool = True) -> None:
        with self._engine.changes:
            self._engine.check()
            content = self._engine.content
            if member not in content.members:
                raise CoordinatorError(f"no member {member} is in the fleet")
            missing = [source for source in sources if source not in content.sources]
            for source in [source for source in sources if source not in missing]:
                content.wants[source] = Want(member=member, reason="moved by an operator", pinned=pinned)
                content.changed["wants", source] = self._engine.touch()
            if missing:
                raise CoordinatorError(f"not in the fleet, and not moved: {', '.join(missing)}")

    def close(self) -> None:
        pass
