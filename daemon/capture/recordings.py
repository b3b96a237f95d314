"""Recordings share threads: with 150 threads a frame costs more in switches of the GIL than in work.

A recording never blocks in its library for long. Its steps are a generator that yields the time of the next step, so
one thread serves many recordings. An executor opens and closes readers.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from typing import TypeVar

import structlog

from daemon.capture.blocking import BlockingExecutor
from daemon.capture.camera import ThreadContext
from daemon.capture.capture import POLL_NS, Capture, Wait
from daemon.capture.library import DetachedError
from daemon.capture.timing import Pacer
from daemon.clock import Bell
from daemon.errors import DecodeError
from daemon.sources.decode import NVDEC
from daemon.sources.port import Picture, Reader, Skipped

log = structlog.get_logger(__name__)
T = TypeVar("T")
SLACK_NS = 8_000_000  # a picture may come this late, so that one wake-up serves several
_CLOSE_S = 5.0  # time limit for closing readers at the end


class RecordingCapture(Capture):
    """A source that gives pictures as fast as they are read.

    Attributes:
        fell_back_to_cpu: this connection should use the GPU's decoder and does not.
    """

    fell_back_to_cpu = False
    _executor: BlockingExecutor | None = None
    _pacer: Pacer | None = None

    @cached_property
    def step(self) -> Callable[[], int | None]:
        """Runs one step; returns the monotonic time of the next, ns, or None at the end."""
        return partial(next, self._steps(), None)

    def serve_by(self, wake: Callable[[], None], executor: BlockingExecutor | None) -> None:
        """Move to another thread.

        Args:
            wake: wakes that thread.
            executor: runs blocking calls, if other sources share the thread.
        """
        self.wake, self._executor = wake, executor
        self.listen()

    def _steps(self) -> Wait:
        """All steps, from the first connection to the end."""
        try:
            while not self._stop.is_set:
                error: Exception | None = None
                try:
                    yield from self._connection()
                except Exception as raised:  # noqa: BLE001 - a library may raise anything; `_retry_in` judges
                    error = raised
                delay, error = self._retry_in(error), None  # a traceback would hold the decoder's memory
                if delay is None:
                    break
                yield from self._until_retry(delay)
            yield from self._until_settled()
        except DetachedError:
            return
        self._announce_ended()

    def _connection(self) -> Wait:
        """Open a connection and read it to its end.

        Raises:
            SourceError: it cannot be opened, or it broke.
        """
        self._begin_connection()
        reader = yield from self._open_reader()
        if reader is None:
            return
        try:
            future = self._request_admission(reader)
            yield from self._until_admitted(future)
            if self._is_admitted(reader, future):
                self.fell_back_to_cpu = self.config.wants_gpu and reader.format.decoder != NVDEC
                yield from self._play(reader)
        finally:
            self.fell_back_to_cpu = False
            self._end_connection()
            self._close(reader)

    def _play(self, reader: Reader) -> Wait:
        """Read until there are no more pictures."""
        self._pacer = Pacer(self._clock, self.id) if self._source.realtime else None
        # An empty decoder takes packets for 50 ms before it gives a picture.
        executor = None if self.fell_back_to_cpu else self._executor
        while not self._stop.is_set:
            try:
                if executor:
                    picture = yield from self._read_first(executor, reader)
                else:
                    picture = self._library.call(reader.read)
                if picture is None:
                    self._check_delivered()
                    return
                if isinstance(picture, Skipped):
                    self._count_dropped(picture.cause)
                    continue
                if reader.format is not self.format:
                    yield from self._until_readmitted(reader)
                if self._pacer:
                    yield from self._until_due(self._pacer.due(picture.pts))
                if self._stop.is_set:
                    return
                has_room = self._process(reader, picture)
            except DecodeError as error:
                self._on_decode_error(error)
                continue
            executor = picture = None
            if has_room:
                yield self._condition.heard_ns  # other sources go first
            else:
                yield from self._until_room()

    def _open_reader(self) -> Generator[int, None, Reader | None]:
        """The open reader; None if stopped before."""
        if self._executor is None:
            return self._open()
        opening = yield from self._run_blocking(self._executor, partial(self._source.open, self._allowance.budget))
        if not opening.done():
            opening.add_done_callback(_close_unwanted)
            return None
        return opening.result()

    def _read_first(self, executor: BlockingExecutor, reader: Reader) -> Generator[int, None, Picture | Skipped | None]:
        """The first picture; None if there is none, or if stopped before."""
        reading = yield from self._run_blocking(executor, reader.read)
        return reading.result() if reading.done() else None

    def _run_blocking(self, executor: BlockingExecutor, work: Callable[[], T]) -> Generator[int, None, Future[T]]:
        """The future of a blocking call; not done if stopped before. Other sources go on meanwhile."""
        future = executor.submit(work)
        while not (future.done() or self._stop.is_set):
            yield self._clock.monotonic_ns() + POLL_NS
        return future

    def _close(self, reader: Reader) -> None:
        if self._executor:
            self._executor.close(reader.close)
        else:
            self._library.call(reader.close)

    def _lateness(self, picture: Picture) -> tuple[int, int]:  # noqa: ARG002
        return (self._pacer.late, self._pacer.overdue) if self._pacer else (0, 0)


def _close_unwanted(opening: Future[Reader]) -> None:
    """Close a reader that was opened after the stop."""
    if not opening.exception():
        opening.result().close()


class RecordingsThread(threading.Thread):
    """Runs recordings, each step when it is due.

    Args:
        move_out: called after a step of a recording that fell back to the CPU; True if another thread has taken it.
        phase: ns; a thread with several recordings wakes at this moment of each 8 ms. Threads that wake at the same
            moments contend for the GIL.
        has_executor: open and close readers in another thread, so that other recordings do not wait.
    """

    def __init__(
        self,
        name: str,
        captures: Sequence[RecordingCapture],
        context: ThreadContext,
        *,
        move_out: Callable[[RecordingsThread, RecordingCapture], bool] = lambda _thread, _capture: False,
        phase: int = 0,
        has_executor: bool = False,
    ) -> None:
        super().__init__(name=f"capture-{name}", daemon=True)
        self.captures: list[Capture] = [*captures]
        self._thread_context, self._clock, self._move_out = context, context.clock, move_out
        self._phase, self._slack = phase, SLACK_NS if len(captures) > 1 else 1
        self._bell = Bell()
        self.wake = self._bell.ring
        self._executor = BlockingExecutor(f"{self.name}-aside", self.wake) if has_executor else None
        # Time of the next step, a number that breaks ties, and the capture.
        self._schedule = [(0, number, capture) for number, capture in enumerate(captures)]
        for capture in captures:
            capture.serve_by(self.wake, self._executor)

    def run(self) -> None:
        try:
            if self._executor:
                self._executor.start()
            self._thread_context.make_current()
            self._serve()
        except Exception as error:
            log.exception("capture thread failed", thread=self.name)
            self._thread_context.on_failure(f"{self.name} failed: {type(error).__name__}: {error}")
        finally:
            if self._executor and self._executor.is_alive():
                self._executor.shutdown()
                self._executor.join(_CLOSE_S)

    def _has_moved_out(self, capture: RecordingCapture) -> bool:
        return len(self._schedule) > 1 and self._move_out(self, capture)

    def _serve(self) -> None:
        while self._schedule:
            due, number, capture = self._schedule[0]
            left = due - self._clock.monotonic_ns()
            if left > 0:
                left += (self._phase - due) % self._slack
                if self._clock.wait(self._bell, left / 1e9):
                    self._schedule = [(0, number, capture) for _, number, capture in self._schedule]
                continue
            following = capture.step()
            if following is None or (capture.fell_back_to_cpu and self._has_moved_out(capture)):
                heapq.heappop(self._schedule)
            else:
                heapq.heapreplace(self._schedule, (following, number, capture))
