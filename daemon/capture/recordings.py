"""Recordings, which share threads: with 150 threads a frame costs more in switches of the GIL than in work.

A recording never blocks in its library for long. It says when it wants to go on instead of waiting, so that one thread
serves many. Opening and closing are for a thread beside.
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
from daemon.capture.capture import LOOK_AGAIN_NS, Capture, DisownedError, Wait
from daemon.capture.timing import Pacer
from daemon.clock import Bell, Clock
from daemon.errors import DecodeError
from daemon.sources.decode import NVDEC
from daemon.sources.port import Picture, Reader, Skipped

log = structlog.get_logger(__name__)
T = TypeVar("T")
SLACK_NS = 8_000_000  # by which a picture may come late, so that others that are due then cost no wake-up of their own
_CLOSE_S = 5.0  # for the readers of sources that have ended to be closed


class RecordingCapture(Capture):
    """A source that gives pictures as fast as they are asked for.

    Attributes:
        fell_to_cpu: it asked for the GPU's decoder, and this connection has not got it.
    """

    fell_to_cpu = False
    _aside: BlockingExecutor | None = None
    _pacer: Pacer | None = None  # of the connection

    @cached_property
    def step(self) -> Callable[[], int | None]:
        """Does what is to be done now; gives the monotonic time, ns, at which to go on, or None at the end."""
        return partial(next, self._steps(), None)

    def serve_by(self, wake: Callable[[], None], aside: BlockingExecutor | None) -> None:
        """A thread serves it from here on.

        Args:
            wake: tells that thread to go on.
            aside: does what takes long, where other sources share the thread.
        """
        self.wake, self._aside = wake, aside
        self.listen()

    def _steps(self) -> Wait:
        """From the first connection to the end."""
        try:
            while not self._stop.is_set:
                error: Exception | None = None
                try:
                    yield from self._connection()
                except Exception as raised:  # noqa: BLE001 - a library may raise anything; `_retry_in` judges
                    error = raised
                delay, error = self._retry_in(error), None  # its traceback would keep the decoder's memory
                if delay is None:
                    break
                yield from self._until(self._clock.monotonic_ns() + round(delay * 1e9))
            yield from self._until_settled()
        except DisownedError:
            return
        self._say_ended()

    def _connection(self) -> Wait:
        """One connection, until it ends.

        Raises:
            SourceError: it could not be made, or broke.
        """
        self._begin_connection()
        reader = yield from self._opened()
        if reader is None:
            return
        try:
            answer = self._ask_admission(reader)
            yield from self._until_answered(answer)
            if self._let_in(reader, answer):
                self.fell_to_cpu = self.asks_gpu and reader.format.decoder != NVDEC
                yield from self._play(reader)
        finally:
            self.fell_to_cpu = False
            self._end_connection()
            self._close(reader)

    def _play(self, reader: Reader) -> Wait:
        """Until it has no more pictures."""
        self._pacer = Pacer(self._clock, self.id) if self._source.realtime else None
        # A decoder that is empty takes packets for 50 ms before it has a picture.
        aside = None if self.fell_to_cpu else self._aside
        while not self._stop.is_set:
            try:
                picture = (yield from self._first(aside, reader)) if aside else self._read(reader)
                if picture is None:
                    self._check_gave()
                    return
                if isinstance(picture, Skipped):
                    self._leave_out(picture.cause)
                    continue
                if self._pacer:
                    yield from self._until_due(self._pacer.due(picture.pts))
                if self._stop.is_set:
                    return
                has_room = self._take_in(reader, picture)
            except DecodeError as error:
                self._lose(error)
                continue
            aside = picture = None
            if has_room:
                yield self._last_ns  # others have their turn
            else:
                yield from self._until_room()

    def _until_due(self, due: int) -> Wait:
        self._held = True
        while (now := self._clock.monotonic_ns()) < due and not self._stop.is_set:
            yield due
        self._held, self._last_ns = False, now

    def _opened(self) -> Generator[int, None, Reader | None]:
        """None if it is to end before it is open."""
        if self._aside is None:
            return self._open()
        opening = yield from self._apart(self._aside, partial(self._source.open, self._budget))
        if not opening.done():
            opening.add_done_callback(_close_unwanted)
            return None
        return opening.result()

    def _first(self, aside: BlockingExecutor, reader: Reader) -> Generator[int, None, Picture | Skipped | None]:
        """The first picture; None if there is none, or if it is to end before."""
        reading = yield from self._apart(aside, reader.read)
        return reading.result() if reading.done() else None

    def _apart(self, aside: BlockingExecutor, work: Callable[[], T]) -> Generator[int, None, Future[T]]:
        """What comes of it, or will, if the source is to end before; others who share the thread go on meanwhile."""
        answer = aside.ask(work)
        while not (answer.done() or self._stop.is_set):
            yield self._clock.monotonic_ns() + LOOK_AGAIN_NS
        return answer

    def _close(self, reader: Reader) -> None:
        if self._aside:
            self._aside.close(reader.close)
        else:
            with self._in_library:
                reader.close()

    def _lateness(self, picture: Picture) -> tuple[int, int]:  # noqa: ARG002
        return (self._pacer.late, self._pacer.behind) if self._pacer else (0, 0)


def _close_unwanted(opening: Future[Reader]) -> None:
    """It was opened too late."""
    if not opening.exception():
        opening.result().close()


class RecordingsThread(threading.Thread):
    """Serves recordings in the order in which they want to go on.

    Args:
        make_current, on_failure: as of `CaptureThreads`.
        take_out: asked after a turn of a recording that fell to the CPU: whether another thread serves it now.
        phase: ns; where it serves several, it wakes for their pictures at this moment of each 8 ms. Threads that wake
            at the same moments wait for each other.
        has_aside: a thread beside opens and closes readers, so that other recordings need not wait for one that does.

    Attributes:
        captures: that it serves.
    """

    def __init__(
        self,
        name: str,
        captures: Sequence[RecordingCapture],
        clock: Clock,
        make_current: Callable[[], None],
        on_failure: Callable[[str], None],
        *,
        take_out: Callable[[RecordingsThread, RecordingCapture], bool] = lambda _thread, _capture: False,
        phase: int = 0,
        has_aside: bool = False,
    ) -> None:
        super().__init__(name=f"capture-{name}", daemon=True)
        self.captures: list[Capture] = [*captures]
        self._clock, self._make_current, self._on_failure, self._take_out = clock, make_current, on_failure, take_out
        self._phase, self._slack = phase, SLACK_NS if len(captures) > 1 else 1
        self._bell = Bell()
        self.wake = self._bell.ring
        self._aside = BlockingExecutor(f"{self.name}-aside", self.wake) if has_aside else None
        # Time at which to go on, a number that decides between equals, and the capture.
        self._waiting = [(0, number, capture) for number, capture in enumerate(captures)]
        for capture in captures:
            capture.serve_by(self.wake, self._aside)

    def run(self) -> None:
        try:
            if self._aside:
                self._aside.start()
            self._make_current()
            self._serve()
        except Exception as error:
            log.exception("capture thread failed", thread=self.name)
            self._on_failure(f"{self.name} failed: {type(error).__name__}: {error}")
        finally:
            if self._aside and self._aside.is_alive():
                self._aside.end()
                self._aside.join(_CLOSE_S)

    def _serve(self) -> None:
        while self._waiting:
            due, number, capture = self._waiting[0]
            left = due - self._clock.monotonic_ns()
            if left > 0:
                left += (self._phase - due) % self._slack
                if self._clock.wait(self._bell, left / 1e9):
                    self._waiting = [(0, number, capture) for _, number, capture in self._waiting]
                continue
            following = capture.step()
            others = len(self._waiting) > 1
            if following is None or (capture.fell_to_cpu and others and self._take_out(self, capture)):
                heapq.heappop(self._waiting)
            else:
                heapq.heapreplace(self._waiting, (following, number, capture))
