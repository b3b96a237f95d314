"""The fleet's objects in Kubernetes, and safe changes of them: the coordinator and a membership share them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from daemon.clock import Clock
from daemon.fleet.kubernetes_client import ConflictError, Kind, KubernetesClient, NotFoundError
from daemon.fleet.kubernetes_names import EPOCH, MEMBERSHIP, WRITTEN, Names, micro_time
from daemon.fleet.kubernetes_objects import Object
from daemon.fleet.kubernetes_records import STATE, WANT, Ages, State, epoch_of, state_of
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError
from daemon.fleet.records import Want

ATTEMPTS = 10


class Store:
    """Attributes:
    ages: of records that end.
    """

    def __init__(self, client: KubernetesClient, names: Names, clock: Clock) -> None:
        self.client, self.names, self.clock = client, names, clock
        self.ages = Ages(clock)
        self._ended: set[str] = set()  # memberships that are known to have ended, which no one begins again

    def source(self, source: str) -> Object | None:
        return self.client.get("configmaps", self.names.source(source))

    def owner(self, source: str) -> Object | None:
        return self.client.get("leases", self.names.owner(source))

    def is_held(self, lease: Object) -> bool:
        """Whether the membership that holds an owner's or the placer's Lease lives."""
        membership = lease.note(MEMBERSHIP)
        if not membership or membership in self._ended:
            return False
        holder = self.client.get("leases", self.names.member(lease.spec.holder_identity or ""))
        if holder is not None and holder.metadata.uid == membership:
            return True
        self._ended.add(membership)
        return False

    def hold(self, lease: Object | None, name: str, new: Mapping[str, Any], member: str, membership: str) -> int:
        """Take an owner's or the placer's Lease that nobody holds; returns the epoch.

        Args:
            lease: as it was read; None: it is not there.
            new: metadata, if it is not there.

        Raises:
            ConflictError, NotFoundError: another was faster.
        """
        epoch = max(epoch_of(lease) + 1, self.now_ms())
        spec = {"holderIdentity": member, "acquireTime": micro_time(self.clock.utc_ns())}
        notes = {MEMBERSHIP: membership, EPOCH: str(epoch)}
        if lease is None:
            meta = {**new, "annotations": {**new["annotations"], **notes}}
            self.client.create("leases", name, {"metadata": meta, "spec": {**spec, "leaseTransitions": 0}})
        else:
            meta = {"resourceVersion": lease.metadata.resource_version, "annotations": notes}
            self.client.patch("leases", name, {"metadata": meta, "spec": spec})
        return epoch

    def drop_owner(self, owner: Object) -> None:
        """Delete the owner's Lease of a source that is gone, unless it has changed."""
        meta = owner.metadata
        self.delete("leases", meta.name, meta.uid, meta.resource_version)

    def delete(self, kind: Kind, name: str, uid: str, version: str = "") -> bool:
        """Returns whether it was deleted; it may be gone, or be another."""
        try:
            self.client.delete(kind, name, uid, version)
        except (ConflictError, NotFoundError):
            return False
        return True

    def change_state(self, change: Callable[[State], State]) -> State:
        """Change the fleet's state; `change` may be called several times."""
        name = self.names.state
        for _ in range(ATTEMPTS):
            found = self.client.get("configmaps", name)
            try:
                new = change(state_of(found) if found else State())
            except msgspec.MsgspecError as error:
                raise CoordinatorError(f"ConfigMap {name}: cannot be read: {error}") from error
            data = {STATE: msgspec.json.encode(new).decode()}
            try:
                if found is None:
                    self.client.create("configmaps", name, {"metadata": self.names.meta("state", ""), "data": data})
                else:
                    meta = {"resourceVersion": found.metadata.resource_version}
                    self.client.patch("configmaps", name, {"metadata": meta, "data": data})
            except (ConflictError, NotFoundError):
                continue
            return new
        raise CoordinatorAwayError(f"ConfigMap {name}: others write it again and again")

    def want(self, source: str, want: Want, version: str = "") -> bool:
        """Write where a source is wanted; returns False if it is not there, or has another version by now."""
        meta: dict[str, Any] = {"resourceVersion": version} if version else {}
        changes = {"metadata": {**meta, "annotations": written()}, "data": {WANT: msgspec.json.encode(want).decode()}}
        try:
            self.client.patch("configmaps", self.names.source(source), changes)
        except (ConflictError, NotFoundError):
            return False
        return True

    def now_ms(self) -> int:
        return self.clock.utc_ns() // 1_000_000


def written() -> dict[str, str]:
    """An annotation by which a write is a change, even if it writes what is there."""
    return {WRITTEN: secrets.token_hex(8)}
