"""Files go when there is no room, or when they are old: the oldest first, and none that is locked or written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec
import structlog

from daemon.recording import deleted
from daemon.recording.errors import StoreFullError
from daemon.recording.index import Index, Place
from daemon.recording.locks import Locks
from daemon.recording.records import Lock
from daemon.recording.scan import is_left
from daemon.recording.store import CLAIMS, TRACKS, VIDEO, NoFileError, Store, store_error

log = structlog.get_logger(__name__)
_OF_THE_FILE = (errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EBUSY, errno.EINVAL)  # it is immutable, or no file
_MOST_UNREADABLE = 16  # files in a row: it is the disk, and not some bad sectors
_MOST_TOLD = 16  # in an hour
_TRIED_AGAIN_NS = 3_600_000_000_000


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a store.

    Attributes:
        max_bytes: of all files; None for what the disk has.
        min_free_bytes: of the disk.
        max_source_bytes: of sources that have a limit.
        continuous_ns, events_ns: ages at which files go that no event wants, and the others.
    """

    max_bytes: int | None = None
    min_free_bytes: int = 0
    max_source_bytes: Mapping[str, int] = {}
    continuous_ns: int
    events_ns: int


class Retention:
    """Deletes files of a store. One thread uses it, that of its index.

    Attributes:
        deleted_files, deleted_bytes: since it was made.
    """

    def __init__(self, store: Store, index: Index, rules: Rules) -> None:
        self._store, self._index, self._rules = store, index, rules
        self._locks = Locks(store)
        self._refused: set[str] = set()  # ids of files that cannot be deleted: others go in their place
        self._unreadable: list[str] = []  # those of them in a row that the disk refused
        self._tried_again_at = 0
        self.deleted_files = self.deleted_bytes = 0

    def set_rules(self, rules: Rules) -> None:
        self._rules = rules

    def make_room(self, wanted: int, source: str | None = None, *, is_full: bool = False) -> bool:
        """Delete until so many bytes more keep all limits.

        Args:
            source: whose own limit counts, too.
            is_full: the disk has just refused to write, whatever it says of its room: one file goes in any case.

        Returns:
            Whether there is room; otherwise nothing more may go.

        Raises:
            StoreError: the store cannot be used.
        """
        own = self._rules.max_source_bytes.get(source or "")
        if source is not None and own is not None:
            over = self._index.sizes().get(source, 0) + wanted - own
            if over > 0 and not self._shrink(self._index.oldest(source), over):
                return False
        if not self._shrink(self._index.oldest(), self._over(wanted)):
            return False
        missing = max(self._missing(wanted), int(is_full))
        if missing <= 0:
            return True
        for place in self._index.oldest():
            before = self.deleted_bytes
            self._delete(place, self._locks.all())
            # A disk may tell of the room later: what was deleted counts.
            done = self.deleted_bytes - before
            missing = min(self._missing(wanted), missing - done) if done else missing
            if missing <= 0:
                return True
        return False

    def run(self, now: int, *, ages: bool, limit: int = 64) -> int:
        """Keep all limits as they are now; call it now and then.

        Args:
            now: UTC ns.
            ages: the clock is to be trusted, so that what is old may go.
            limit: files at a time, because a disk may need a while for each.

        Returns:
            How many were deleted; as many as `limit` if more are to go.

        Raises:
            StoreError: the store cannot be used.
        """
        before = self.deleted_files
        if not 0 <= self._tried_again_at - now <= _TRIED_AGAIN_NS:
            self._tried_again_at = now + _TRIED_AGAIN_NS
            self._refused.clear()
            self._unreadable.clear()
            if ages:  # their videos went, or there were none
                self._index.forget_claims(now - max(self._rules.continuous_ns, self._rules.events_ns))
        sizes = self._index.sizes()
        for source, most in self._rules.max_source_bytes.items():
            left = limit - (self.deleted_files - before)
            self._shrink(self._index.oldest(source), sizes.get(source, 0) - most, left)
        if ages:
            self._expire(now, limit - (self.deleted_files - before))
        self.make_room(0)
        return self.deleted_files - before

    def _expire(self, now: int, limit: int) -> None:
        locks, before = self._locks.all(), self.deleted_files
        for place in self._index.older_than(now - self._rules.continuous_ns, now - self._rules.events_ns):
            if self.deleted_files - before >= limit:
                return
            self._delete(place, locks)

    def _over(self, wanted: int) -> int:
        most = self._rules.max_bytes
        return 0 if most is None else sum(self._index.sizes().values()) + wanted - most

    def _missing(self, wanted: int) -> int:
        return self._rules.min_free_bytes + wanted - self._store.free_bytes

    def _shrink(self, places: Iterable[Place], over: int, limit: int | None = None) -> bool:
        """Delete so many bytes; whether they are gone."""
        if over <= 0:
            return True
        locks, before, files = self._locks.all(), self.deleted_bytes, self.deleted_files
        for place in places:
            if limit is not None and self.deleted_files - files >= limit:
                return False
            self._delete(place, locks)
            if self.deleted_bytes - before >= over:
                return True
        return False

    def _delete(self, place: Place, locks: list[Lock]) -> None:
        """Unless it is locked or being written, or cannot be deleted.

        Raises:
            StoreError: nothing can be deleted.
        """
        if place.id in self._refused or _is_locked(place, locks):
            return
        try:
            with self._locks.held():
                if _is_locked(place, self._locks.all(place.source)) or not self._is_left(place):
                    return
                is_long = self._remove(place)
        except FileNotFoundError:
            is_long = False  # somebody else was faster
        except OSError as error:
            self._refuse(place, error)
            return
        self._unreadable.clear()
        with suppress(StoreFullError):  # its row goes when there is room
            self._index.remove_file(place.id)
        self.deleted_files += 1
        self.deleted_bytes += place.size
        if is_long:
            wanted = {facts.previous for facts in self._index.files(place.source) if facts.previous}
            with suppress(OSError):
                deleted.forget(self._store, place.source, wanted)

    def _refuse(self, place: Place, error: OSError) -> None:
        """One file must not end all recording.

        Raises:
            StoreError: it is the store that refuses.
        """
        self._refused.add(place.id)
        if error.errno not in _OF_THE_FILE:
            self._unreadable.append(place.id)
            if error.errno != errno.EIO or len(self._unreadable) >= _MOST_UNREADABLE:
                self._refused -= {*self._unreadable}
                self._unreadable.clear()
                raise store_error(place.path, error) from error
        if len(self._refused) <= _MOST_TOLD:
            log.warning(
                "a recording cannot be deleted: others go in its place", recording=place.path, reason=error.strerror
            )

    def _remove(self, place: Place) -> bool:
        """It is noted first, so that nobody takes it for stolen; on a full disk there is only then room for the note.

        Returns:
            Whether there are many notes.
        """
        is_noted = is_long = False
        with suppress(OSError):
            is_long, is_noted = deleted.note(self._store, place.source, place.id), True
        try:
            self._unlink(place.path)
        except FileNotFoundError:
            raise
        except OSError:
            if is_noted:
                with suppress(OSError):
                    deleted.forget(self._store, place.source, deleted.noted(self._store, place.source) - {place.id})
            raise
        if not is_noted:
            with suppress(OSError):
                is_long = deleted.note(self._store, place.source, place.id)
        return is_long

    def _is_left(self, place: Place) -> bool:
        try:
            with self._store.opened(place.path, os.O_RDWR) as file:
                return is_left(file)
        except NoFileError:
            return True

    def _unlink(self, path: str) -> None:
        source, day, name = path.split("/")
        trouble: OSError | None = None
        with self._store.folder(source, day) as folder:
            try:  # first: without its video nobody would find it again
                os.unlink(name.removesuffix(VIDEO) + TRACKS, dir_fd=folder)
            except FileNotFoundError:
                pass
            except OSError as error:  # it must not keep all that is newer
                trouble = error
            os.unlink(name, dir_fd=folder)
        if trouble is not None:
            log.warning("the boxes of a recording that was deleted stay", recording=path, reason=trouble.strerror)
        with suppress(OSError), self._store.folder(source) as above, self._store.folder(source, day) as folder:
            if not any(other.endswith(VIDEO) for other in os.listdir(folder)):  # it was the last one of its day
                with suppress(FileNotFoundError):
                    os.unlink(CLAIMS, dir_fd=folder)
                os.rmdir(day, dir_fd=above)


def _is_locked(place: Place, locks: list[Lock]) -> bool:
    return any(lock.source == place.source and lock.begin < place.end and lock.end > place.begin for lock in locks)
