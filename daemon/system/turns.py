"""Turns at what NVIDIA's driver does for one process of a host at a time, whichever GPU it uses: to open decoders.

Threads that wait within the driver do not sleep. Here they do. A turn is a lock on a file. The kernel takes it
back when its process ends, however that ends. Turns are a courtesy to others: where the file cannot be had, or nobody
gets on for a while, the work is done without one.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from daemon.clock import Clock, SystemClock
from daemon.system.libc import libc

log = structlog.get_logger(__name__)

FOLDER_VARIABLE = "LOOKOUT_HOST_FOLDER"
_NAME = "lookout-decoders"
_ALONE_NS = 60_000_000_000  # without turns, once nobody has got on
_POLL_S = 0.002
_MAX_GAP_S = 0.25
_LATE_FOR_NS = 3_000_000_000  # what was said of lateness holds so long
_NUMBER_BYTES = 8


@dataclass(frozen=True)
class Pace:
    """Attributes:
    abreast: turns at once, so that the driver does not wait while one thread wakes another.
    late_gap: pause after a turn, as a part of its length, while a daemon of the host is late; then there is one turn
        at a time.
    patience_s: how long to wait while nobody of the host gets on.
    """

    abreast: int = 2
    late_gap: float = 2.0
    patience_s: float = 5.0


def host_folder() -> Path:
    """The folder for what all daemons of a host share."""
    return Path(os.environ.get(FOLDER_VARIABLE) or "/dev/shm")  # noqa: S108 - see `_opened`


class Turns:
    """Turns of this process among all of the host; safe to use from every thread.

    Args:
        folder: where the locks are; None for `host_folder`.
    """

    def __init__(self, folder: Path | None = None, pace: Pace | None = None, clock: Clock | None = None) -> None:
        self._folder, self._pace, self._clock = folder or host_folder(), pace or Pace(), clock or SystemClock()
        self._never = threading.Event()  # waited on
        count = self._pace.abreast
        self._slots = [_Slot(self._folder / f"{_NAME}-{number}.lock") for number in range(count)]
        self._places = threading.Semaphore(count)  # whoever has one waits for a turn of the host, and has it
        self._done = 0  # turns of this process
        self._refused: tuple[int, int] | None = None  # since when no turn was free, and how many had been had by then
        self._alone_until_ns = 0
        self._is_told = False
        self._lateness = HostLateness(self._folder, self._clock)

    @contextmanager
    def taken(self) -> Iterator[bool]:
        """Wait for a turn and have it; False if it is done without one."""
        if not self._has_place():
            yield False
            return
        try:
            slot = self._slot()
            if slot is None:
                yield False
                return
            begun = self._clock.monotonic_ns()
            try:
                yield True
            finally:
                self._end(slot, begun)
        finally:
            self._leave_place()

    def taken_if_free(self) -> AbstractContextManager[bool] | None:
        """A turn that is had from now until it is left; None while others have theirs. See `taken`.

        A thread that has other things to do meanwhile asks again.
        """
        if self._clock.monotonic_ns() < self._alone_until_ns:
            return nullcontext(False)
        if not self._places.acquire(blocking=False):
            return self._refusal("other threads of this process do not get on")
        slot = None
        try:
            slot = self._free_slot()
        except OSError as error:
            self._go_alone(f"{self._folder}: {error.strerror}")
            return nullcontext(False)
        finally:
            if slot is None:
                self._places.release()
        if slot is None:
            return self._refusal("another process of this host does not get on")
        self._refused = None
        return _Had(partial(self._end_all, slot, self._clock.monotonic_ns()))

    def _refusal(self, reason: str) -> AbstractContextManager[bool] | None:
        """None, or no turn once nobody has got on for a while."""
        now, count = self._clock.monotonic_ns(), self._done + self._count
        refused = self._refused
        if refused is None or refused[1] != count:
            self._refused = now, count
        elif now - refused[0] > self._pace.patience_s * 1e9:
            self._refused = None
            self._go_alone(reason)
            return nullcontext(False)
        return None

    def _end_all(self, slot: _Slot, begun: int) -> None:
        try:
            self._end(slot, begun)
        finally:
            self._leave_place()

    def _end(self, slot: _Slot, begun: int) -> None:
        """Give a turn back, after a pause while somebody is late."""
        if self._lateness.is_told:
            took = (self._clock.monotonic_ns() - begun) / 1e9
            self._clock.wait(self._never, min(_MAX_GAP_S, self._pace.late_gap * took))
        slot.give_back()

    def _leave_place(self) -> None:
        self._done += 1
        self._places.release()

    @property
    def _count(self) -> int:
        """Turns that all of the host have had."""
        return sum(slot.count for slot in self._slots)

    def _free_slot(self) -> _Slot | None:
        """A turn of the host, None if all are had. Raises OSError: they cannot be."""
        for slot in self._slots[:1] if self._lateness.is_told else self._slots:
            if slot.take():
                return slot
        return None

    def _has_place(self) -> bool:
        """Wait to be among the first of this process; False if none of them gets on."""
        while self._clock.monotonic_ns() >= self._alone_until_ns:
            before = self._done
            if self._places.acquire(timeout=self._pace.patience_s):
                return True
            if self._done == before:
                self._go_alone("other threads of this process do not get on")
        return False

    def _slot(self) -> _Slot | None:
        """Wait for a turn of the host; None if it cannot be had."""
        now = self._clock.monotonic_ns
        if now() < self._alone_until_ns:
            return None
        count, since = -1, now()
        try:
            while True:
                if slot := self._free_slot():
                    return slot
                self._clock.wait(self._never, _POLL_S)
                if count != (count := self._count):
                    since = now()
                elif now() - since > self._pace.patience_s * 1e9:
                    self._go_alone("another process of this host does not get on")
                    return None
        except OSError as error:
            self._go_alone(f"{self._folder}: {error.strerror}")
            return None

    def _go_alone(self, reason: str) -> None:
        self._alone_until_ns = self._clock.monotonic_ns() + _ALONE_NS
        if not self._is_told:
            self._is_told = True
            log.warning("decoders open without turns: others of this host may lose frames meanwhile", reason=reason)

    def close(self) -> None:
        for slot in self._slots:
            slot.close()


class _Had(AbstractContextManager[bool]):
    """A turn that is given back when it is left."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        self._end()


