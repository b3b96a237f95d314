"""Threads that wait for the disk of one store, so that nobody else does.

A read of a file system that hangs cannot be ended, not even by SIGKILL. So each store has a few threads of its own: a
request that gets no answer in time goes without one, and what its thread brings later is thrown away.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException

from daemon.clock import Clock
from daemon.playback.opened import OpenedStore, PlayPlace
from daemon.recording.boxes import BoxError
from daemon.recording.errors import StoreError

T = TypeVar("T")
PATIENCE_S = 5.0
_THREADS = 4
_MAX_WAITING = 64


class _Job:
    """A call that a thread is to make.

    Attributes:
        begun_ns: monotonic; None before.
    """

    def __init__(self, work: Callable[[OpenedStore], Any], asked: asyncio.Future[Any]) -> None:
        self.work, self.asked = work, asked
        self.begun_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        self.begun_ns = now_ns


class StoreWorkers:
    """The event loop's thread alone calls it.

    Args:
        patience_s: for each answer.

    Attributes:
        name: of the store.
    """

    def __init__(self, place: PlayPlace, clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self.name, self._place, self._clock, self._patience_s = place.name, place, clock, patience_s
        self._lock = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._threads = 0

    async def ask(self, work: Callable[[OpenedStore], T]) -> T:
        """Have a thread do something with the store.

        Args:
            work: returns a value, or something with `close()` that is called if nobody waits any more.

        Raises:
            HTTPException: 503: there is no answer, or the store cannot be read; or what `work` raises.
        """
        asked: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._add(_Job(work, asked))
        try:
            return await asyncio.wait_for(asked, self._patience_s)
        except asyncio.TimeoutError as error:
            raise self._hung() from error
        except StoreError as error:
            raise HTTPException(503, f"store {self.name!r}: {error}") from error
        except BoxError as error:
            raise HTTPException(409, f"a recording is damaged: {error}") from error
        except OSError as error:
            raise HTTPException(503, f"store {self.name!r}: {error.strerror or error}") from error
        except msgspec.MsgspecError as error:
            raise HTTPException(503, f"store {self.name!r}: its index is damaged: {error}") from error

    def later(self, work: Callable[[], None]) -> None:
        """Have a thread do something for which nobody waits."""
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(_Job(lambda _: work(), asked), is_wanted=False)

    def _add(self, job: _Job, *, is_wanted: bool = True) -> None:
        """
        Raises:
            HTTPException: 503: too many wait, or no thread has moved for as long as one waits.
        """
        with self._lock:
            if is_wanted and (len(self._waiting) >= _MAX_WAITING or self._is_hung()):
                raise self._hung()
            self._waiting.append(job)
            if self._threads < _THREADS and len(self._running) + len(self._waiting) > self._threads:
                self._threads += 1
                threading.Thread(target=self._run, name=f"store-{self.name}", daemon=True).start()
            self._lock.notify()

    def _is_hung(self) -> bool:
        limit = self._clock.monotonic_ns() - int(self._patience_s * 1e9)
        begun = [job.begun_ns for job in self._running if job.begun_ns is not None]
        return len(begun) >= _THREADS and max(begun) < limit

    def _hung(self) -> HTTPException:
        reason = f"store {self.name!r} does not answer: its disk or network hangs, or it is busy"
        return HTTPException(503, reason, {"Retry-After": "5"})

    def _run(self) -> None:
        opened = OpenedStore(self._place)
        while True:
            with self._lock:
                while not self._waiting:
                    self._lock.wait()
                job = self._waiting.popleft()
                if job.asked.done():  # nobody waits for it any more
                    continue
                job.begin(self._clock.monotonic_ns())
                self._running.append(job)
            _do(job, opened, self.name)
            with self._lock:
                self._running.remove(job)


def _do(job: _Job, opened: OpenedStore, name: str) -> None:
    found, error = None, None
    try:
        opened.refresh()
        found = job.work(opened)
    except Exception as problem:  # noqa: BLE001 - of the one that asked
        error = problem
    with suppress(RuntimeError):  # the server has stopped
        job.asked.get_loop().call_soon_threadsafe(_tell, job.asked, found, error, name)
        return
    _close(found)


def _tell(asked: asyncio.Future[Any], found: Any, error: Exception | None, name: str) -> None:
    if asked.done():
        if hasattr(found, "close"):  # may take as long as any call
            threading.Thread(target=found.close, name=f"store-{name}", daemon=True).start()
    elif error is not None:
        asked.set_exception(error)
    else:
        asked.set_result(found)


def _close(found: Any) -> None:
    if hasattr(found, "close"):
        found.close()
