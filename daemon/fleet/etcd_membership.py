"""A member's claims in etcd, each a transaction under its lease."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from daemon.etcd import requests
from daemon.etcd.answers import KeyValue, TxnAnswer
from daemon.etcd.client import EtcdClient
from daemon.etcd.requests import Body
from daemon.fleet.etcd_errors import coordinator_errors
from daemon.fleet.etcd_keys import Keys
from daemon.fleet.etcd_records import Born, Count, Left, Reason
from daemon.fleet.etcd_renewal import EtcdRenewal, Lease
from daemon.fleet.port import CoordinatorAwayError, LeaseLostError
from daemon.fleet.records import FleetView, HoldDown, MemberRecord, Ownership, StreamFormat, Want

T = TypeVar("T")
BATCH = 100  # operations of a transaction; each has up to three conditions, and etcd counts 128 of both
_ATTEMPTS = 5
_HOUR_S = 3600


class EtcdMembership:
    """See `port.Membership`."""

    def __init__(self, client: EtcdClient, keys: Keys, member: str, lease: Lease) -> None:
        self._client, self._keys, self._lease = client, keys, lease
        self._member = member
        self._renewal = EtcdRenewal(client.settings, lease)
        self._placer_since = 0  # revision of this member's key of the placer

    @property
    def member(self) -> str:
        return self._member

    @property
    def renewal(self) -> EtcdRenewal:
        return self._renewal

    def update(self, record: MemberRecord) -> None:
        self._write([requests.put(self._lease.key, msgspec.json.encode(record), self._lease.id)])

    def claim(self, sources: Sequence[str]) -> dict[str, int]:
        claimed: dict[str, int] = {}
        for batch in batches(list(sources), BATCH):
            claimed |= self._claimed(batch)
        return claimed

    def release(self, sources: Sequence[str]) -> None:
        for batch in batches(list(sources), BATCH):
            gets = [requests.get(self._keys.of("own", source), keys_only=True) for source in batch]
            with coordinator_errors():
                answer = self._client.txn([], gets)
            mine = [row for found in answer.responses for row in found.kvs if row.lease == self._lease.id]
            # A request that is repeated elsewhere may also arrive late: it must not end a later claim of this lease.
            self._write([requests.nested([_is_as(row)], [requests.delete(row.key)]) for row in mine])

    def refuse(self, reasons: Mapping[str, str | None]) -> None:
        for batch in batches(list(reasons.items()), BATCH):
            self._write([self._refusal(source, reason) for source, reason in batch])

    def saw(self, pictures: Mapping[str, StreamFormat]) -> None:
        for batch in batches(list(pictures.items()), BATCH):
            self._write([self._of_source(source, self._keys.of("seen", source), seen) for source, seen in batch])

    def lead(self) -> bool:
        with coordinator_errors():
            current, _ = self._client.get(self._keys.placer)
        if current is None:
            value = msgspec.json.encode(Ownership(member=self._member))
            put = requests.put(self._keys.placer, value, self._lease.id)
            self._write([requests.nested([requests.is_absent(self._keys.placer)], [put])])
            with coordinator_errors():
                current, _ = self._client.get(self._keys.placer)
        is_placer = current is not None and current.lease == self._lease.id
        self._placer_since = current.create_revision if current and is_placer else 0
        return is_placer

    def place(self, wants: Mapping[str, Want], basis: FleetView) -> int:
        written = 0
        for batch in batches(list(wants.items()), BATCH):
            operations = [self._want(source, want, basis.revision) for source, want in batch]
            answer = self._write(operations, self._is_placer())
            if not answer.succeeded:
                break
            written += sum(nested.succeeded for nested in answer.nested())
        return written

    def hold_down(self, member: str, seconds: float) -> None:
        key, held = self._keys.of("losses", member), self._keys.of("held", member)
        with coordinator_errors():
            before, _ = self._client.get(key)
            count = _count(before) + 1
            hour = self._client.grant(_HOUR_S).lease
            operations = [requests.put(key, msgspec.json.encode(Count(count)), hour)]
            if seconds > 0:
                lease = self._client.grant(math.ceil(seconds)).lease
                operations.append(requests.put(held, msgspec.json.encode(HoldDown(losses=count)), lease))
        self._write(operations, [*self._is_placer(), requests.is_at(key, before.mod_revision if before else 0)])

    def leave(self) -> None:
        with coordinator_errors():
            hour = self._client.grant(_HOUR_S).lease
            left = msgspec.json.encode(Left(self._lease.joined))
            with suppress(LeaseLostError):
                self._write([requests.put(self._keys.of("left", self._member), left, hour)])
            self._client.revoke(self._lease.id)
        self._renewal.close()

    def _write(self, operations: Sequence[Body], compare: Sequence[Body] = ()) -> TxnAnswer:
        """Write as a member that is alive.

        Returns:
            the answer, which has not succeeded where a condition of `compare` does not hold.

        Raises:
            LeaseLostError: the member's record is gone, or is another membership's.
        """
        is_alive = requests.is_created_at(self._lease.key, self._lease.joined)
        with coordinator_errors():
            answer = self._client.txn([is_alive, *compare], operations, [requests.get(self._lease.key, keys_only=True)])
        if not answer.succeeded:
            record = next(iter(answer.responses[0].kvs), None)
            if record is None or record.create_revision != self._lease.joined:
                raise LeaseLostError("the lease of this member has ended")
        return answer

    def _claimed(self, sources: Sequence[str]) -> dict[str, int]:
        for _ in range(_ATTEMPTS):
            base, born, wants = self._read(sources)
            wanted = {source: want for source, want in wants.items() if self._is_here(want)}
            if not wanted:
                return {}
            value = msgspec.json.encode(Ownership(member=self._member, base=base))
            operations = [self._claim(source, want, value) for source, want in wanted.items()]
            answer = self._write(operations, [requests.is_at(self._keys.born, born)])
            if answer.succeeded:
                return self._epochs(list(wanted), base, answer)
        raise CoordinatorAwayError("etcd: the base of epochs changes again and again")

    def _read(self, sources: Sequence[str]) -> tuple[int, int, dict[str, KeyValue]]:
        """The base of epochs, the revision of its record, and the wants of sources."""
        gets = [requests.get(self._keys.of("wants", source)) for source in sources]
        with coordinator_errors():
            answer = self._client.txn([], [requests.get(self._keys.born), *gets])
        found = [next(iter(operation.kvs), None) for operation in answer.responses]
        born = found[0] or KeyValue()
        wants = {source: want for source, want in zip(sources, found[1:]) if want is not None}
        return base_of(found[0]), born.mod_revision, wants

    def _is_here(self, want: KeyValue) -> bool:
        try:
            return msgspec.json.decode(want.value, type=Want).member == self._member
        except msgspec.MsgspecError:
            return False

    def _claim(self, source: str, want: KeyValue, value: bytes) -> Body:
        key = self._keys.of("own", source)
        conditions = [requests.is_absent(key), requests.is_at(want.key, want.mod_revision)]
        return requests.nested(conditions, [requests.put(key, value, self._lease.id)], [requests.get(key)])

    def _epochs(self, sources: Sequence[str], base: int, answer: TxnAnswer) -> dict[str, int]:
        """Epochs of what was claimed, now or by a request whose answer was lost."""
        epochs = {}
        for source, nested in zip(sources, answer.nested()):
            if nested.succeeded:
                epochs[source] = base + answer.header.revision
                continue
            for row in nested.responses[0].kvs:
                if row.lease == self._lease.id:
                    epochs[source] = msgspec.json.decode(row.value, type=Ownership).base + row.create_revision
        return epochs

    def _refusal(self, source: str, reason: str | None) -> Body:
        key = self._keys.of("refused", source, self._member)
        if reason is None:
            return requests.delete(key)
        return self._of_source(source, key, Reason(reason), self._lease.id)

    def _of_source(self, source: str, key: bytes, record: msgspec.Struct, lease: int = 0) -> Body:
        """Put a record, unless the source was removed meanwhile."""
        is_there = requests.exists(self._keys.of("sources", source))
        return requests.nested([is_there], [requests.put(key, msgspec.json.encode(record), lease)])

    def _want(self, source: str, want: Want, revision: int) -> Body:
        record, key = self._keys.of("sources", source), self._keys.of("wants", source)
        conditions = [
            requests.exists(record),
            requests.is_unchanged_since(record, revision),
            requests.is_unchanged_since(key, revision),
        ]
        return requests.nested(conditions, [requests.put(key, msgspec.json.encode(want))])

    def _is_placer(self) -> list[Body]:
        return [requests.exists(self._keys.placer), requests.is_created_at(self._keys.placer, self._placer_since)]


def _is_as(row: KeyValue) -> Body:
    return requests.is_created_at(row.key, row.create_revision)


def base_of(born: KeyValue | None) -> int:
    """The base of epochs; 0 without a record that can be read."""
    try:
        return msgspec.json.decode(born.value, type=Born).ms if born else 0
    except msgspec.MsgspecError:
        return 0


def batches(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _count(row: KeyValue | None) -> int:
    try:
        return msgspec.json.decode(row.value, type=Count).count if row else 0
    except msgspec.MsgspecError:
        return 0
