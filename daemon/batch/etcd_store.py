"""Claims of many workers in etcd.

Keys stand below `/lookout-batch/<fleet>/v1/<batch>/`: `batch` and `model` are what all workers agree on,
`workers/<worker>` and `claims/<clip>` end with the worker's lease, and `attempts/<clip>` and `outcomes/<clip>` stay.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from urllib.parse import quote

import msgspec

from daemon.batch.etcd_lease import WorkerLease, boottime_ns
from daemon.batch.store import BatchView, ClaimsLostError, ModelFacts, Outcome, StoreAwayError, StoreError
from daemon.clock import Clock, SystemClock
from daemon.etcd import requests
from daemon.etcd.answers import KeyValue, TxnAnswer
from daemon.etcd.client import EtcdClient
from daemon.etcd.errors import EtcdAwayError, EtcdError
from daemon.etcd.requests import Body, end_of
from daemon.etcd.settings import EtcdSettings

_AT_ONCE = 20  # clips of one transaction; etcd counts 128 conditions and operations


@dataclass(frozen=True)
class BatchKey:
    """A batch, as all of its workers name it.

    Attributes:
        digest: of the clips, the model and the settings.
        clips: their number.
    """

    fleet: str
    name: str
    digest: str
    clips: int


class _Batch(msgspec.Struct):
    digest: str
    clips: int


@dataclass(frozen=True)
class _Claim:
    """Attributes:
    attempt: number of it.
    revision: of the claim.
    """

    attempt: int
    revision: int


class EtcdClipStore:
    """Implements `ClipStore`. One thread uses it.

    Args:
        lease_s: time after which the clips of a silent worker are free.

    Raises:
        StoreError: etcd refuses, or a batch of this name has other clips or settings.
    """

    def __init__(
        self,
        settings: EtcdSettings,
        batch: BatchKey,
        lease_s: float,
        clock: Clock | None = None,
        now: Callable[[], int] = boottime_ns,
    ) -> None:
        self._batch, self._lease_s, self._clock, self._now = batch, lease_s, clock or SystemClock(), now
        host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
        self.worker = f"{host}-{os.getpid()}-{secrets.token_hex(3)}"
        self._prefix = f"/lookout-batch/{quote(batch.fleet, safe='')}/v1/{quote(batch.name, safe='')}/".encode()
        self._outcomes: dict[int, tuple[Outcome, int]] = {}  # and the revision
        self._attempts: dict[int, tuple[int, int]] = {}  # number, and the revision
        self._revision = 0  # up to which both are known
        self._mine: dict[int, _Claim] = {}  # by clip
        with _store_errors():
            self._client = EtcdClient(settings)
            self._lease_client = EtcdClient(replace(settings, limit_s=max(0.5, lease_s / 6)))
        self._lease: WorkerLease | None = None
        try:
            self._agree("batch", _Batch(batch.digest, batch.clips), "has other clips, settings, or another model")
            self._begin_lease()
        except BaseException:
            self.close()
            raise

    def agree(self, facts: Mapping[str, ModelFacts]) -> None:
        self._agree(
            "models",
            dict(sorted(facts.items())),
            "runs with another backend or precision elsewhere, and bits would differ",
        )

    def view(self) -> BatchView:
        answer = self._changed_since(self._revision)
        if answer.header.revision < self._revision:  # etcd has lost its data, or was restored
            self._outcomes.clear()
            self._attempts.clear()
            answer = self._changed_since(0)
        claims, workers, outcomes, attempts = (operation.kvs for operation in answer.responses)
        for row in outcomes:
            self._note_outcome(row)
        for row in attempts:
            self._note_attempts(row)
        self._revision = answer.header.revision
        return BatchView(
            {clip: outcome for clip, (outcome, _) in self._outcomes.items() if outcome.state != "open"},
            {self._clip_of(row): row.value.decode(errors="replace") for row in claims},
            {clip: count for clip, (count, _) in self._attempts.items()},
            max(1, len(workers)),
        )

    def claim(self, clips: Sequence[int]) -> dict[int, int]:
        lease = self._lease
        if lease is None or not lease.is_valid:
            lease = self._begin_lease()
        claimed: dict[int, int] = {}
        free = [clip for clip in clips if clip not in self._mine and self._is_open(clip)]
        for start in range(0, len(free), _AT_ONCE):
            some = free[start : start + _AT_ONCE]
            with _store_errors():
                answer = self._client.txn(
                    [requests.is_under(self._key("workers", self.worker), lease.id)],
                    [self._claim_of(clip, lease.id) for clip in some],
                )
            if not answer.succeeded:
                raise StoreAwayError("the lease of this worker has ended")
            for clip, nested in zip(some, answer.nested()):
                revision = answer.header.revision
                if not nested.succeeded:  # the answer to a first request may have been lost
                    revision = sum(row.create_revision for row in nested.responses[0].kvs if row.lease == lease.id)
                if revision:
                    claimed[clip] = self._attempts.get(clip, (0, 0))[0] + 1
                    self._mine[clip] = _Claim(claimed[clip], revision)
        return claimed

    def holds(self, clip: int) -> bool:
        return clip in self._mine and self._lease is not None and self._lease.is_valid

    def finish(self, clip: int, outcome: Outcome) -> None:
        value, key = msgspec.json.encode(outcome), self._key("outcomes", clip)
        lease = self._lease.id if self._lease else 0
        operations = [requests.put(key, value), requests.delete(self._key("claims", clip))]
        with _store_errors():
            answer = self._client.txn(
                [requests.is_under(self._key("claims", clip), lease)], operations, [requests.get(key)]
            )
        self._mine.pop(clip, None)
        if answer.succeeded or any(row.value == value for row in answer.responses[0].kvs):
            return
        raise ClaimsLostError(f"another worker may have clip {clip}")

    def retry(self, clip: int) -> None:
        self._give_up([clip], counts=True)

    def release(self, clips: Sequence[int]) -> None:
        self._give_up(clips, counts=False)

    def reopen(self, clips: Sequence[int]) -> None:
        opened = msgspec.json.encode(Outcome(state="open"))
        for start in range(0, len(clips), _AT_ONCE):
            operations = [
                requests.nested(
                    [requests.is_absent(self._key("claims", clip))],
                    [
                        requests.put(self._key("outcomes", clip), opened),
                        requests.put(self._key("attempts", clip), b"0"),
                    ],
                )
                for clip in clips[start : start + _AT_ONCE]
            ]
            with _store_errors():
                self._client.txn([], operations)

    def close(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()
        self._client.close()
        self._lease_client.close()

    # -----------------------------------------------------------------------------------------------------------------

    def _begin_lease(self) -> WorkerLease:
        """A new lease. Clips that were claimed under an old one are given up, and those were no attempts."""
        if self._lease is not None:
            self._lease.end()
            self._lease = None
        self._take_back()
        with _store_errors():
            lease = WorkerLease(self._lease_client, self._lease_s, self._clock, self._now)
            try:
                self._client.put(self._key("workers", self.worker), b"{}", lease.id)
                lease.start()
            except BaseException:
                lease.end()
                raise
        self._lease = lease
        return lease

    def _take_back(self) -> None:
        """Do not count the attempts at clips whose claims were lost, unless another worker has tried them since."""
        lost = [*self._mine.items()]
        for start in range(0, len(lost), _AT_ONCE):
            operations = [
                requests.nested(
                    [requests.is_at(self._key("attempts", clip), claim.revision)],
                    [requests.put(self._key("attempts", clip), str(claim.attempt - 1).encode())],
                )
                for clip, claim in lost[start : start + _AT_ONCE]
            ]
            with _store_errors():
                self._client.txn([], operations)
        self._mine.clear()

    def _agree(self, name: str, record: object, difference: str) -> None:
        """Write a record, or compare with the one that is there."""
        key, value = self._prefix + name.encode(), msgspec.json.encode(record)
        with _store_errors():
            answer = self._client.txn([requests.is_absent(key)], [requests.put(key, value)], [requests.get(key)])
        if answer.succeeded or answer.responses[0].kvs[0].value == value:
            return
        there = answer.responses[0].kvs[0].value.decode(errors="replace")
        raise StoreError(f"batch {self._batch.name} {difference} ({there}): choose another name with --batch")

    def _is_open(self, clip: int) -> bool:
        return clip not in self._outcomes or self._outcomes[clip][0].state == "open"

    def _claim_of(self, clip: int, lease: int) -> Body:
        claim, attempts = self._key("claims", clip), self._key("attempts", clip)
        count, revision = self._attempts.get(clip, (0, 0))
        conditions = [
            requests.is_absent(claim),
            requests.is_at(self._key("outcomes", clip), self._outcomes.get(clip, (None, 0))[1]),
            requests.is_at(attempts, revision),
        ]
        operations = [
            requests.put(claim, self.worker.encode(), lease),
            requests.put(attempts, str(count + 1).encode()),
        ]
        return requests.nested(conditions, operations, [requests.get(claim)])

    def _give_up(self, clips: Sequence[int], *, counts: bool) -> None:
        """Give up claims; a request that arrives a second time, and late, ends no later claim.

        Args:
            counts: it was an attempt.
        """
        mine = [clip for clip in clips if clip in self._mine]
        for start in range(0, len(mine), _AT_ONCE):
            operations = []
            for clip in mine[start : start + _AT_ONCE]:
                claim = self._key("claims", clip)
                before = requests.put(self._key("attempts", clip), str(self._mine[clip].attempt - 1).encode())
                given_up = [requests.delete(claim), *([] if counts else [before])]
                operations.append(requests.nested([requests.is_created_at(claim, self._mine[clip].revision)], given_up))
            with _store_errors():
                self._client.txn([], operations)
        for clip in mine:
            del self._mine[clip]

    def _changed_since(self, revision: int) -> TxnAnswer:
        """All claims and workers, and the outcomes and attempts that have changed."""
        whole = [self._range(kind, 0) for kind in ("claims/", "workers/")]
        with _store_errors():
            return self._client.txn(
                [], [*whole, *(self._range(kind, revision + 1) for kind in ("outcomes/", "attempts/"))]
            )

    def _range(self, kind: str, since: int) -> Body:
        start = self._prefix + kind.encode()
        return {"request_range": {"key": start, "range_end": end_of(start), "min_mod_revision": since}}

    def _note_outcome(self, row: KeyValue) -> None:
        with suppress(msgspec.MsgspecError):
            self._outcomes[self._clip_of(row)] = msgspec.json.decode(row.value, type=Outcome), row.mod_revision

    def _note_attempts(self, row: KeyValue) -> None:
        self._attempts[self._clip_of(row)] = int(row.value), row.mod_revision

    def _clip_of(self, row: KeyValue) -> int:
        return int(row.key.rpartition(b"/")[2])

    def _key(self, kind: str, name: int | str) -> bytes:
        return self._prefix + f"{kind}/{name}".encode()


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except EtcdAwayError as error:
        raise StoreAwayError(str(error)) from error
    except EtcdError as error:
        raise StoreError(str(error)) from error
