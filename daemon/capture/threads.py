"""Threads that serve sources: who shares one, and whose turn it is.

Live sources block in their libraries and have a thread each. Recordings do not, and share a few: with 150 threads a
frame costs more in turns of the interpreter's lock than in work. Opening and closing them is for a thread beside.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence

import structlog

from daemon.capture.blocking import BlockingExecutor
from daemon.capture.capture import Capture
from daemon.clock import Bell, Clock
from daemon.config import SourceConfig
from daemon.errors import SourceError

log = structlog.get_logger(__name__)
_SLACK_NS = 8_000_000  # by which a picture may come late, so that others that are due then cost no wake-up of their own
_MOST_LEFT = 3  # threads of a source that are in libraries which do not return
_CLOSE_S = 5.0  # for the readers of sources that have ended to be closed
_MOST_THREADS = 64  # of recordings that the CPU decodes, which the system shares out


class CaptureThreads:
    """All threads that serve sources in one process. Safe to use from every thread.

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
        clock: Clock,
        on_failure: Callable[[str], None],
        use: Callable[[], None],
    ) -> None:
        self._use = use
        self._on_gpu, self._clock, self._on_failure = on_gpu, clock, on_failure
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
        """Begin with all sources.

        Raises:
            SourceError: the system gives no thread.
        """
        with self._lock:
            self._started = True
            for thread in self._threads:
                _start(thread)

    def add(self, capture: Capture) -> None:
        """Begin with another source, in a thread of its own, while others go on; with all others before `start`.

        Raises:
            SourceError: the system gives no thread.
        """
        with self._lock:
            if self._stopped:
                capture.stop()
            thread = self._thread(capture.id, [capture])
            if self._started:
                self._threads = [other for other in self._threads if other.is_alive()]
                _start(thread)
            self._threads.append(thread)

    def take_over(self, capture: Capture, make: Callable[[SourceConfig, int], Capture | None]) -> Capture | None:
        """Take a source from a capture whose library does not return; its thread is left behind, and ends if it ever
        does.

        Args:
            make: what serves the source from the frame of that number on; None where it cannot be made.

        Returns:
            what is to serve it, for `add`; None where it is at work again, or too many of its threads are left behind.
        """
        with self._lock:
            there = [other for thread in self._threads if thread.is_alive() for other in thread.captures]
        left = sum(other.id == capture.id for other in there) - 1
        if self._stopped or left >= _MOST_LEFT or (seq := capture.detach()) is None:
            return None
        return make(capture.config, seq)

    def stop(self) -> None:
        """Ask all sources to end. The caller joins the threads."""
        with self._lock:
            self._stopped = True
            captures = [capture for thread in self._threads for capture in thread.captures]
        for capture in captures:
            capture.stop()
            capture.wake()

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
        own = self._use, self._take_out, phase
        return CaptureThread(name, captures, self._clock, self._on_failure, *own, has_aside=len(captures) > 1)

    def _take_out(self, thread: CaptureThread, capture: Capture) -> bool:
        """Asked after a turn of a source that shares a thread and fell to the CPU: whether another serves it now."""
        if not self._on_gpu or self._stopped:
            return False
        with self._lock:
            own = self._thread(capture.id, [capture])
            try:
                _start(own)
            except SourceError:
                capture.serve_by(thread.wake, None)
                return False
            thread.captures.remove(capture)
            self._threads.append(own)
        return True


def _start(thread: threading.Thread) -> None:
    try:
        thread.start()
    except RuntimeError as error:
        raise SourceError(f"no thread can be started for it: {error}; see the limits of the process") from error


class CaptureThread(threading.Thread):
    """Serves sources in the order in which they want to go on.

    Args:
        use, take_out: see `CaptureThreads`.
        phase: ns; where it serves several, it wakes for their pictures at this moment of each 8 ms. Threads that wake
            at the same moments wait for each other.
        has_aside: a thread beside opens and closes readers, so that other sources need not wait for one that does.

    Attributes:
        captures: that it serves.
    """

    def __init__(
        self,
        name: str,
        captures: Sequence[Capture],
        clock: Clock,
        on_failure: Callable[[str], None],
        use: Callable[[], None] = lambda: None,
        take_out: Callable[[CaptureThread, Capture], bool] = lambda _thread, _capture: False,
        phase: int = 0,
        *,
        has_aside: bool = False,
    ) -> None:
        # A daemon thread: a camera that blocks longer than the time to stop must not keep the process alive.
        super().__init__(name=f"capture-{name}", daemon=True)
        self.captures = [*captures]
        self._clock, self._on_failure = clock, on_failure
        self._use, self._take_out = use, take_out
        self._phase, self._slack = phase, _SLACK_NS if len(captures) > 1 else 1
        self._bell = Bell()
        self.wake = self._bell.ring
        self._aside = BlockingExecutor(f"{self.name}-aside", self.wake) if has_aside else None
        for capture in captures:
            capture.serve_by(self.wake, self._aside)

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
                self._aside.join(_CLOSE_S)

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
            following = capture.step()
            if following is None or (capture.fell_to_cpu and len(waiting) > 1 and self._take_out(self, capture)):
                heapq.heappop(waiting)
            else:
                heapq.heapreplace(waiting, (following, number, capture))
