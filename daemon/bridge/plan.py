"""The next records for a target: whether each is sent, and why not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from daemon.bridge.account import Account
from daemon.bridge.formats.port import formatter
from daemon.bridge.records import Record, RecordKind
from daemon.bridge.spool import Spool
from daemon.bridge.when import When
from daemon.config.targets import MqttTarget, TargetConfig, WireBase

MOST_READ = 500
_ALL: frozenset[RecordKind] = frozenset(("event", "status", "clip", "loss"))


class Cooldown(Protocol):
    """Leaves out what comes too soon after another."""

    def admits(self, record: Record) -> bool: ...


@dataclass(frozen=True)
class Step:
    """One record of a plan, or a hole in the spool.

    Attributes:
        position: the last that it settles.
        record: to be sent; of a hole the message about the loss; None to send nothing.
        count: how it enters the account: filtered, thinned, or a cause of dropping; None for delivered.
        size: records that it settles.
    """

    position: int
    record: Record | None
    count: str | None
    size: int = 1


class Planner:
    """Of one target. One thread uses it.

    Args:
        cooldown: None without one.
        utc_ns: the time of day, for `stale_s`.
    """

    def __init__(
        self, target: TargetConfig, spool: Spool, cooldown: Cooldown | None, utc_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._spool, self._cooldown, self._utc_ns = spool, cooldown, utc_ns
        self._when = When(target)
        self._kinds = formatter(target.format).kinds if isinstance(target, WireBase) else _ALL
        self._format = formatter(target.format) if isinstance(target, WireBase) else None
        self._has_beside = isinstance(target, MqttTarget) and (target.homeassistant or target.picture)
        self._stale_ns = None if target.stale_s is None else round(target.stale_s * 1e9)
        self._admitted = dict[int, bool]()  # by position: a cooldown is asked once

    def plan(self, account: Account, limit: int, most: int = MOST_READ) -> list[Step]:
        """The next steps, in order.

        Args:
            limit: of records that are to be sent; others cost nothing.
            most: records that are read.

        Raises:
            sqlite3.Error, DamagedError: the spool cannot be read now.
        """
        records = self._spool.read(account.cursor, most)
        end = account.cursor
        steps: list[Step] = []
        for record in records:
            if record.position > end + 1 or limit <= 0:
                break
            steps.append(self._judged(record))
            limit -= steps[-1].record is not None
            end = record.position
        begin = records[0].position if records else self._spool.first
        if not steps and limit > 0 and begin > account.cursor + 1:
            steps.append(self._hole(account.cursor + 1, begin - 1))
        for position in [position for position in self._admitted if position <= account.cursor]:
            del self._admitted[position]
        return steps

    def _judged(self, record: Record) -> Step:
        try:
            wanted = record.kind in self._kinds and self._when.wants(record) and self._tells(record)
        except msgspec.MsgspecError:
            return Step(record.position, None, "unreadable")
        if not wanted:
            return Step(record.position, None, "filtered")
        if self._stale_ns is not None and record.kind != "loss" and self._utc_ns() - record.at > self._stale_ns:
            return Step(record.position, None, "stale")
        if not self._is_admitted(record):
            return Step(record.position, None, "thinned")
        return Step(record.position, record, None)

    def _tells(self, record: Record) -> bool:
        """Whether the format has something for it, or something is told beside it."""
        return self._format is None or (self._has_beside and record.kind == "event") or self._format.has(record)

    def _is_admitted(self, record: Record) -> bool:
        if self._cooldown is None:
            return True
        if record.position not in self._admitted:
            self._admitted[record.position] = self._cooldown.admits(record)
        return self._admitted[record.position]

    def _hole(self, first: int, last: int) -> Step:
        """Records that were removed before this target had them."""
        loss = self._spool.lost_between(first, last)
        body = msgspec.json.encode(loss)
        record = Record(self._spool.run, last, "loss", "", "", loss.id, loss.at, body)
        told = record if "loss" in self._kinds and self._when.wants(record) else None
        return Step(last, told, loss.cause, last - first + 1)


def settle(account: Account, steps: Sequence[Step], results: Sequence[str | None]) -> None:
    """Enter steps into the account, up to the first that is to be sent and has no result.

    Args:
        results: of those that were sent: None, or why it was refused.
    """
    answers = iter(results)
    for step in steps:
        outcome: str | None = None
        if step.record is not None:
            try:
                outcome = next(answers)
            except StopIteration:
                return
        account.settle(step.position, step.size, step.count or ("delivered" if outcome is None else "refused"))
