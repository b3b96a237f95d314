"""Which changes of state are told: a source, a store or a daemon that is down for long, and recordings with gaps.

- `up` is well, all else of a source is trouble, whatever it is called from try to try. A recording that has `ended`,
  and a source that is removed, disabled or moved to another daemon, is no trouble; one that was told is closed by `up`
  with the reason.
- While a daemon is away nobody knows how its sources and stores are: there is one notice of the daemon. Troubles that
  were told of them stay, and those that were not begin anew when it is back.
- What flaps stays down, see `daemon.bridge.troubles`.
- Gaps of recordings that another notice tells of (the source, the store or the daemon is down) are not told again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from daemon.bridge.messages import Condition, Notice, Subject
from daemon.bridge.recording_gaps import GapCount, Gaps, KeptGaps
from daemon.bridge.troubles import KeptTrouble, Trouble
from daemon.clock import Clock
from daemon.config.bridge import StatusConfig
from lookout.messages import Metrics, Owner, Status, Store

_Key = tuple[str, Subject, str]  # daemon, about, name
_ORDER: Final[tuple[Subject, ...]] = ("daemon", "store", "source", "recording")
_GONE_S: Final = 30.0  # a daemon that stops says of all its sources that they have ended
_LATE_NS: Final = 120_000_000_000  # counters of gaps tell of an outage some time after it


class _KeptRow(msgspec.Struct, frozen=True):
    daemon: str
    about: Subject
    name: str
    trouble: KeptTrouble


class _KeptBook(msgspec.Struct, frozen=True):
    troubles: list[_KeptRow] = []
    gaps: dict[str, list[KeptGaps]] = {}


class NoticeBook:
    """Fed with what is known of daemons, asked for notices about once a second. Any thread.

    Args:
        daemons: their names; each is away until `on_daemon` says otherwise.
    """

    def __init__(self, status: StatusConfig, daemons: Sequence[str], clock: Clock) -> None:
        self._status, self._clock = status, clock
        self._lock = threading.Lock()
        self._troubles: dict[_Key, Trouble] = {}
        self._gone: dict[_Key, str] = {}  # why they are watched no more
        self._gaps: dict[str, dict[tuple[str, str], GapCount]] = {}
        self._covered_ns: dict[_Key, int] = {}  # until when a notice tells of gaps
        self._owners: dict[tuple[str, str], tuple[int, str]] = {}  # epoch and daemon, by fleet and source
        self._up = dict.fromkeys(daemons, False)
        self._closed: list[Notice] = []
        for daemon in daemons:
            self._trouble((daemon, "daemon", "")).bad(clock.monotonic_ns(), clock.utc_ns(), "it has not answered yet")

    # --- what is known ---------------------------------------------------------------------------------------------

    def on_daemon(self, daemon: str, is_up: bool, reason: str | None = None) -> None:
        """Its messages come, or not, and why."""
        with self._lock:
            key: _Key = (daemon, "daemon", "")
            now = self._clock.monotonic_ns()
            trouble = self._trouble(key)
            others = [row for other, row in self._troubles.items() if other[0] == daemon and other != key]
            if not is_up:
                trouble.bad(now, self._clock.utc_ns(), reason)
                for row in others:
                    row.unknown()
            elif not self._up[daemon]:
                trouble.well(now)
                for row in others:
                    row.begin_again(now)
            self._up[daemon] = is_up

    def on_message(self, daemon: str, message: object) -> None:
        """A message of the wire; kinds that tell of no state are passed over. Those with a lower epoch do not come."""
        with self._lock:
            if isinstance(message, Status):
                self._on_status(daemon, message)
            elif isinstance(message, Store):
                self._on_store(daemon, message.store, message.cause, message.reason, message.at)
            elif isinstance(message, Metrics):
                self._on_metrics(daemon, message)

    def on_store(self, daemon: str, store: str, cause: str | None, reason: str | None) -> None:
        """As `GET /api/v1/daemon` tells of a store: the wire repeats nothing for who comes late."""
        with self._lock:
            self._on_store(daemon, store, cause, reason, self._clock.utc_ns())

    def on_gaps(self, daemon: str, gaps: Gaps) -> None:
        """Newer counters of what recordings lack; see `daemon.bridge.recording_gaps.read_gaps`."""
        with self._lock:
            before = self._gaps.get(daemon, {})
            after = self._gaps[daemon] = {key: before.get(key) or GapCount(seconds) for key, seconds in gaps.items()}
            growing: dict[str, bool] = {}
            for (source, store), count in after.items():
                told = self._is_covered(daemon, source, store)
                grown = count.add(gaps[source, store], self._clock.utc_ns(), is_told=told)
                growing[source] = growing.get(source, False) or grown > 0
            for source, is_growing in growing.items():
                self._judge_recording(daemon, source, is_growing=is_growing)

    # --- what is told ----------------------------------------------------------------------------------------------

    def tick(self) -> Sequence[Notice]:
        """The notices that are due, each once: keep `export` together with them."""
        with self._lock:
            now, found = self._clock.monotonic_ns(), self._closed
            self._closed = []
            for key in sorted(self._troubles, key=lambda key: (_ORDER.index(key[1]), key)):
                found.extend(self._step(key, self._troubles[key], now))
            for key in [key for key, row in self._troubles.items() if row.is_forgotten]:
                del self._troubles[key]
                self._gone.pop(key, None)
            self._covered_ns = {key: until for key, until in self._covered_ns.items() if until > now}
            return found

    def _step(self, key: _Key, trouble: Trouble, now: int) -> Iterator[Notice]:
        daemon, about, name = key
        if about != "daemon" and not self._up[daemon]:
            return
        if about == "recording":
            told = trouble.step(now, 0.0, self._status.gap_s)
        else:
            told = trouble.step(now, self._status.down_s, _GONE_S if key in self._gone else 0.0)
        if told == "down":
            for count in self._counts(daemon, name).values() if about == "recording" else ():
                count.forget()
            yield self._notice(key, trouble, "down")
        elif told == "up":
            yield self._close(key, trouble, self._gone.pop(key, None))

    def _close(self, key: _Key, trouble: Trouble, why: str | None) -> Notice:
        reason = "; ".join(text for text in (trouble.reason, why) if text) or None
        notice = self._notice(key, trouble, "up", reason)
        self._covered_ns[key] = self._clock.monotonic_ns() + _LATE_NS
        trouble.clear()
        return notice

    def _notice(self, key: _Key, trouble: Trouble, condition: Condition, reason: str | None = None) -> Notice:
        daemon, about, name = key
        since = trouble.since or 0
        return Notice(
            id="/".join((daemon, about, name, condition, str(since))),
            daemon=daemon,
            about=about,
            name=name,
            condition=condition,
            since=since,
            at=self._clock.utc_ns(),
            reason=reason or trouble.reason,
        )

    # --- over restarts ---------------------------------------------------------------------------------------------

    def export(self) -> dict[str, Any]:
        """The troubles that were told, and counters, as JSON has them."""
        with self._lock:
            now = self._clock.monotonic_ns()
            kept = ((key, row.keep(now)) for key, row in self._troubles.items())
            rows = [_KeptRow(*key, row) for key, row in kept if row is not None]
            gaps = {
                daemon: [count.keep(*key) for key, count in counts.items()] for daemon, counts in self._gaps.items()
            }
            found: dict[str, Any] = msgspec.to_builtins(_KeptBook(rows, gaps))
            return found

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Take over what `export` gave, before anything else; daemons that are not there any more are left out.

        Raises:
            ValueError: it does not fit; nothing is restored.
        """
        try:
            book = msgspec.convert(kept, _KeptBook)
        except msgspec.ValidationError as error:
            raise ValueError(f"what was told before is not readable: {error}") from error
        with self._lock:
            now = self._clock.monotonic_ns()
            for row in book.troubles:
                if row.daemon in self._up:
                    self._trouble((row.daemon, row.about, row.name)).restore(row.trouble, now)
            for daemon, counts in book.gaps.items():
                if daemon in self._up:
                    self._gaps[daemon] = {
                        (row.source, row.store): GapCount(row.seen, row.lacks, row.since) for row in counts
                    }

    # ---------------------------------------------------------------------------------------------------------------

    def _on_status(self, daemon: str, message: Status) -> None:
        if message.owner is not None and not self._owns(daemon, message.source, message.owner):
            return
        key: _Key = (daemon, "source", message.source)
        if message.state == "ended":
            self._leave(key, message.reason or "it has ended")
        else:
            self._set(key, message.state == "up", message.reason, message.state, message.at)

    def _owns(self, daemon: str, source: str, owner: Owner) -> bool:
        """Whether a status is the owner's; a source that moved is the former owner's no more."""
        epoch, before = self._owners.get((owner.fleet, source), (-1, daemon))
        if owner.epoch < epoch:
            return False
        self._owners[owner.fleet, source] = owner.epoch, daemon
        about: tuple[Subject, ...] = ("source", "recording")
        for key in ((before, row, source) for row in about if before != daemon):
            trouble = self._troubles.get(key)
            if trouble is not None and trouble.is_told:
                self._closed.append(self._close(key, trouble, f"it is at {daemon} now"))
            elif trouble is not None:
                trouble.clear()
        return True

    def _on_store(self, daemon: str, store: str, cause: str | None, reason: str | None, at: int) -> None:
        words = ": ".join(text for text in (cause, reason) if text)
        self._set((daemon, "store", store), cause is None, words, "", at)

    def _on_metrics(self, daemon: str, message: Metrics) -> None:
        """They have all sources that there are: what a status was lost of, and what was removed."""
        for source, row in message.sources.items():
            key: _Key = (daemon, "source", source)
            if row.state == "ended":
                self._leave(key, "it has ended")
            elif key in self._troubles or row.state != "up":
                self._set(key, row.state == "up", None, row.state, message.at)
        for key in [*self._troubles]:
            if key[0] == daemon and key[1] in ("source", "recording") and key[2] not in message.sources:
                self._leave(key, "it was removed, or disabled")

    def _set(self, key: _Key, is_well: bool, reason: str | None, state: str, at: int) -> None:
        """
        Args:
            state: stands for a reason where none is known.
        """
        now = self._clock.monotonic_ns()
        self._gone.pop(key, None)
        if not is_well:
            trouble = self._trouble(key)
            known = trouble.reason if trouble.since is not None else None
            trouble.bad(now, at, reason or known or state)
        elif key in self._troubles:
            self._troubles[key].well(now)

    def _leave(self, key: _Key, why: str) -> None:
        trouble = self._troubles.get(key)
        if trouble is not None and trouble.since is not None:
            self._gone.setdefault(key, why)
            trouble.well(self._clock.monotonic_ns())

    def _judge_recording(self, daemon: str, source: str, *, is_growing: bool) -> None:
        key: _Key = (daemon, "recording", source)
        counts = self._counts(daemon, source)
        store, worst = max(counts.items(), key=lambda row: row[1].seconds)
        now, trouble = self._clock.monotonic_ns(), self._troubles.get(key)
        if trouble is not None and trouble.is_told:
            for count in counts.values():
                count.forget()
            if is_growing:
                trouble.bad(now, 0, None)
            else:
                trouble.well(now)
        elif worst.seconds > self._status.gap_s and not self._may_be_told_of(daemon, source, counts):
            self._trouble(key).bad(now, worst.since, worst.words(store))

    def _counts(self, daemon: str, source: str) -> dict[str, GapCount]:
        """By store."""
        return {store: count for (name, store), count in self._gaps.get(daemon, {}).items() if name == source}

    def _may_be_told_of(self, daemon: str, source: str, stores: Iterable[str]) -> bool:
        """Whether the gaps of a source belong to a trouble that is not told yet, and may be."""
        return not self._up[daemon] or any(row.is_bad for row in self._behind(daemon, source, stores))

    def _is_covered(self, daemon: str, source: str, store: str) -> bool:
        """Whether a notice tells of gaps of now, or of a while ago."""
        late = any(key in self._covered_ns for key in _keys_behind(daemon, source, [store]))
        return late or any(row.is_told for row in self._behind(daemon, source, [store]))

    def _behind(self, daemon: str, source: str, stores: Iterable[str]) -> Iterator[Trouble]:
        """Troubles that make gaps of a source."""
        return (self._troubles[key] for key in _keys_behind(daemon, source, stores) if key in self._troubles)

    def _trouble(self, key: _Key) -> Trouble:
        return self._troubles.setdefault(key, Trouble())


def _keys_behind(daemon: str, source: str, stores: Iterable[str]) -> list[_Key]:
    return [(daemon, "daemon", ""), (daemon, "source", source), *((daemon, "store", store) for store in stores)]
