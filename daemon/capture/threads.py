"""The capture threads of a process: one for each camera, and a few that recordings share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from daemon.capture.camera import CameraCapture, CameraThread, ThreadContext
from daemon.capture.capture import Capture
from daemon.capture.recordings import SLACK_NS, RecordingCapture, RecordingsThread
from daemon.config.sources import SourceConfig
from daemon.errors import SourceError
from daemon.sources.port import Source

_MAX_ABANDONED = 3  # of a source: threads whose library does not return
_MAX_CPU_THREADS = 64  # for recordings that the CPU decodes; the kernel schedules them


def capture_kind(source: Source) -> type[Capture]:
    """The capture class for a source."""
    return CameraCapture if source.live else RecordingCapture


class CaptureThreads:
    """Runs all captures of a process. Safe to use from every thread.

    A recording that falls back to the CPU moves from a shared thread to one of its own: the CPU takes several times as
    long for a picture, and the others would wait.

    Args:
        captures: the first sources.
        gpu_threads: threads that keep the GPU's decoder busy with recordings, 0 without a GPU.
    """

    def __init__(
        self,
        captures: Sequence[Capture],
        gpu_threads: int,
        context: ThreadContext,
    ) -> None:
        self._gpu_threads, self._thread_context = gpu_threads, context
        self._lock = threading.Lock()
        self._started = self._stopped = False
        self._threads: list[CameraThread | RecordingsThread] = []
        for capture in captures:
            if isinstance(capture, CameraCapture):
                self._threads.append(self._own_thread(capture))
        recordings = [capture for capture in captures if isinstance(capture, RecordingCapture)]
        self._threads += [self._recordings_thread(*group) for group in self._groups(recordings)]

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads that have not ended."""
        with self._lock:
            self._threads = [thread for thread in self._threads if not self._started or thread.is_alive()]
            return [*self._threads]

    def start(self) -> None:
        """Start all threads.

        Raises:
            SourceError: the system has no thread left.
        """
        with self._lock:
            self._started = True
            for thread in self._threads:
                _start(thread)

    def add(self, capture: Capture) -> None:
        """Add a source in a thread of its own; it starts now, or with the others at `start`.

        Raises:
            SourceError: the system has no thread left.
        """
        with self._lock:
            if self._stopped:
                capture.stop()
            thread = self._own_thread(capture)
            if self._started:
                self._threads = [other for other in self._threads if other.is_alive()]
                _start(thread)
            self._threads.append(thread)

    def take_over(self, capture: Capture, make: Callable[[SourceConfig, int], Capture | None]) -> Capture | None:
        """Replace a capture whose library does not return. Its thread is abandoned, and ends if the library returns.

        Args:
            make: makes a capture that begins with a frame number; None if it cannot.

        Returns:
            The new capture, for `add`; None if the library has returned, or too many threads are abandoned.
        """
        with self._lock:
            there = [other for thread in self._threads if thread.is_alive() for other in thread.captures]
        left = sum(other.id == capture.id for other in there) - 1
        if self._stopped or left >= _MAX_ABANDONED or (seq := capture.detach()) is None:
            return None
        return make(capture.config, seq)

    def stop(self) -> None:
        """Stop all captures. The caller joins the threads."""
        with self._lock:
            self._stopped = True
            captures = [capture for thread in self._threads for capture in thread.captures]
        for capture in captures:
            capture.stop()
            capture.wake()

    def _groups(self, recordings: Sequence[RecordingCapture]) -> Iterator[tuple[str, list[RecordingCapture], int]]:
        """Names, recordings and phases of the threads."""
        for on_gpu, max_threads in ((True, self._gpu_threads or _MAX_CPU_THREADS), (False, _MAX_CPU_THREADS)):
            sharing = [capture for capture in recordings if capture.config.wants_gpu == on_gpu]
            threads = min(len(sharing), max_threads)
            for number in range(threads):
                group = sharing[number::max_threads]
                kind = "recordings" if on_gpu else "cpu-recordings"
                name = group[0].id if len(group) == 1 else f"{kind}-{number}"
                yield name, group, SLACK_NS * number // threads

    def _own_thread(self, capture: Capture) -> CameraThread | RecordingsThread:
        """A thread for one source."""
        if isinstance(capture, CameraCapture):
            return CameraThread(capture, self._thread_context)
        return self._recordings_thread(capture.id, [cast("RecordingCapture", capture)], 0)

    def _recordings_thread(self, name: str, captures: Sequence[RecordingCapture], phase: int) -> RecordingsThread:
        return RecordingsThread(
            name, captures, self._thread_context, move_out=self._move_out, phase=phase, has_executor=len(captures) > 1
        )

    def _move_out(self, thread: RecordingsThread, capture: RecordingCapture) -> bool:
        """Move a recording that fell back to the CPU out of a shared thread; True if it has moved."""
        if not self._gpu_threads or self._stopped:
            return False
        with self._lock:
            own = self._own_thread(capture)
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
