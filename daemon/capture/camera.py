"""A camera's path: connect, read, stamp, put on the board; when the connection breaks, wait and try again.

A camera blocks in its library, so it has a thread of its own, and the code is straight: it waits where it stands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from daemon.capture.capture import Capture, DisownedError, Wait
from daemon.capture.timing import Lag
from daemon.errors import DecodeError
from daemon.sources.port import Picture, Reader, Skipped

log = structlog.get_logger(__name__)


class CameraCapture(Capture):
    """A source that gives pictures when it has them. `run` retries for ever; `run_once` works or raises."""

    _lag: Lag  # of the connection

    def run(self) -> None:
        """Until the source is asked to end."""
        try:
            while not self._stop.is_set:
                delay = self._retry_in(self._error_of_connection())
                if delay is None:
                    break
                self._wait_for(self._until(self._clock.monotonic_ns() + round(delay * 1e9)))
            self._wait_for(self._until_settled())
        except DisownedError:
            return
        self._say_ended()

    def run_once(self, reader: Reader) -> bool:
        """One picture, from the reader to the board; False if there are no more.

        Raises:
            SourceError: the connection broke.
        """
        try:
            picture = self._read(reader)
            if picture is None:
                self._check_gave()
                return False
            if isinstance(picture, Skipped):
                self._leave_out(picture.cause)
                return True
            if self._stop.is_set:
                return False
            has_room = self._take_in(reader, picture)
        except DecodeError as error:
            self._lose(error)
            return True
        if not has_room:
            del picture  # its memory is the decoder's
            self._wait_for(self._until_room())
        return True

    def _error_of_connection(self) -> Exception | None:
        try:
            self._connection()
        except Exception as error:  # noqa: BLE001 - a library may raise anything; `_retry_in` judges
            return error
        return None

    def _connection(self) -> None:
        """One connection, until it ends.

        Raises:
            SourceError: it could not be made, or broke.
        """
        self._begin_connection()
        self._lag = Lag()
        reader = self._open()
        try:
            answer = self._ask_admission(reader)
            self._wait_for(self._until_answered(answer))
            if self._let_in(reader, answer):
                while not self._stop.is_set and self.run_once(reader):
                    pass
        finally:
            self._end_connection()
            with self._in_library:
                reader.close()

    def _lateness(self, picture: Picture) -> tuple[int, int]:
        if not self._to.board.live:
            return 0, 0
        late = self._lag.of(picture.pts, self._clock.monotonic_ns(), picture.decode)
        return late, late

    def _wait_for(self, condition: Wait) -> None:
        for due in condition:
            left = due - self._clock.monotonic_ns()
            if left > 0:
                self._clock.wait(self._bell, left / 1e9)


class CameraThread(threading.Thread):
    """Runs one camera.

    Args:
        make_current: called before the thread looks at pictures.
        on_failure: told once the thread has died, which no source's trouble may cause.
    """

    def __init__(
        self, capture: CameraCapture, make_current: Callable[[], None], on_failure: Callable[[str], None]
    ) -> None:
        # A daemon thread: a camera that blocks longer than the time to stop must not keep the process alive.
        super().__init__(name=f"capture-{capture.id}", daemon=True)
        self.captures: list[Capture] = [capture]
        self._capture, self._make_current, self._on_failure = capture, make_current, on_failure
        capture.listen()

    def run(self) -> None:
        try:
            self._make_current()
            self._capture.run()
        except Exception as error:
            log.exception("capture thread failed", thread=self.name)
            self._on_failure(f"{self.name} failed: {type(error).__name__}: {error}")
