"""The journal: a thread that writes events and totals to a bounded file, beside the frames' path.

Nothing here slows a lane. A slow or full disk costs rows of the journal, which are counted and reported.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from daemon.analytics.journal_file import Query, check_owner, read
from daemon.analytics.journal_store import UNWRITABLE, Earlier, JournalStore, check_path, check_writable, reason_of
from daemon.analytics.totals import Key
from daemon.clock import Bell
from daemon.config.events import EventsConfig
from daemon.errors import ConfigError, LookoutError
from daemon.files import state_folder
from daemon.lifecycle import ThreadPart
from daemon.system.database import DamagedError
from daemon.system.database_lock import NO_ROOM, Lock
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse
from lookout.messages import Event

log = structlog.get_logger(__name__)
MAX_WAITING = 10_000  # events before the disk
_PAUSE_S = 0.01  # between two transactions, so that events gather while many come
_IDLE_S = 1.0
_PRUNE_NS = 60_000_000_000
_DAY_NS = 86_400_000_000_000


class Journal(ThreadPart):
    """Writes from its own thread, the rest at its end, and reads in the caller's.

    Args:
        path: of the database.

    Attributes:
        path: as given.
        first: number for the first event of this run: above all earlier ones, those that were not written included.
        earlier: what the file has of earlier runs, from when it is opened until somebody takes it.
        lost: events of this run that the journal does not have: they could not be written, or their file is gone.
        trouble: why the last ones could not be written; None if they could.

    Raises:
        ConfigError: the path cannot be used, or another daemon uses it.
    """

    def __init__(self, path: Path, config: EventsConfig, runtime: Runtime) -> None:
        super().__init__("journal", runtime, is_vital=False)
        self.path, self._config = path, config
        self.earlier: Earlier | None = None
        self.lost = 0
        self.trouble: str | None = None
        self._waiting: deque[tuple[Event, Key | None]] = deque()
        self._grown = Counter[Key]()  # totals of events that are lost, for the next batch
        self._bell = Bell()
        self._losing = threading.Lock()
        self._lost_here = 0  # since the last batch that was written
        self._pruned_ns = self._clock.monotonic_ns() - _PRUNE_NS
        _refuse(check_path(path))
        self._store = JournalStore(path, config.max_rows, self._clock, self._on_gone)
        self._failed = False
        try:
            self._open_first()
        except BaseException:
            self._store.close()
            raise
        self.first = max(self.reserved, self._clock.utc_ns() // 1_000_000)
        with suppress(sqlite3.Error, DamagedError):  # the first batch meets it, too, and reports it
            self._store.reserve(self.first)

    def take_earlier(self) -> Earlier | None:
        """`earlier`, once."""
        earlier, self.earlier = self.earlier, None
        return earlier

    def put(self, event: Event, key: Key | None) -> None:
        """Write an event soon, and the total that it is counted in; never blocks."""
        if self._failed or len(self._waiting) >= MAX_WAITING:
            reason = "its thread has failed" if self._failed else "the disk is too slow"
            self._lose([event], Counter([key] if key else []), reason)
            return
        self._waiting.append((event, key))
        self._bell.ring()

    @property
    def reserved(self) -> int:
        """The lowest number that no event of the file has, nor may have been published with; 0 without a file."""
        return self._store.reserved

    @property
    def last_written(self) -> int:
        """Number of the newest event in the file; 0 without one."""
        return self._store.last

    def read(self, query: Query) -> list[Event]:
        """Events that are written; any thread may call it.

        Raises:
            LookoutError: the journal cannot be read now.
        """
        if not self._store.is_there:
            self._bell.ring()  # the thread begins a new one, if it can
            raise LookoutError("the journal is not at its place: it was removed or moved, or cannot be opened")
        try:
            return read(self.path, query)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise LookoutError(f"the journal cannot be read: {error}") from error

    def request_stop(self) -> None:
        super().request_stop()
        self._bell.ring()

    def work(self, pulse: Pulse) -> None:
        while not self.ending.is_set:
            pulse.rest()
            self._bell.wait(_IDLE_S)
            pulse.beat()
            self.run_once()
            self._clock.wait(self.ending, _PAUSE_S)
        self.run_once()

    def on_error(self, error: Exception) -> None:  # noqa: ARG002
        self._failed = True
        log.exception("the journal has failed: events are published, and not kept")

    def close(self) -> None:
        self._store.close()

    def run_once(self) -> None:
        """Write the waiting events, or try whether some could be written, and remove old ones."""
        self._store.check_place()
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if waiting or self.trouble:  # until a next event nobody would know that it is over
            self._write([event for event, _ in waiting], Counter(key for _, key in waiting if key))
        else:
            with suppress(*UNWRITABLE, LookoutError):  # the next batch meets it, and reports it
                self._open()
        now = self._clock.monotonic_ns()
        if now - self._pruned_ns >= _PRUNE_NS:
            self._pruned_ns = now
            self._prune()

    def _write(self, events: list[Event], grown: Counter[Key]) -> None:
        with self._losing:
            grown, self._grown = grown + self._grown, Counter()
        try:
            self._open()
            self._store.append(events, grown)
        except (*UNWRITABLE, LookoutError) as error:
            self._lose(events, grown, reason_of(error))
            return
        with self._losing:
            lost, self._lost_here, self.trouble = self._lost_here, 0, None
        if lost:
            log.warning("the journal takes events again", path=str(self.path), events_lost=lost)

    def _open(self) -> None:
        if earlier := self._store.open():
            self.earlier = earlier

    def _prune(self) -> None:
        oldest = self._clock.utc_ns() - round(self._config.max_age_days * _DAY_NS)
        try:
            self._store.prune(oldest)
        except (sqlite3.Error, DamagedError) as error:
            log.warning("the journal keeps old events", **self._about(error))

    def _open_first(self) -> None:
        try:
            self._open()
        except UNWRITABLE as error:
            if isinstance(error, OSError) and error.errno not in NO_ROOM:
                raise ConfigError(f"events.journal: {self.path} cannot be written: {error.strerror}") from error
            log.error("the journal cannot be opened: events are published, and not kept", **self._about(error))

    def _on_gone(self, count: int) -> None:
        """Events are gone with their file. The next one has the totals."""
        with self._losing:
            self.lost += count

    def _lose(self, events: list[Event], grown: Counter[Key], reason: str) -> None:
        """From any thread. Totals are not lost: the next batch has them."""
        with self._losing:
            is_first = not self._lost_here
            self.lost += len(events)
            self._lost_here += len(events)
            self._grown += grown
            self.trouble = f"events cannot be written: {reason}; so far {self._lost_here} are lost"
        if is_first:
            text = "the journal cannot take events: they are published, and not kept"
            log.error(text, path=str(self.path), reason=reason)

    def _about(self, error: Exception) -> dict[str, str]:
        return {"path": str(self.path), "reason": reason_of(error)}


def journal_path(config: EventsConfig) -> Path | None:
    """Where the journal is; None for no journal."""
    if config.journal == "off":
        return None
    if config.journal != "auto":
        return Path(config.journal)
    folder = state_folder()
    return folder / "events.sqlite" if folder else None


def try_journal(config: EventsConfig, *, alone: bool = True) -> None:
    """Whether the journal could be written; leaves nothing.

    Args:
        alone: no daemon may have it now.

    Raises:
        ConfigError: it could not.
    """
    path = journal_path(config)
    if path is None:
        return
    _refuse(check_path(path))
    try:
        check_writable(path)
    except OSError as error:
        _refuse(f"{path} cannot be written: {error.strerror}")
    with suppress(sqlite3.Error, DamagedError):  # a damaged one is replaced
        check_owner(path)
    if alone and Lock.path_of(path).exists():
        Lock(path, "events.journal").close()


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise ConfigError(f"events.journal: {reason}")
