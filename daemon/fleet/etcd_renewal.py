"""Renewals of a member's lease in etcd."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from daemon.etcd.answers import Header
from daemon.etcd.client import EtcdClient
from daemon.etcd.errors import EtcdError
from daemon.etcd.settings import EtcdSettings
from daemon.fleet.etcd_errors import coordinator_errors
from daemon.fleet.port import LeaseLostError


@dataclass(frozen=True)
class Lease:
    """A member's lease.

    Attributes:
        key: of the member's record.
        joined: revision at which the record was created.
        cluster: id of etcd's cluster.
    """

    id: int
    ttl_s: int
    key: bytes
    joined: int
    cluster: int


class EtcdRenewal:
    """See `port.Renewal`. Connects at the first call, and again after it was pickled.

    etcd that was restored from a backup may have the lease and not what was claimed under it since. So a renewal also
    reads the member's record: of this cluster, of this membership, and no revision goes back.
    """

    def __init__(self, settings: EtcdSettings, lease: Lease) -> None:
        # Two calls within a third of the lease's time, which leaves time for another try.
        self._settings = replace(settings, limit_s=min(settings.limit_s, lease.ttl_s / 6))
        self._lease, self._revision = lease, lease.joined
        self._client: EtcdClient | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_client": None}

    def renew(self) -> float:
        with coordinator_errors():
            answer = self._connected().keep_alive(self._lease.id)
            record, header = self._connected().get(self._lease.key)
        if record is None or record.create_revision != self._lease.joined or self._is_restored(header):
            raise LeaseLostError("the coordinator no longer has this membership")
        self._revision = header.revision
        return float(answer.ttl)

    def revoke(self) -> None:
        with suppress(EtcdError):
            self._connected().revoke(self._lease.id)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _is_restored(self, header: Header) -> bool:
        return header.cluster_id != self._lease.cluster or header.revision < self._revision

    def _connected(self) -> EtcdClient:
        if self._client is None:
            self._client = EtcdClient(self._settings)
        return self._client
