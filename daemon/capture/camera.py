"""The path of a camera: connect, read, stamp, put on the board; when the connection breaks, wait and retry.

A camera blocks in its library, so it has a thread of its own and straight code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from daemon.capture.capture import Capture, Wait
from daemon.capture.library import DetachedError
from daemon.capture.playout import Playout, playout_of
from daemon.capture.timing import Lag
from daemon.clock import Clock
from daemon.errors import DecodeError
from daemon.sources.port import Picture, Reader, Skipped

log = structlog.get_logger(__name__)


class CameraCapture(Capture):
    """A live source. `run` retries for ever; `run_once` handles one picture or raises."""

    _lag: Lag
    _playout: Playout | None = None
    _due = 0  # of the last picture, by the playout, ns

    def run(self) -> None:
        """Capture until `stop`."""
        try:
            while not self._stop.is_set:
                delay = self._retry_in(self._error_of_connection())
                if delay is None:
                    break
                self._wait_for(self._until_retry(delay))
            self._wait_for(self._until_settled())
        except DetachedError:
            return
        self._announce_ended()

    def run_once(self, reader: Reader) -> bool:
        """Capture one picture; False if there are no more.

        Raises:
            SourceError: the connection broke.
        """
        try:
            asked = self._clock.monotonic_ns()
            picture = self._library.call(reader.read)
            if picture is None:
                self._check_delivered()
                return False
            if isinstance(picture, Skipped):
                self._count_dropped(picture.cause)
                return True
            if reader.format is not self.format:
                self._wait_for(self._until_readmitted(reader))
            self._wait_for(self._until_playout(picture, asked))
            if self._stop.is_set:
                return False
            has_room = self._process(reader, picture)
        except DecodeError as error:
            self._on_decode_error(error)
            return True
        if not has_room:
            del picture  # it holds memory of the decoder
            self._wait_for(self._until_room())
        return True

    def _error_of_connection(self) -> Exception | None:
        try:
            self._connection()
        except Exception as error:  # noqa: BLE001 - a library may raise anything; `_retry_in` judges
            return error
        return None

    def _connection(self) -> None:
        """Open a connection and read it to its end.

        Raises:
            SourceError: it cannot be opened, or it broke.
        """
        self._begin_connection()
        self._lag = Lag()
        reader = self._open()
        try:
            answer = self._request_admission(reader)
            self._wait_for(self._until_admitted(answer))
            if self._is_admitted(reader, answer):
                self._playout = playout_of(reader) if self._sinks.board.live else None
                while not self._stop.is_set and self.run_once(reader):
                    pass
        finally:
            self._end_connection()
            self._library.call(reader.close)

    def _until_playout(self, picture: Picture, asked: int) -> Wait:
        """Until a picture of a stream that comes in bursts is due.

        Args:
            asked: when the reader was asked for it, monotonic ns.
        """
        if self._playout is None or picture.pts is None:
            return
        now = self._clock.monotonic_ns()
        self._due = self._playout.due(picture.pts, now, now - asked - picture.decode)
        if self._playout.is_active:
            yield from self._until_due(self._due)

    def _lateness(self, picture: Picture) -> tuple[int, int]:
        if not self._sinks.board.live:
            return 0, 0
        now = self._clock.monotonic_ns()
        late = self._lag.of(picture.pts, now, picture.decode)
        if self._playout and self._playout.is_active:
            late = max(0, now - self._due)
        return late, late

    def _wait_for(self, condition: Wait) -> None:
        for due in condition:
            left = due - self._clock.monotonic_ns()
            if left > 0:
                self._clock.wait(self._bell, left / 1e9)


@dataclass(frozen=True)
class ThreadContext:
    """The parts that all capture threads of a process share.

    Attributes:
        make_current: binds the calling thread to the GPU.
        on_failure: called with the reason if a thread dies, which no source's error may cause.
    """

    clock: Clock
    on_failure: Callable[[str], None]
    make_current: Callable[[], None]


class CameraThread(threading.Thread):
    """Runs one camera."""

    def __init__(self, capture: CameraCapture, context: ThreadContext) -> None:
        # A daemon thread: a camera whose library blocks must not keep the process alive.
        super().__init__(name=f"capture-{capture.id}", daemon=True)
        self.captures: list[Capture] = [capture]
        self._capture, self._thread_context = capture, context
        capture.listen()

    def run(self) -> None:
        try:
            self._thread_context.make_current()
            self._capture.run()
        except Exception as error:
            log.exception("capture thread failed", thread=self.name)
            self._thread_context.on_failure(f"{self.name} failed: {type(error).__name__}: {error}")
