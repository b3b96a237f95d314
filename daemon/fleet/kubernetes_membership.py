"""A member's claims in Kubernetes, each a change of one object at the version that was read."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from daemon.fleet.kubernetes_client import ConflictError, NotFoundError
from daemon.fleet.kubernetes_names import JOINED, KIND, MEMBERSHIP, RECORD, REFUSED, SEEN
from daemon.fleet.kubernetes_objects import Object
from daemon.fleet.kubernetes_records import WANT, Refusal, State, Timed, epoch_of
from daemon.fleet.kubernetes_renewal import KubernetesRenewal, MemberLease
from daemon.fleet.kubernetes_store import ATTEMPTS, Store
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError
from daemon.fleet.records import FleetView, MemberRecord, StreamFormat, Want

_MANY = 100  # sources that are listed rather than asked for one by one
_MAX_REASON = 500
_MAX_LEFT = 1000
_HOUR_S = 3600.0


class KubernetesMembership:
    """See `port.Membership`."""

    def __init__(self, store: Store, member: str, lease: MemberLease) -> None:
        self._store, self._client, self._names = store, store.client, store.names
        self._member, self._lease = member, lease
        self._renewal = KubernetesRenewal(store.client.settings, lease)
        self._refused: dict[str, Refusal] = {}
        self._lock = threading.Lock()

    @property
    def member(self) -> str:
        return self._member

    @property
    def renewal(self) -> KubernetesRenewal:
        return self._renewal

    def update(self, record: MemberRecord) -> None:
        self._note(RECORD, msgspec.json.encode(record).decode())

    def claim(self, sources: Sequence[str]) -> dict[str, int]:
        self._check()
        epochs = self._client.each(self._claimed, sources)
        return {source: epoch for source, epoch in zip(sources, epochs) if epoch is not None}

    def release(self, sources: Sequence[str]) -> None:
        self._check()
        self._client.each(self._release, sources)

    def refuse(self, reasons: Mapping[str, str | None]) -> None:
        found = self._client.each(self._store.source, [source for source, reason in reasons.items() if reason])
        uids = iter(row.metadata.uid if row else None for row in found)
        with self._lock:
            for source, reason in reasons.items():
                uid = next(uids) if reason else None
                self._refused.pop(source, None)
                if reason and uid:
                    self._refused[source] = Refusal(uid, reason[:_MAX_REASON])
            self._note(REFUSED, msgspec.json.encode(self._refused).decode())

    def saw(self, pictures: Mapping[str, StreamFormat]) -> None:
        self._check()
        self._client.each(self._saw, pictures.items())

    def lead(self) -> bool:
        self._check()
        lease = self._client.get("leases", self._names.placer)
        if lease is not None and self._store.is_held(lease):
            return self._is_mine(lease)
        try:
            new = self._names.meta("placer", "")
            self._store.hold(lease, self._names.placer, new, self._member, self._lease.uid)
        except (ConflictError, NotFoundError):
            return False
        return True

    def place(self, wants: Mapping[str, Want], basis: FleetView) -> int:
        written, rows = 0, list(wants.items())
        for start in range(0, len(rows), _MANY * 10):
            if not self._is_placer():
                break
            batch = rows[start : start + _MANY * 10]
            found = self._found([source for source, _ in batch])
            placeable = [
                (source, want, there)
                for source, want in batch
                if (there := found.get(self._names.source(source))) is not None and there.version <= basis.revision
            ]
            done = self._client.each(
                lambda row: self._store.want(row[0], row[1], row[2].metadata.resource_version), placeable
            )
            written += sum(done)
        return written

    def hold_down(self, member: str, seconds: float) -> None:
        if not self._is_placer():
            return

        def change(state: State) -> State:
            before = state.losses.get(member)
            count = before.count if before and not self._store.ages.has_ended(before) else 0
            loss = Timed(count + 1, _HOUR_S, secrets.token_hex(8))
            held = {member: Timed(count + 1, seconds, secrets.token_hex(8))} if seconds > 0 else {}
            return _with(state, losses={**state.losses, member: loss}, held={**state.held, **held})

        self._store.change_state(change)

    def leave(self) -> None:
        mine = self._client.get("leases", self._lease.name)
        if mine is not None and mine.metadata.uid == self._lease.uid:
            joined = int(mine.note(JOINED) or 0)
            self._store.change_state(lambda state: _with(state, left=_newest({**state.left, self._member: joined})))
            self._store.delete("leases", self._lease.name, self._lease.uid)
        self._renewal.close()

    def _check(self) -> None:
        """Raises LeaseLostError if this membership has ended."""
        mine = self._client.get("leases", self._lease.name)
        if mine is None or mine.metadata.uid != self._lease.uid:
            raise LeaseLostError("the lease of this member has ended")

    def _note(self, name: str, text: str) -> None:
        """Change an annotation of this member's Lease."""
        try:
            self._client.patch(
                "leases", self._lease.name, {"metadata": {"uid": self._lease.uid, "annotations": {name: text}}}
            )
        except CoordinatorAwayError:
            raise
        except CoordinatorError:
            self._check()
            raise

    def _is_mine(self, lease: Object) -> bool:
        return lease.note(MEMBERSHIP) == self._lease.uid

    def _is_placer(self) -> bool:
        self._check()
        lease = self._client.get("leases", self._names.placer)
        return lease is not None and self._is_mine(lease)

    def _claimed(self, source: str) -> int | None:
        """The epoch, if the source is wanted here and was free or is owned by this membership."""
        name = self._names.owner(source)
        for _ in range(ATTEMPTS):
            there = self._store.source(source)
            if there is None or not self._is_wanted(there):
                return None
            owner = self._store.owner(source)
            if owner is not None and self._is_mine(owner):
                return epoch_of(owner)
            if owner is not None and self._store.is_held(owner):
                return None
            try:
                new = self._names.meta("owner", source)
                return self._store.hold(owner, name, new, self._member, self._lease.uid)
            except (ConflictError, NotFoundError):
                continue
        raise CoordinatorAwayError(f"Lease {name}: others write it again and again")

    def _is_wanted(self, source: Object) -> bool:
        try:
            return msgspec.json.decode(source.data.get(WANT, ""), type=Want).member == self._member
        except msgspec.MsgspecError:
            return False

    def _release(self, source: str) -> None:
        for _ in range(ATTEMPTS):
            owner = self._store.owner(source)
            if owner is None or not self._is_mine(owner):
                return
            if self._store.source(source) is None:
                self._store.drop_owner(owner)
                return
            meta = {"resourceVersion": owner.metadata.resource_version, "annotations": {MEMBERSHIP: None}}
            try:
                name = self._names.owner(source)
                self._client.patch("leases", name, {"metadata": meta, "spec": {"holderIdentity": None}})
            except (ConflictError, NotFoundError):
                continue
            return
        raise CoordinatorAwayError(f"Lease {self._names.owner(source)}: others write it again and again")

    def _saw(self, row: tuple[str, StreamFormat]) -> None:
        source, picture = row
        changes = {"metadata": {"annotations": {SEEN: msgspec.json.encode(picture).decode()}}}
        try:
            self._client.patch("configmaps", self._names.source(source), changes)
        except NotFoundError:
            return  # it was removed

    def _found(self, sources: Sequence[str]) -> dict[str, Object]:
        """Sources by the name of their object."""
        if len(sources) > _MANY:
            rows, _ = self._client.listed("configmaps", {**self._names.labels, KIND: "source"})
        else:
            rows = [row for row in self._client.each(self._store.source, sources) if row is not None]
        return {row.metadata.name: row for row in rows}


def _with(state: State, **changes: Any) -> State:
    return msgspec.structs.replace(state, **changes)


def _newest(left: dict[str, int]) -> dict[str, int]:
    return dict(sorted(left.items(), key=lambda row: row[1])[-_MAX_LEFT:])
