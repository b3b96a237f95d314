"""The coordinator over etcd: leases say which members live, and transactions say which one owns a source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic

import msgspec

from daemon.clock import Clock, SystemClock
from daemon.etcd import requests
from daemon.etcd.answers import Header
from daemon.etcd.client import EtcdClient
from daemon.etcd.errors import CompactedError, EtcdError
from daemon.etcd.requests import Body, end_of
from daemon.etcd.settings import EtcdSettings
from daemon.etcd.watch import Watch, open_watch
from daemon.fleet.etcd_errors import coordinator_errors
from daemon.fleet.etcd_keys import Keys
from daemon.fleet.etcd_membership import BATCH, EtcdMembership, base_of, batches
from daemon.fleet.etcd_records import Born, Reason, Records
from daemon.fleet.etcd_renewal import Lease
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, NameTakenError
from daemon.fleet.records import FleetView, MemberRecord, SourceRecord, Want
from daemon.system.stop_token import StopToken

_SLICE_S = 0.2  # so long a watch waits before it looks at `stop`
_QUIET_S, _MAX_GATHER_S = 0.03, 0.25  # changes that come so close together are one view, for so long
_ATTEMPTS = 5
_MAX_BYTES = 400_000  # of the records of one transaction; etcd takes 1.5 MB
_REMOVAL = BATCH // 4  # sources of a transaction that deletes four keys of each


class EtcdCoordinator:
    """See `port.Coordinator`.

    Raises:
        CoordinatorError: a file of TLS cannot be used.
    """

    def __init__(self, settings: EtcdSettings, fleet: str, clock: Clock | None = None) -> None:
        with coordinator_errors():
            self._client = EtcdClient(settings)
        self._keys = Keys(fleet)
        self._clock = clock or SystemClock()

    def view(self) -> FleetView:
        with coordinator_errors():
            records, header = self._listed()
        return records.view(header.revision)

    def follow(self, stop: StopToken) -> Iterator[FleetView]:
        while not stop.is_set:
            with coordinator_errors():
                records, header = self._listed()
            yield records.view(header.revision)
            try:
                yield from self._changes(records, header.revision, stop)
            except CompactedError:
                continue

    def join(self, member: str, record: MemberRecord, ttl_s: float) -> EtcdMembership:
        key = self._keys.of("members", member)
        with coordinator_errors():
            self._raise_base()
            grant = self._client.grant(math.ceil(ttl_s))
            put = requests.put(key, msgspec.json.encode(record), grant.lease)
            answer = self._client.txn([requests.is_absent(key)], [put], [requests.get(key)])
            joined = answer.header.revision
            if not answer.succeeded:
                present = answer.responses[0].kvs[0]
                if present.lease != grant.lease:  # or the answer to the first try was lost
                    self._give_back(grant.lease)
                    raise NameTakenError(
                        f"a member {member} is in the fleet already: give each process a name of its own in "
                        f"fleet.member; if it has just ended, its lease ends within {grant.ttl} s"
                    )
                joined = present.create_revision
        lease = Lease(grant.lease, grant.ttl, key, joined, answer.header.cluster_id)
        return EtcdMembership(self._client, self._keys, member, lease)

    def put_sources(self, sources: Mapping[str, SourceRecord], *, replace: bool) -> list[str]:
        values = {source: msgspec.json.encode(record) for source, record in sources.items()}
        return [source for batch in _by_size(values) for source in self._put_batch(batch, replace)]

    def remove_sources(self, sources: Sequence[str]) -> list[str]:
        there: list[str] = []
        for batch in batches(list(sources), _REMOVAL):
            operations = [operation for source in batch for operation in self._removal(source)]
            with coordinator_errors():
                answer = self._client.txn([], operations)
            deleted = [
                operation.response_delete_range for operation in answer.responses[:: len(operations) // len(batch)]
            ]
            there += [source for source, found in zip(batch, deleted) if found and found.deleted]
        return there

    def drain(self, member: str, reason: str) -> None:
        with coordinator_errors():
            self._client.put(self._keys.of("drained", member), msgspec.json.encode(Reason(reason)))

    def undrain(self, member: str) -> None:
        with coordinator_errors():
            self._client.delete(self._keys.of("drained", member))

    def move(self, sources: Sequence[str], member: str, *, pinned: bool = True) -> None:
        want = msgspec.json.encode(Want(member=member, reason="moved by an operator", pinned=pinned))
        missing: list[str] = []
        for batch in batches(list(sources), BATCH):
            operations = [self._put_want(source, want) for source in batch]
            with coordinator_errors():
                answer = self._client.txn([requests.exists(self._keys.of("members", member))], operations)
            if not answer.succeeded:
                raise CoordinatorError(f"no member {member} is in the fleet: `lookout fleet status` lists them")
            missing += [source for source, nested in zip(batch, answer.nested()) if not nested.succeeded]
        if missing:
            raise CoordinatorError(f"not in the fleet, and not moved: {', '.join(missing)}")

    def close(self) -> None:
        self._client.close()

    def _listed(self) -> tuple[Records, Header]:
        rows, header = self._client.list_prefix(self._keys.prefix)
        records = Records(self._keys)
        records.replace(rows, self._other_versions())
        return records, header

    def _other_versions(self) -> dict[str, str]:
        """A note on keys of other schemas: members of a release that does not understand this one."""
        every, here = self._keys.every, self._keys.prefix
        count = self._client.count(every, here) + self._client.count(end_of(here), end_of(every))
        note = f"{count} records are of another schema, and are left alone: other releases are in this fleet"
        return {every.decode(): note} if count else {}

    def _changes(self, records: Records, revision: int, stop: StopToken) -> Iterator[FleetView]:
        """Views after changes; raises CompactedError where all must be listed anew."""
        with coordinator_errors():
            watch = open_watch(self._client, self._keys.prefix, revision + 1)
        try:
            heard = monotonic()
            while not stop.is_set:
                with coordinator_errors():
                    changed = _gathered(watch, records)
                    if not changed and monotonic() - heard > self._client.settings.silence_s:
                        watch = self._anew(watch)
                        heard = monotonic()
                if changed:
                    yield records.view(watch.revision - 1)
                    heard = monotonic()
        finally:
            watch.close()

    def _anew(self, watch: Watch) -> Watch:
        watch.close()
        return open_watch(self._client, self._keys.prefix, watch.revision)

    def _raise_base(self) -> None:
        """Let epochs be about the time of day in milliseconds, and never lower than they were.

        etcd makes fewer than 1000 revisions a second, so that epochs stay behind the time of day. An etcd that was
        restored from a backup therefore gives higher epochs than it did before, as soon as a member joins.
        """
        born, header = self._client.get(self._keys.born)
        now = self._clock.utc_ns() // 1_000_000 - header.revision
        value = msgspec.json.encode(Born(max(base_of(born), now), header.cluster_id))
        # Another member that joins at the same time may come first, which is as good.
        at = requests.is_at(self._keys.born, born.mod_revision if born else 0)
        self._client.txn([at], [requests.put(self._keys.born, value)])

    def _give_back(self, lease: int) -> None:
        try:
            self._client.revoke(lease)
        except EtcdError:
            return  # it ends by itself

    def _put_batch(self, values: Mapping[str, bytes], replace: bool) -> list[str]:
        """Write sources; returns those that were there. etcd checks its quota for such puts alone, not nested ones."""
        keys = {source: self._keys.of("sources", source) for source in values}
        for _ in range(_ATTEMPTS):
            with coordinator_errors():
                answer = self._client.txn([], [requests.get(key, keys_only=True) for key in keys.values()])
                there = [source for source, found in zip(keys, answer.responses) if found.kvs]
                new = {key: values[source] for source, key in keys.items() if replace or source not in there}
                compare = [] if replace else map(requests.is_absent, new)
                puts = [requests.put(key, value) for key, value in new.items()]
                if not new or self._client.txn(list(compare), puts).succeeded:
                    return there
        raise CoordinatorAwayError("etcd: others write the same sources again and again")

    def _put_want(self, source: str, want: bytes) -> Body:
        is_there = requests.exists(self._keys.of("sources", source))
        return requests.nested([is_there], [requests.put(self._keys.of("wants", source), want)])

    def _removal(self, source: str) -> list[Body]:
        keys = [self._keys.of(section, source) for section in ("sources", "wants", "seen")]
        return [*map(requests.delete, keys), requests.delete_prefix(self._keys.under("refused", source))]


def _gathered(watch: Watch, records: Records) -> bool:
    """Apply changes that are there, and those that come at once after them; returns whether there were any."""
    events = watch.events(_SLICE_S)
    if not events:
        return False
    until = monotonic() + _MAX_GATHER_S
    while events:
        records.apply(events)
        events = watch.events(_QUIET_S) if monotonic() < until else []
    return True


def _by_size(values: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    batch: dict[str, bytes] = {}
    size = 0
    for name, value in values.items():
        if batch and (len(batch) == BATCH or size + len(value) > _MAX_BYTES):
            yield batch
            batch, size = {}, 0
        batch[name] = value
        size += len(value)
    if batch:
        yield batch
