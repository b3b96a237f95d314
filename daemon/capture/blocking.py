"""A one-thread executor for calls that would block a thread with many sources: opening may take 50 ms of CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import structlog

log = structlog.get_logger(__name__)
T = TypeVar("T")


class BlockingExecutor(threading.Thread):
    """Runs calls one after the other.

    Args:
        on_done: called after each call.
    """

    def __init__(self, name: str, on_done: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._on_done = on_done
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue a call; the future gets its result or error."""
        future: Future[T] = Future()
        self._work.put((work, future))
        return future

    def close(self, work: Callable[[], None]) -> None:
        """Queue the closing of a source; an error is logged."""
        self.submit(work).add_done_callback(_note)

    def shutdown(self) -> None:
        """End the thread after the calls that are queued."""
        self._work.put(None)

    def run(self) -> None:
        while item := self._work.get():
            work, future = item
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - goes to the future
                future.set_exception(error)
            del item, work, future  # the result must not live until the next call
            self._on_done()


def _note(future: Future[None]) -> None:
    if error := future.exception():
        log.error("a source could not be closed", exc_info=error)
