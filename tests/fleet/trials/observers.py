"""Witnesses of a fleet: one reads the coordinator's order of owners, the other all messages."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic
from typing import NamedTuple

import msgspec

from daemon.etcd.client import EtcdClient
from daemon.etcd.errors import EtcdAwayError
from daemon.etcd.settings import EtcdSettings
from daemon.etcd.watch import open_watch
from daemon.fleet.etcd_keys import Keys
from daemon.fleet.records import Ownership
from daemon.system.stop_token import StopToken
from lookout.client import Subscriber
from lookout.messages import Detections

_TURN_S = 0.2


class Turn(NamedTuple):
    """A source has this owner from now on.

    Attributes:
        at: monotonic seconds, when the witness learnt it.
        member: None for no owner.
    """

    at: float
    source: str
    member: str | None
    epoch: int


class OwnersInOrder(threading.Thread):
    """Reads all changes of owners, in the order that the coordinator gives them.

    Attributes:
        turns: all of them.
        faults: sources that had two owners at once.
    """

    def __init__(self, settings: EtcdSettings, fleet: str) -> None:
        super().__init__(name="owners", daemon=True)
        self._settings, self._prefix = settings, Keys(fleet).under("own")
        self._ending = StopToken()
        self._owner: dict[str, str] = {}
        self.turns: list[Turn] = []
        self.faults: list[str] = []
        self._revision = 1

    def close(self) -> None:
        self._ending.set()
        self.join(30)

    def run(self) -> None:
        with closing(EtcdClient(self._settings)) as client:  # it remembers the endpoint that answers
            while not self._ending.is_set:
                try:
                    self._read(client)
                except EtcdAwayError:
                    self._ending.wait(_TURN_S)

    def _read(self, client: EtcdClient) -> None:
        with closing(open_watch(client, self._prefix, self._revision)) as watch:
            silent = 0
            while not self._ending.is_set and silent < 25:  # a peer that is gone says nothing
                events = watch.events(_TURN_S)
                silent = 0 if events else silent + 1
                for event in events:
                    self._take(event.kv.key.removeprefix(self._prefix).decode(), event.kv.value, event.kv.mod_revision)
                self._revision = watch.revision

    def _take(self, source: str, value: bytes, revision: int) -> None:
        now = monotonic()
        if not value:
            self._owner.pop(source, None)
            self.turns.append(Turn(now, source, None, 0))
            return
        claim = msgspec.json.decode(value, type=Ownership)
        before = self._owner.get(source)
        if before is not None:
            self.faults.append(f"{source}: {claim.member} claims it at {revision} while {before} owns it")
        self._owner[source] = claim.member
        self.turns.append(Turn(now, source, claim.member, claim.base + revision))


@dataclass
class Heard:
    """Messages of one owner about one source.

    Attributes:
        first, last: monotonic seconds of arrival.
    """

    member: str
    epoch: int
    first: float
    last: float
    count: int = 1


class Reader(threading.Thread):
    """Receives everything, through the subscriber that users have.

    Attributes:
        heard: by source: its owners in the order in which they were heard.
        faults: lower epochs after higher ones, and epochs with two owners.
        late: arrivals of messages that the subscriber has left out: monotonic seconds and their number.
    """

    def __init__(self, subscriber: Subscriber) -> None:
        super().__init__(name="reader", daemon=True)
        self._subscriber, self._ending = subscriber, StopToken()
        self.heard: dict[str, list[Heard]] = defaultdict(list)
        self.faults: list[str] = []
        self.late: list[tuple[float, int]] = []
        self._fenced = 0

    def close(self) -> None:
        self._ending.set()
        self.join(30)
        self._subscriber.close()

    @property
    def lost(self) -> Mapping[str, int]:
        """See `Subscriber.lost`."""
        return self._subscriber.lost

    def run(self) -> None:
        while not self._ending.is_set:
            message = self._subscriber.receive(_TURN_S)
            now = monotonic()
            if isinstance(message, Detections):
                self._take(message, now)
            if (fenced := sum(self._subscriber.fenced.values())) > self._fenced:
                self.late.append((now, fenced - self._fenced))
                self._fenced = fenced

    def _take(self, message: Detections, now: float) -> None:
        owner, rows = message.owner, self.heard[message.source]
        if owner is None:
            self.faults.append(f"{message.source}: a message without an owner")
            return
        if rows and owner.epoch < rows[-1].epoch:
            self.faults.append(f"{message.source}: epoch {owner.epoch} after {rows[-1].epoch}")
        elif rows and owner.epoch == rows[-1].epoch:
            if owner.node != rows[-1].member:
                self.faults.append(f"{message.source}: epoch {owner.epoch} of {owner.node} and {rows[-1].member}")
            rows[-1].last, rows[-1].count = now, rows[-1].count + 1
        else:
            rows.append(Heard(owner.node, owner.epoch, now, now))

    def silence(self) -> dict[str, float]:
        """Seconds since the last message of each source."""
        now = monotonic()
        return {source: now - rows[-1].last for source, rows in [*self.heard.items()] if rows}

    def moves(self, since: float) -> Counter[str]:
        """How many sources were heard from another owner since then, by the owner that they had."""
        found: Counter[str] = Counter()
        for rows in [*self.heard.values()]:
            for before, after in pairwise(rows):
                if after.first >= since:
                    found[before.member] += 1
        return found
