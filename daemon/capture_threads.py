"""Threads that serve sources: who shares one, and whose turn it is.

Live sources block in their libraries and have a thread each. Recordings do not, and share a few: with 150 threads a
frame costs more in turns of the interpreter's lock than in work.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence

import structlog

from daemon.capture import Board, Capture
from daemon.clock import Clock

log = structlog.get_logger(__name__)
_MOST_THREADS = 64  # of recordings that the CPU decodes, which the system shares out


def share_out(
    captures: Sequence[Capture], threads: int, board: Board, clock: Clock, on_failure: Callable[[str], None]
) -> list[CaptureThread]:
    """One thread for each live source, and as many for recordings as do them good.

    Args:
        threads: that keep the GPU's decoder busy; recordings that the CPU decodes have more.
        on_failure: told once a thread has died, which no source's trouble may cause.
    """
    groups = [(capture.id, [capture]) for capture in captures if capture.live]
    for on_gpu, most in ((True, threads), (False, _MOST_THREADS)):
        sharing = [capture for capture in captures if not capture.live and capture.asks_gpu == on_gpu]
        for number in range(min(len(sharing), most)):
            group = sharing[number::most]
            groups.append((group[0].id if len(group) == 1 else f"recordings-{len(groups)}", group))
    return [CaptureThread(name, group, board, clock, on_failure) for name, group in groups]


class CaptureThread(threading.Thread):
    """Serves sources in the order in which they want to go on."""

    def __init__(
        self,
        name: str,
        captures: Sequence[Capture],
        board: Board,
        clock: Clock,
        on_failure: Callable[[str], None],
    ) -> None:
        # A daemon thread: a camera that blocks longer than the time to stop must not keep the process alive.
        super().__init__(name=f"capture-{name}", daemon=True)
        self._captures, self._clock, self._on_failure = captures, clock, on_failure
        self._wake = threading.Event()
        for capture in captures:
            board.listen(capture.id, self._wake.set)

    def stop(self) -> None:
        """Ask all its sources to end; join it with a time limit."""
        for capture in self._captures:
            capture.stop()
        self._wake.set()

    def end(self, source: str) -> None:
        """Ask one of its sources to end, if it is one of its."""
        for capture in self._captures:
            if capture.id == source:
                capture.stop()
                self._wake.set()

    def run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            log.exception("capture thread failed", thread=self.name)
            self._on_failure(f"{self.name} failed: {type(error).__name__}: {error}")

    def _serve(self) -> None:
        # Time at which to go on, a number that decides between equals, and the life.
        waiting = [(0, number, capture.life()) for number, capture in enumerate(self._captures)]
        while waiting:
            due, number, life = waiting[0]
            left = due - self._clock.monotonic_ns()
            if left > 0:
                if self._clock.wait(self._wake, left / 1e9):
                    self._wake.clear()
                    waiting = [(0, number, life) for _, number, life in waiting]
                continue
            following = next(life, None)
            if following is None:
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, (following, number, life))