class _Slot:
    """A turn that one thread of the host has at a time."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, -1
        self._own = threading.Lock()  # all threads of a process have one lock of the file

    def take(self) -> bool:
        """Whether it is free, and now this thread's.

        Raises:
            OSError: the file cannot be had.
        """
        if not self._own.acquire(blocking=False):
            return False
        try:
            if self._file < 0:
                self._file = _opened(self._path)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._file).st_nlink:
                return True
            self.close()  # systemd removes the files of a service that ends: others have a new one, or will have
        except BlockingIOError:
            pass
        except BaseException:
            self._own.release()
            raise
        self._own.release()
        return False

    def give_back(self) -> None:
        # Neither call waits: others must not wait until this thread has the interpreter's lock again.
        libc().pwrite(self._file, (self.count + 1).to_bytes(_NUMBER_BYTES, "little"), _NUMBER_BYTES, 0)
        libc().flock(self._file, fcntl.LOCK_UN)
        self._own.release()

    @property
    def count(self) -> int:
        """Turns that were had so far; 0 before the first `take`."""
        return _number_in(self._file) if self._file >= 0 else 0

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class HostLateness:
    """A note for all daemons of a host: frames of one are late, so that those who open decoders leave time.

    Args:
        folder: as of `Turns`.
    """

    def __init__(self, folder: Path | None = None, clock: Clock | None = None) -> None:
        self._now = (clock or SystemClock()).monotonic_ns
        self._path = (folder or host_folder()) / f"{_NAME}.late"

    def tell(self) -> None:
        """This daemon is late. Where the file cannot be written, nobody hears it."""
        with suppress(OSError):
            file = _opened(self._path)
            try:
                os.pwrite(file, self._now().to_bytes(_NUMBER_BYTES, "little"), 0)
            finally:
                os.close(file)

    @property
    def is_told(self) -> bool:
        """Whether any daemon has told it lately."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return 0 <= self._now() - _number_in(file) < _LATE_FOR_NS
        except OSError:
            return False
        finally:
            os.close(file)


def _number_in(file: int) -> int:
    return int.from_bytes(os.pread(file, _NUMBER_BYTES, 0), "little")


def _opened(path: Path) -> int:
    """Open a file that every user of the host may write, in a folder where others may have put anything.

    Raises:
        OSError: it cannot be opened, or is no file.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(path, flags)
    except FileNotFoundError:
        try:
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(file, 0o666)  # daemons of other users take turns, too
        except FileExistsError:
            file = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(22, "it is no file")
    return file
