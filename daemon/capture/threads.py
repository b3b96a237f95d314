"""All threads that serve sources in one process: one a camera, and a few that recordings share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from daemon.capture.camera import CameraCapture, CameraThread
from daemon.capture.capture import Capture
from daemon.capture.recordings import SLACK_NS, RecordingCapture, RecordingsThread
from daemon.clock import Clock
from daemon.config import SourceConfig
from daemon.errors import SourceError
from daemon.sources.port import Source

_MOST_LEFT = 3  # threads of a source that are in libraries which do not return
_MOST_THREADS = 64  # of recordings that the CPU decodes, which the system shares out


def capture_kind(source: Source) -> type[Capture]:
    """The capture that serves a source of its kind."""
    return CameraCapture if source.live else RecordingCapture


class CaptureThreads:
    """All threads that serve sources in one process. Safe to use from every thread.

    A recording that the GPU's decoder turns out not to take leaves those that share a thread for one of its own: the
    CPU takes several times as long for a picture, and they would wait for it.

    Args:
        captures: the first sources.
        on_gpu: threads that keep the GPU's decoder busy with recordings, 0 where there is none.
        make_current: called by each thread before it looks at pictures.
        on_failure: told once a thread has died, which no source's trouble may cause.
    """

    def __init__(
        self,
        captures: Sequence[Capture],
        on_gpu: int,
        clock: Clock,
        on_failure: Callable[[str], None],
        make_current: Callable[[], None],
    ) -> None:
        self._make_current = make_current
        self._on_gpu, self._clock, self._on_failure = on_gpu, clock, on_failure
        self._lock = threading.Lock()
        self._started = self._stopped = False
        self._threads: list[CameraThread | RecordingsThread] = []
        for capture in captures:
            if isinstance(capture, CameraCapture):
                self._threads.append(self._thread(capture))
        recordings = [capture for capture in captures if isinstance(capture, RecordingCapture)]
        self._threads += [self._shared(*group) for group in self._groups(recordings)]

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
            thread = self._thread(capture)
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

    def _groups(self, recordings: Sequence[RecordingCapture]) -> Iterator[tuple[str, list[RecordingCapture], int]]:
        """Names of threads, the recordings of each, and their phases."""
        for on_gpu, most in ((True, self._on_gpu or _MOST_THREADS), (False, _MOST_THREADS)):
            sharing = [capture for capture in recordings if capture.asks_gpu == on_gpu]
            threads = min(len(sharing), most)
            for number in range(threads):
                group = sharing[number::most]
                kind = "recordings" if on_gpu else "cpu-recordings"
                name = group[0].id if len(group) == 1 else f"{kind}-{number}"
                yield name, group, SLACK_NS * number // threads

    def _thread(self, capture: Capture) -> CameraThread | RecordingsThread:
        """One of its own."""
        if isinstance(capture, CameraCapture):
            return CameraThread(capture, self._make_current, self._on_failure)
        return self._shared(capture.id, [cast("RecordingCapture", capture)], 0)

    def _shared(self, name: str, captures: Sequence[RecordingCapture], phase: int) -> RecordingsThread:
        return RecordingsThread(
            name,
            captures,
            self._clock,
            self._make_current,
            self._on_failure,
            take_out=self._take_out,
            phase=phase,
            has_aside=len(captures) > 1,
        )

    def _take_out(self, thread: RecordingsThread, capture: RecordingCapture) -> bool:
        """Asked after a turn of a source that shares a thread and fell to the CPU: whether another serves it now."""
        if not self._on_gpu or self._stopped:
            return False
        with self._lock:
            own = self._thread(capture)
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
