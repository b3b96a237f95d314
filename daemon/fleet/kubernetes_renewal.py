"""Renewals of a member's Lease in Kubernetes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from daemon.clock import SystemClock
from daemon.fleet.kubernetes_client import KubernetesClient, KubernetesSettings, NotFoundError
from daemon.fleet.kubernetes_names import micro_time
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError


@dataclass(frozen=True)
class MemberLease:
    """Attributes:
    name: of the Lease.
    uid: of this membership: a Lease that is made anew has another one.
    """

    name: str
    uid: str
    ttl_s: int


class KubernetesRenewal:
    """See `port.Renewal`. Connects at the first call, and again after it was pickled.

    The member lives as long as its Lease is there. Kubernetes deletes nothing by itself: another member deletes a Lease
    that it has not seen renewed for the lease's time, if it is unchanged at that moment.
    """

    def __init__(self, settings: KubernetesSettings, lease: MemberLease) -> None:
        # Two tries within a third of the lease's time.
        self._settings = replace(settings, limit_s=min(settings.limit_s, lease.ttl_s / 6))
        self._lease = lease
        self._client: KubernetesClient | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_client": None}

    def renew(self) -> float:
        changes = {"metadata": {"uid": self._lease.uid}, "spec": {"renewTime": micro_time(SystemClock.utc_ns())}}
        client, name = self._connected(), self._lease.name
        try:
            found = client.patch("leases", name, changes)
        except NotFoundError as error:
            raise LeaseLostError("the lease of this member has ended") from error
        except CoordinatorAwayError:
            raise
        except CoordinatorError as error:  # a Lease with another uid is a conflict, or is called invalid
            present = client.get("leases", name)
            if present is not None and present.metadata.uid == self._lease.uid:
                raise
            raise LeaseLostError("the lease of this member has ended") from error
        if found.metadata.uid != self._lease.uid:
            raise LeaseLostError("the lease of this member has ended")
        return float(self._lease.ttl_s)

    def revoke(self) -> None:
        with suppress(CoordinatorError):
            self._connected().delete("leases", self._lease.name, self._lease.uid)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> KubernetesClient:
        if self._client is None:
            self._client = KubernetesClient(self._settings)
        return self._client
