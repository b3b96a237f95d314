"""States of a daemon's sources and stores of recordings: since when, and why. The event loop's thread alone uses it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from lookout.messages import Store

_MAX_STATES = 1000  # of a source
_STATES_S = 24 * 3600.0
_FINE = ("up", "ended", "disabled")


class StateSince(msgspec.Struct, frozen=True):
    """A state of a source.

    Attributes:
        at: since when, UTC, s.
    """

    at: float
    state: str
    reason: str | None


class Trouble(msgspec.Struct, frozen=True):
    """A source is not what it should be. It stays in trouble while it is tried again and again, until it is up.

    Attributes:
        since: UTC, s.
        reason: the last one that was told.
        retry_at: when the next try is, UTC, s; null while one goes on, or if nobody says.
    """

    since: float
    reason: str | None
    retry_at: float | None


class StoreState(msgspec.Struct, frozen=True):
    """A store of recordings.

    Attributes:
        cause: why nothing can be written; null if it can.
        reason: in words.
        bytes: of its recordings.
        free_bytes: of its disk, null where it is not known.
        since: UTC, s: of this cause.
    """

    name: str
    cause: str | None = None
    reason: str | None = None
    bytes: int = 0
    free_bytes: int | None = None
    since: float = 0.0


class StateLog:
    """States of one daemon's sources over a day, as far as they were heard of, and what is wrong now.

    Attributes:
        stores: by name.
    """

    def __init__(self) -> None:
        self._rows: dict[str, deque[StateSince]] = {}
        self._troubles: dict[str, Trouble] = {}
        self.stores: dict[str, StoreState] = {}

    def of(self, source: str) -> Sequence[StateSince]:
        """The oldest first."""
        return [*self._rows.get(source, ())]

    def trouble(self, source: str) -> Trouble | None:
        return self._troubles.get(source)

    def note(self, source: str, found: StateSince, now_s: float, retry_in_s: float | None = None) -> None:
        """A state that is told at first began when it began; each other one, when it was heard of: clocks differ."""
        rows = self._rows.setdefault(source, deque(maxlen=_MAX_STATES))
        at = now_s if rows else min(now_s, found.at)
        self._note_trouble(source, found, at, retry_in_s)
        if rows and (rows[-1].state, rows[-1].reason) == (found.state, found.reason):
            return
        rows.append(StateSince(at, found.state, found.reason))
        while len(rows) > 1 and rows[1].at < now_s - _STATES_S:
            rows.popleft()

    def _note_trouble(self, source: str, found: StateSince, at: float, retry_in_s: float | None) -> None:
        before = self._troubles.get(source)
        if found.state in _FINE:
            self._troubles.pop(source, None)
            return
        since = before.since if before else at
        reason = found.reason or (before.reason if before else None)
        retry_at = None if retry_in_s is None else at + retry_in_s
        self._troubles[source] = Trouble(since, reason, retry_at)

    def keep(self, sources: Iterable[str]) -> None:
        """Forget all others."""
        for source in self._rows.keys() - set(sources):
            del self._rows[source]
            self._troubles.pop(source, None)

    def note_store(self, message: Store, now_s: float) -> StoreState:
        """A store can be written to again, or no more."""
        found = StoreState(message.store, message.cause, message.reason, message.bytes, message.free_bytes)
        return self._put_store(found, now_s)

    def note_stores(self, rows: Iterable[StoreState], now_s: float) -> None:
        """All stores that there are."""
        rows = [*rows]
        for name in self.stores.keys() - {row.name for row in rows}:
            del self.stores[name]
        for row in rows:
            self._put_store(row, now_s)

    def _put_store(self, found: StoreState, now_s: float) -> StoreState:
        before = self.stores.get(found.name)
        since = before.since if before is not None and before.cause == found.cause else now_s
        self.stores[found.name] = found = msgspec.structs.replace(found, since=since)
        return found
