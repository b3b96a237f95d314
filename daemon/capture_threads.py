"""Threads that serve sources: who shares one, and whose turn it is.

Live sources block in their libraries and have a thread each. Recordings do not, and share a few: with 150 threads a
frame costs more in turns of the interpreter's lock than in work. Opening and closing them is for a thread beside.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence

import structlog

from daemon.aside import Aside
from daemon.capture import Capture
from daemon.capture_port import Board
from daemon.clock import Bell, Clock
from daemon.config import SourceConfig

log = structlog.get_logger(__name__)
_SLACK_NS = 8_000_000  # by which a picture may come late, so that others that are due then cost no wake-up of their own
_MOST_LEFT = 3  # threads of a source that are in libraries which do not return
_MOST_THREADS = 64  # of recordings that the CPU decodes, which the system shares out


class Crew:
    """All threads that serve sources in one process; one thread adds, ends and stops.

    A recording that the GPU's decoder turns out not to take leaves those that share a thread for one of its own: the
    CPU takes several times as long for a picture, and they would wait for it.

    Args:
        captures: the first sources.
        on_gpu: threads that keep the GPU's decoder busy with recordings, 0 where there is none.
        use: called by each thread before it looks at pictures.
        on_failure: told once a thread has died, which no source's trouble may cause.
    """

    def __init__(
        self,
        captures: Sequence[Capture],
        on_gpu: int,
        board: Board,
        clock: Clock,
        on_failure: Callable[[str], None],
        use: Callable[[], None],
    ) -> None:
        self._use = use
        self._on_gpu, self._board, self._clock, self._on_failure = on_gpu, board, clock, on_failure
        self._lock = threading.Lock()
        self._started = self._stopped = False
        self._threads = [self._thread(*group) for group in self._groups(captures)]

    @property
    def threads(self) -> list[threading.Thread]:
        """Those that have not come to their end."""
        with self._lock:
            self._threads = [thread for thread in self._threads if not self._started or thread.is_alive()]
            return [*self._threads]

    def start(self) -> None:
        with self._lock:
            self._started = True
            for thread in self._threads:
                thread.start()

    def add(self, capture: Capture) -> None:
        """Begin with another source, in a thread of its own, while others go on."""
        with self._lock:
            if self._stopped:
                capture.stop()
            thread = self._thread(capture.id, [capture])
            self._threads.append(thread)
            thread.start()

    def renew(self, capture: Capture, make: Callable[[SourceConfig, int], Capture]) -> Capture | None:
        """Begin anew with a source whose library does not return; its thread is left behind, and ends if it ever does.

        Args:
            make: what serves the source from the frame of that number on.

        Returns:
            what serves it now; None where it is at work again, or too many of its threads are left behind already.
        """
        with self._lock:
            there = [other for thread in self._threads if thread.is_alive() for other in thread.captures]
        left = sum(other.id == capture.id for other in there) - 1
        if self._stopped or left >= _MOST_LEFT or (seq := capture.hand_over()) is None:
            return None
        by = make(capture.config, seq)
        self.add(by)
        return by

    def end(self, capture: Capture) -> None:
        """Ask one source to end."""
        capture.stop()
        self._wake()

    def stop(self) -> None:
        """Ask all sources to end; join the threads with a time limit."""
        self._stopped = True
        with self._lock:
            captures = [capture for thread in self._threads for capture in thread.captures]
        for capture in captures:
            capture.stop()
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            for thread in self._threads:
                thread.wake()

    def _groups(self, captures: Sequence[Capture]) -> Iterator[tuple[str, list[Capture], int]]:
        """Names of threads, whom they serve, and their phases."""
        yield from ((capture.id, [capture], 0) for capture in captures if capture.live)
        recordings = [capture for capture in captures if not capture.live]
        for on_gpu, most in ((True, self._on_gpu or _MOST_THREADS), (False, _MOST_THREADS)):
            sharing = [capture for capture in recordings if capture.asks_gpu == on_gpu]
            threads = min(len(sharing), most)
            for number in range(threads):
                group = sharing[number::most]
                kind = "recordings" if on_gpu else "cpu-recordings"
                name = group[0].id if len(group) == 1 else f"{kind}-{number}"
                yield name, group, _SLACK_NS * number // threads

    def _thread(self, name: str, captures: Sequence[Capture], phase: int = 0) -> CaptureThread:
        thread = CaptureThread(
            name, captures, self._board, self._clock, self._on_failure, self._use, self._take_out, phase
        )
        if len(captures) > 1:
            thread.open_aside()
        return thread

    def _take_out(self, thread: CaptureThread, capture: Capture) -> bool:
        """Asked after a turn of a source that shares a thread and fell to the CPU: whether another serves it now."""
        if not self._on_gpu or self._stopped:
            return False
        with self._lock:
            thread.captures.remove(capture)
            own = self._thread(capture.id, [capture])
            self._threads.append(own)
            own.start()
        return True


class CaptureThread(threading.Thread):
    """Serves sources in the order in which they want to go on.

    Args:
        use, take_out: see `Crew`.
        phase: ns; where it serves several, it wakes for their pictures at this moment of each 8 ms. Threads that wake
            at the same moments wait for each other.

    Attributes:
        captures: that it serves.
    """

    def __init__(
        self,
        name: str,
        captures: Sequence[Capture],
        board: Board,
        clock: Clock,
        on_failure: Callable[[str], None],
        use: Callable[[], None] = lambda: None,
        take_out: Callable[[CaptureThread, Capture], bool] = lambda _thread, _capture: False,
        phase: int = 0,
    ) -> None:
        # A daemon thread: a camera that blocks longer than the time to stop must not keep the process alive.
        super().__init__(name=f"capture-{name}", daemon=True)
        self.captures = [*captures]
        self._clock, self._on_failure = clock, on_failure
        self._use, self._take_out = use, take_out
        self._phase, self._slack = phase, _SLACK_NS if len(captures) > 1 else 1
        self._aside: Aside | None = None
        self._bell = Bell()
        self.wake = self._bell.ring
        for capture in captures:
            capture.aside = None
            board.listen(capture.id, self.wake)

    def open_aside(self) -> None:
        """Others of its sources are not to wait for one that opens or closes; before it is started."""
        self._aside = Aside(f"{self.name}-aside", self.wake)
        for capture in self.captures:
            capture.aside = self._aside

    def run(self) -> None:
        try:
            if self._aside:
                self._aside.start()
            self._use()
            self._serve()
        except Exception as error:
            log.exception("capture thread failed", thread=self.name)
            self._on_failure(f"{self.name} failed: {type(error).__name__}: {error}")
        finally:
            if self._aside and self._aside.is_alive():
                self._aside.end()
                self._aside.join()

    def _serve(self) -> None:
        # Time at which to go on, a number that decides between equals, and the capture.
        waiting = [(0, number, capture) for number, capture in enumerate(self.captures)]
        while waiting:
            due, number, capture = waiting[0]
            left = due - self._clock.monotonic_ns()
            if left > 0:
                left += (self._phase - due) % self._slack
                if self._clock.wait(self._bell, left / 1e9):
                    waiting = [(0, number, capture) for _, number, capture in waiting]
                continue
            following = capture.go_on()
            if following is None or (capture.fell_to_cpu and len(waiting) > 1 and self._take_out(self, capture)):
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, (following, number, capture))
