"""Locks: video that stays until somebody unlocks it. Each is a file of its own in the store: no index can lose it."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import msgspec

from daemon.recording.errors import StoreError
from daemon.recording.records import Lock
from daemon.recording.store import LOCKS, Store, give, open_file, translated, write_whole

_GUARD: Final = ".lock"
_NAME = re.compile(r"[0-9a-f]{16}\.json")
_MAX_BYTES = 64 << 10
_decode = msgspec.json.Decoder(Lock).decode


class Locks:
    """The locks of a store.

    Attributes:
        damaged: names of files that cannot be read as locks, as of the last look.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[int, Lock]] = {}  # with the time of the last change, by name
        self.damaged: list[str] = []

    def all(self, source: str | None = None) -> list[Lock]:
        """By source and begin.

        Raises:
            StoreError: they cannot be read.
        """
        known, damaged = {}, []
        with translated(self._store.path / LOCKS), suppress(FileNotFoundError), self._store.folder(LOCKS) as folder:
            for name in os.listdir(folder):
                if _NAME.fullmatch(name):
                    found = self._read(folder, name)
                    if found is None:
                        damaged.append(name)
                    else:
                        known[name] = found
        self._known, self.damaged = known, sorted(damaged)
        found_all = [lock for _, lock in known.values() if source in (None, lock.source)]
        return sorted(found_all, key=lambda lock: (lock.source, lock.begin, lock.id))

    def add(self, source: str, begin: int, end: int, *, reason: str, by: str, at: int) -> Lock:
        """Keep video of a source.

        Args:
            begin, end, at: UTC ns.

        Raises:
            StoreFullError: there is no room.
            StoreError: it cannot be written, or the time has no length.
        """
        if end <= begin:
            raise StoreError("a lock must end after it begins")
        lock = Lock(id=secrets.token_hex(8), source=source, begin=begin, end=end, reason=reason, by=by, at=at)
        with translated(self._store.path / LOCKS), self.held(), self._store.folder(LOCKS) as folder:
            write_whole(folder, f"{lock.id}.json", msgspec.json.encode(lock) + b"\n")
        return lock

    def remove(self, id: str) -> Lock:
        """Keep it no longer than other video.

        Raises:
            StoreError: there is no such lock, or it cannot be removed.
        """
        lock = next((lock for lock in self.all() if lock.id == id), None)
        if lock is None:
            raise StoreError(f"{self._store.path}: has no lock {id}")
        with translated(self._store.path / LOCKS), self._store.folder(LOCKS) as folder:
            os.unlink(f"{id}.json", dir_fd=folder)
        return lock

    @contextmanager
    def held(self) -> Iterator[None]:
        """While no lock is added by another process: what was looked at stays true."""
        with ExitStack() as stack:
            with suppress(OSError):  # a full disk, where nobody can add one; a file system without locks
                with self._store.folder(LOCKS, makes=True) as folder:
                    guard = open_file(_GUARD, os.O_RDWR | os.O_CREAT, folder)
                    give(guard, folder)
                stack.callback(os.close, guard)
                fcntl.flock(guard, fcntl.LOCK_EX)
            yield

    def _read(self, folder: int, name: str) -> tuple[int, Lock] | None:
        """None if it is damaged."""
        changed = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns
        known = self._known.get(name)
        if known is not None and known[0] == changed:
            return known
        try:
            file = open_file(name, os.O_RDONLY, folder)
        except FileNotFoundError:
            raise
        except OSError:
            return None
        try:
            lock = _decode(os.read(file, _MAX_BYTES))
        except msgspec.MsgspecError:
            return None
        finally:
            os.close(file)
        return (changed, lock) if f"{lock.id}.json" == name else None
