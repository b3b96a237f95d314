"""The only queue of the bridge: what came, in order, until every target has it or it is too much.

One thread writes the disk. Targets are told what is on disk; while the disk takes nothing, they are told from memory.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec
import structlog

from daemon.bridge.disk_state import DiskState
from daemon.bridge.messages import Loss
from daemon.bridge.records import Entry, Record
from daemon.bridge.report import SpoolReport
from daemon.bridge.spool_file import SpoolFile, Text
from daemon.bridge.spool_texts import SpoolTexts
from daemon.clock import Bell, Clock
from daemon.errors import ConfigError
from daemon.system.database import DamagedError, remove_leftovers, replace_damaged
from daemon.system.database_lock import Lock
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
MAX_IN_MEMORY = 1000  # records that the disk does not take
_PAUSE_S = 0.01  # between two transactions, so that records gather while many come
_IDLE_S = 1.0
_RETRY_S = 2.0  # of a disk that takes nothing
_UNWRITABLE = (OSError, sqlite3.Error, DamagedError)
_MIB = 1 << 20
_FIRST_NS, _LAST_NS = -(1 << 63), (1 << 63) - 1  # that SQLite can hold; a message may say anything


@dataclass(frozen=True)
class _Opened:
    """
    Attributes:
        was_replaced: a damaged one lay there.
    """

    run: int
    was_killed: bool = False
    was_replaced: bool = False


class Spool:
    """Any thread may use it.

    Args:
        limit_mib: of records; the oldest go.

    Attributes:
        texts: that are kept over restarts.

    Raises:
        ConfigError: the file cannot be used, or another bridge uses it.
    """

    def __init__(self, path: Path, limit_mib: int, clock: Clock) -> None:
        self._path, self._limit, self._clock = path, limit_mib * _MIB, clock
        self._file: SpoolFile | None = None
        self._guard = threading.Lock()  # of all below; never held while the disk is asked
        self._records: list[Record] = []  # not on disk yet, in order
        self._needed: dict[str, int] = {}  # target: position up to which it needs nothing more
        self._stored = self._last = 0
        self._first = 1
        self._holes_by_disk: list[tuple[int, int]] = []  # positions that only memory had
        self._disk = DiskState(clock)
        self._listeners: list[Bell] = []
        self._bell, self._ending = Bell(), StopToken()
        self._thread = threading.Thread(target=self._work, name="spool", daemon=True)
        self._opened_as = _Opened(clock.utc_ns() // 1_000_000)
        self._lock = Lock(path, "bridge.spool")
        try:
            self._open_first()
        except BaseException:
            self._lock.close()
            raise

    def start(self) -> None:
        self._thread.start()

    # --- feeds -----------------------------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry], texts: Sequence[Text] = ()) -> None:
        """Add records, and texts that must be on disk with them; never blocks."""
        lost = 0
        with self._guard:
            for entry in entries:
                self._last += 1
                at = max(_FIRST_NS, min(entry.at, _LAST_NS))
                row = entry.kind, entry.daemon, entry.source, entry.id, at, entry.body
                self._records.append(Record(self.run, self._last, *row))
            self.texts.keep(texts)
            is_failing = self.is_failing
            if is_failing:
                lost = self._forget_beyond_memory()
        if lost:
            log.error("the spool cannot take records: the oldest are lost", path=str(self._path), records=lost)
        self._bell.ring()
        if is_failing:
            self._tell()

    @property
    def run(self) -> int:
        """See `daemon.bridge.records.Record`."""
        return self._opened_as.run

    @property
    def was_killed(self) -> bool:
        """The last run did not end in order, so targets may have more than the spool knows."""
        return self._opened_as.was_killed

    def await_room(self, seconds: float, ending: StopToken) -> bool:
        """Whether memory has room for as many records as it may keep, after so long at most."""
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        while len(self._records) > MAX_IN_MEMORY // 2:
            if self._clock.monotonic_ns() > until or self._clock.wait(ending, _PAUSE_S):
                return False
        return True

    def keep(self, text: Text) -> None:
        """Keep a text, soon on disk."""
        self.texts.keep([text])
        self._bell.ring()

    # --- targets ---------------------------------------------------------------------------------------------------

    def listen(self, bell: Bell) -> None:
        """Ring it whenever something can be read, or was written."""
        with self._guard:
            self._listeners.append(bell)

    def need(self, target: str, after: int | None) -> None:
        """A target has all records up to a position; None: it is no target any more."""
        with self._guard:
            if after is None:
                self._needed.pop(target, None)
            else:
                self._needed[target] = after
        self._bell.ring()

    @property
    def origin(self) -> int:
        """The position behind which a new target begins; those of a damaged spool are told first that it was."""
        return 0 if self._opened_as.was_replaced and self._thread.ident is None else self._last

    @property
    def last(self) -> int:
        """Position of the newest record."""
        return self._last

    @property
    def first(self) -> int:
        """Position of the oldest record that is still there."""
        return self._first

    @property
    def is_failing(self) -> bool:
        """The disk takes nothing now, or does not answer."""
        return self._disk.is_failing

    def read(self, after: int, limit: int) -> list[Record]:
        """Records in order; fewer, or none, where no more can be told yet. Positions may be missing.

        Raises:
            sqlite3.Error, DamagedError: the disk has them, and cannot be read now.
        """
        with self._guard:
            stored, file = self._stored, None if self._disk.hangs else self._file
            recent = [row for row in self._records if row.position > after] if self.is_failing else []
        if file is None and after < stored:
            return []
        if file is not None and after < stored and not (recent and recent[0].position == after + 1):
            try:
                return [row for row in file.read(after, limit) if row.position <= stored]
            except DamagedError as error:
                self._disk.note_damage(error)  # the thread replaces the file
                self._bell.ring()
                raise
        return [*islice(recent, limit)]

    def lost_between(self, first: int, last: int) -> Loss:
        """The message about records that are gone before a target had them."""
        with self._guard:
            by_disk = any(begin <= last and end >= first for begin, end in self._holes_by_disk)
        return Loss(
            id=f"spool-{self.run}-{first}-{last}", daemon="", count=last - first + 1, at=self._clock.utc_ns(),
            cause="disk" if by_disk else "spool_full",
        )  # fmt: skip

    def report(self) -> SpoolReport:
        with self._guard:
            size = (self._file.bytes if self._file else 0) + sum(len(row.body) for row in self._records)
            return SpoolReport(
                records=self._last - self._first + 1, bytes=size, limit_bytes=self._limit, failure=self._disk.words
            )

    def close(self, seconds: float) -> bool:
        """Write the rest, so long at most; whether it is on disk. A second call does nothing."""
        self._ending.set()
        self._bell.ring()
        if self._thread.ident is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():  # the disk hangs
                return False
        elif self._file is not None:
            self._file.close()
        self._lock.close()
        return self._disk.failure is None

    # --- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._ending.is_set:
            self._bell.wait(_IDLE_S)
            self._try_once()
            self._clock.wait(self._ending, _PAUSE_S if self._disk.failure is None else _RETRY_S)
        self._try_once(closing=True)
        if self._file is not None:
            self._file.close()
        self._lock.close()

    def _try_once(self, *, closing: bool = False) -> None:
        try:
            self._run_once(closing=closing)
        except Exception as error:
            log.exception("the spool has failed: it is tried again")
            self._fail(error)

    def _run_once(self, *, closing: bool = False) -> None:
        """Write what waits, and remove what nobody needs."""
        with self._guard:
            records, texts = [*self._records], self.texts.changed()
            needed = min(self._needed.values(), default=self._last)
        facts = {"open": 0} if closing else {}
        try:
            with self._disk.writing():
                self._disk.raise_damage()
                file = self._opened()
                if records or texts or facts:
                    file.write(records, texts, facts)
                self._settle(records, texts)
                file.remove(max(min(needed, self._stored) + 1, file.oldest_beyond(self._limit)))
                with self._guard:
                    self._first = max(self._first, file.first)
        except (*_UNWRITABLE, ConfigError) as error:
            self._fail(error)
            return
        if self._disk.recover():
            log.warning("the spool takes records again", path=str(self._path))
        if records or texts:
            self._tell()

    def _settle(self, records: Sequence[Record], texts: Sequence[Text]) -> None:
        """These are on disk."""
        self.texts.settle(texts)
        with self._guard:
            written = {row.position for row in records}
            self._records = [row for row in self._records if row.position not in written]
            if records:
                self._stored = records[-1].position

    def _fail(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        is_new = self._disk.failure is None
        if isinstance(error, DamagedError):
            try:
                self._replace(error)
            except OSError as fault:
                reason = f"{reason}; it cannot be replaced: {fault.strerror}"
        with self._guard:
            self._disk.fail(reason)
            lost = self._forget_beyond_memory()
        if is_new or lost:
            text = "the spool cannot be written: records go on from memory, which keeps so many"
            log.error(text, path=str(self._path), reason=reason, keeps=MAX_IN_MEMORY, records_lost=lost)
        self._tell()

    def _forget_beyond_memory(self) -> int:
        """Requires the guard; the number of records that are gone."""
        lost = len(self._records) - MAX_IN_MEMORY
        if lost <= 0:
            return 0
        gone, self._records = self._records[:lost], self._records[lost:]
        self._note_hole(gone[0].position, gone[-1].position)
        return sum(row.position > min(self._needed.values(), default=self._last) for row in gone)

    def _note_hole(self, first: int, last: int) -> None:
        """Requires the guard. Holes that touch are one, and those that everybody is past are forgotten."""
        needed = min(self._needed.values(), default=0)
        holes = [hole for hole in self._holes_by_disk if hole[1] > needed]
        if holes and holes[-1][1] + 1 == first:
            first = holes.pop()[0]
        self._holes_by_disk = [*holes, (first, last)]

    def _tell(self) -> None:
        with self._guard:
            listeners = [*self._listeners]
        for bell in listeners:
            bell.ring()

    # --- the file --------------------------------------------------------------------------------------------------

    def _open_first(self) -> None:
        try:
            remove_leftovers(self._path)
            try:
                self._adopt_first(self._opened())
            except DamagedError as error:
                self._replace(error)
                self._adopt_first(self._opened())
                self._opened_as = replace(self._opened_as, was_replaced=True)
                self._tell_replaced()
        except (sqlite3.Error, DamagedError) as error:
            raise ConfigError(f"bridge.spool: {self._path} cannot be opened: {error}") from error
        except OSError as error:
            raise ConfigError(f"bridge.spool: {self._path} cannot be written: {error.strerror}") from error

    def _adopt_first(self, file: SpoolFile) -> None:
        facts = file.facts()
        self.texts = SpoolTexts(file.texts())
        run = max(self.run, facts.get("run", 0) + 1)
        self._opened_as = _Opened(run, was_killed=bool(facts.get("open")))
        self._stored = self._last = file.last
        self._first = file.first
        try:
            file.write((), (), {"run": self.run, "open": 1})
        except sqlite3.Error as error:
            self._disk.fail(str(error))
            log.error("the spool cannot be written", path=str(self._path), reason=str(error))

    def _tell_replaced(self) -> None:
        """Nobody knows what waited, nor how far targets were."""
        now = self._clock.utc_ns()
        loss = Loss(id=f"spool-{self.run}-replaced", daemon="", count=None, at=now, cause="disk")
        self.append([Entry("loss", "", "", loss.id, now, msgspec.json.encode(loss))])

    def _opened(self) -> SpoolFile:
        """The file at the path; one that was removed or moved is begun anew, with all texts."""
        if self._file is not None and not self._file.is_at(self._path):
            log.error("the spool was removed or moved: it is begun anew", path=str(self._path))
            self._file.close()
            self._file = None
            remove_leftovers(self._path)
        if self._file is None:
            file = SpoolFile(self._path)
            if self._last:  # it is not the first of this run
                self._adopt(file)
            self._file = file
        return self._file

    def _adopt(self, file: SpoolFile) -> None:
        """A file that was begun anew: texts go on, and records that only the former one had are lost."""
        self.texts.all_are_new()
        with self._guard:
            begin = self._records[0].position if self._records else self._last + 1
            if begin > self._first:
                self._note_hole(self._first, begin - 1)
            self._first = self._stored = begin
            self._stored -= 1
        file.begin_at(begin)
        file.write((), (), {"run": self.run, "open": 1})

    def _replace(self, error: Exception) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        kept = replace_damaged(self._path)
        log.error("the spool was damaged: it is begun anew", kept=str(kept), reason=str(error))
