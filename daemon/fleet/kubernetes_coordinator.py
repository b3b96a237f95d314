"""The coordinator over Kubernetes: Leases say which members live and who owns a source, ConfigMaps are the sources."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic

import msgspec

from daemon.clock import Clock, SystemClock
from daemon.fleet.kubernetes_client import (
    ConflictError,
    KubernetesClient,
    KubernetesSettings,
    NotFoundError,
)
from daemon.fleet.kubernetes_expiry import Expiry
from daemon.fleet.kubernetes_membership import KubernetesMembership
from daemon.fleet.kubernetes_names import ID, JOINED, KIND, RECORD, Names, micro_time
from daemon.fleet.kubernetes_objects import Object
from daemon.fleet.kubernetes_records import SOURCE, KubernetesRecords, State
from daemon.fleet.kubernetes_renewal import MemberLease
from daemon.fleet.kubernetes_store import Store, written
from daemon.fleet.kubernetes_watches import Change, Watches
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, NameTakenError
from daemon.fleet.records import FleetView, MemberRecord, SourceRecord, Want
from daemon.system.stop_token import StopToken

_SLICE_S = 0.2  # so long a follower waits before it looks at `stop`
_QUIET_S, _MAX_GATHER_S = 0.03, 0.25  # changes that come so close together are one view, for so long
_NONCE = "lookout/nonce"


class KubernetesCoordinator:
    """See `port.Coordinator`.

    Followers delete the Leases of members that are not renewed any more: Kubernetes deletes none by itself.

    Raises:
        CoordinatorError: the certificate of the CA cannot be used.
    """

    def __init__(self, settings: KubernetesSettings, fleet: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._client = KubernetesClient(settings)
        self._names = Names(fleet)
        self._store = Store(self._client, self._names, self._clock)
        self._expiry = Expiry(self._clock)

    def view(self) -> FleetView:
        records = KubernetesRecords(self._store.ages)
        self._list(records)
        return records.view()

    def follow(self, stop: StopToken) -> Iterator[FleetView]:
        while not stop.is_set:
            records = KubernetesRecords(self._store.ages)
            leases, configmaps = self._list(records)
            yield records.view()
            yield from self._changes(records, leases, configmaps, stop)

    def join(self, member: str, record: MemberRecord, ttl_s: float) -> KubernetesMembership:
        name = self._names.member(member)
        if (present := self._client.get("leases", name)) is not None:
            self._replace(present, member)
        now_ms, seconds, nonce = self._store.now_ms(), math.ceil(ttl_s), secrets.token_hex(8)
        state = self._store.change_state(lambda state: _with_joined(state, max(state.joined + 1, now_ms)))
        notes = {JOINED: str(state.joined), RECORD: msgspec.json.encode(record).decode(), _NONCE: nonce}
        renewed = micro_time(self._clock.utc_ns())
        spec = {"holderIdentity": member, "leaseDurationSeconds": seconds, "renewTime": renewed}
        try:
            made = self._client.create(
                "leases", name, {"metadata": self._names.meta("member", member, **notes), "spec": spec}
            )
        except ConflictError:
            found = self._client.get("leases", name)
            if found is None or found.note(_NONCE) != nonce:  # else the answer to the first try was lost
                raise _taken(member, seconds) from None
            made = found
        return KubernetesMembership(self._store, member, MemberLease(name, made.metadata.uid, seconds))

    def put_sources(self, sources: Mapping[str, SourceRecord], *, replace: bool) -> list[str]:
        there = self._client.each(lambda row: self._put(row[0], row[1], replace), sources.items())
        return [source for source, was_there in zip(sources, there) if was_there]

    def remove_sources(self, sources: Sequence[str]) -> list[str]:
        there = self._client.each(self._remove, sources)
        return [source for source, was_there in zip(sources, there) if was_there]

    def drain(self, member: str, reason: str) -> None:
        self._store.change_state(
            lambda state: msgspec.structs.replace(state, drained={**state.drained, member: reason})
        )

    def undrain(self, member: str) -> None:
        def change(state: State) -> State:
            drained = {name: reason for name, reason in state.drained.items() if name != member}
            return msgspec.structs.replace(state, drained=drained)

        self._store.change_state(change)

    def move(self, sources: Sequence[str], member: str, *, pinned: bool = True) -> None:
        if self._client.get("leases", self._names.member(member)) is None:
            raise CoordinatorError(f"no member {member} is in the fleet: `lookout fleet status` lists them")
        want = Want(member=member, reason="moved by an operator", pinned=pinned)
        there = self._client.each(lambda source: self._store.want(source, want), sources)
        if missing := [source for source, was_there in zip(sources, there) if not was_there]:
            raise CoordinatorError(f"not in the fleet, and not moved: {', '.join(missing)}")

    def close(self) -> None:
        self._client.close()

    def _list(self, records: KubernetesRecords) -> tuple[int, int]:
        """Read all; returns the versions of Leases and ConfigMaps. The newer ones are the Leases."""
        configmaps, of_configmaps = self._client.listed("configmaps", self._names.labels)
        leases, of_leases = self._client.listed("leases", self._names.labels)
        records.replace("configmaps", configmaps, of_configmaps)
        records.replace("leases", leases, of_leases)
        members = [lease for lease in leases if _is_member(lease)]
        self._expiry.keep(lease.metadata.name for lease in members)
        for lease in members:
            self._expiry.observe(lease)
        return of_leases, of_configmaps

    def _changes(
        self, records: KubernetesRecords, leases: int, configmaps: int, stop: StopToken
    ) -> Iterator[FleetView]:
        """Views after changes; ends where all must be listed anew."""
        watches = Watches(self._client, self._names.labels, {"leases": leases, "configmaps": configmaps})
        try:
            while not stop.is_set:
                changes = watches.changes(_SLICE_S)
                until = monotonic() + _MAX_GATHER_S
                while changes and monotonic() < until and (more := watches.changes(_QUIET_S)):
                    changes += more
                self._end_overdue()
                changed = sum(self._apply(records, change) for change in changes)
                if changed or records.has_aged():
                    yield records.view()
                if watches.must_list:
                    return
        finally:
            watches.close()

    def _apply(self, records: KubernetesRecords, change: Change) -> bool:
        found = change.event.object
        if change.kind == "leases" and _is_member(found):
            if change.event.type == "DELETED":
                self._expiry.forget(found.metadata.name)
            else:
                self._expiry.observe(found)
        return records.apply(change.kind, change.event)

    def _end_overdue(self) -> None:
        """Delete Leases that were not renewed, unless they have changed since: then the member lives."""
        for lease in self._expiry.overdue():
            with suppress(CoordinatorError):  # a reader may not delete; and a watch says that the server is away
                self._end(lease)

    def _end(self, lease: Object) -> bool:
        meta = lease.metadata
        return self._store.delete("leases", meta.name, meta.uid, meta.resource_version)

    def _replace(self, present: Object, member: str) -> None:
        """Delete the Lease of a member that has died, once it was seen for its time and was not renewed."""
        if not (self._expiry.is_overdue(present) and self._end(present)):
            raise _taken(member, present.spec.lease_duration_seconds or 0)

    def _put(self, source: str, record: SourceRecord, replace: bool) -> bool:
        """Returns whether it was there."""
        name, data = self._names.source(source), {SOURCE: msgspec.json.encode(record).decode()}
        for _ in range(3):
            if replace:
                try:
                    self._client.patch("configmaps", name, {"metadata": {"annotations": written()}, "data": data})
                except NotFoundError:
                    """It is new."""
                else:
                    return True
            try:
                self._client.create("configmaps", name, {"metadata": self._names.meta("source", source), "data": data})
            except ConflictError:
                if not replace:
                    return True
            else:
                return False
        raise CoordinatorAwayError(f"ConfigMap {name}: others write it again and again")

    def _remove(self, source: str) -> bool:
        there = self._store.source(source)
        if there is None or not self._store.delete("configmaps", there.metadata.name, there.metadata.uid):
            return False
        owner = self._store.owner(source)
        if owner is not None and not self._store.is_held(owner):
            self._store.drop_owner(owner)
        return True


def _is_member(lease: Object) -> bool:
    return lease.metadata.labels.get(KIND) == "member" and bool(lease.note(ID))


def _with_joined(state: State, joined: int) -> State:
    return msgspec.structs.replace(state, joined=joined)


def _taken(member: str, seconds: int) -> NameTakenError:
    return NameTakenError(
        f"a member {member} is in the fleet already: give each process a name of its own in fleet.member; "
        f"if it has just ended, its lease ends within {seconds} s"
    )
