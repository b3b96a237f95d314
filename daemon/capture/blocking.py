"""A thread beside one that serves many sources, for what would hold all of them up: opening may take 50 ms of CPU."""

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
    """Works off one thing after the other.

    Args:
        on_done: called after each.
    """

    def __init__(self, name: str, on_done: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._on_done = on_done
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()

    def ask(self, work: Callable[[], T]) -> Future[T]:
        """What it returns or raises, some time."""
        answer: Future[T] = Future()
        self._work.put((work, answer))
        return answer

    def close(self, work: Callable[[], None]) -> None:
        """What closes a source: nobody waits for it, and that it fails is logged."""
        self.ask(work).add_done_callback(_note)

    def end(self) -> None:
        """When all that was asked for is done."""
        self._work.put(None)

    def run(self) -> None:
        while item := self._work.get():
            work, answer = item
            try:
                answer.set_result(work())
            except Exception as error:  # noqa: BLE001 - it is for whoever asked
                answer.set_exception(error)
            del item, work, answer  # what came of it is not to be kept until the next
            self._on_done()


def _note(answer: Future[None]) -> None:
    if error := answer.exception():
        log.error("a source could not be closed", exc_info=error)
