"""structlog, JSON for machines or console for people; a log that cannot be written never stops the daemon."""

from __future__ import annotations

import io
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from daemon.appended_file import AppendedFile
from daemon.clock import Clock, SystemClock
from daemon.config import LogConfig
from daemon.errors import ConfigError
from daemon.redact import printable, scrub

_STDERR = 2
_MOST_KINDS = 10_000  # lines of the limiter's memory
_LONGEST_NS = 3_600_000_000_000
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@contextmanager
def logging(config: LogConfig) -> Iterator[None]:
    """Log for the whole process as configured, to stderr or to a file that is closed at the end.

    Raises:
        ConfigError: the file cannot be written.
    """
    with closing(_open(config.file)) as target:
        _configure(config, target)
        yield


def _open(path: Path | None) -> LogFile:
    try:
        return LogFile(AppendedFile(path) if path else StandardError())
    except OSError as error:
        name = f"log.file: {path}" if path else "standard error"
        raise ConfigError(f"{name} cannot be written: {error.strerror}") from error


def _configure(config: LogConfig, target: LogFile) -> None:
    as_json = config.format == "json" or (config.format == "auto" and not (config.file is None and sys.stderr.isatty()))
    processors: list[Processor] = [
        RateLimiter(SystemClock()),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        _scrub,
    ]
    if as_json:
        processors.append(structlog.processors.JSONRenderer())
    else:
        colors = config.file is None and sys.stderr.isatty()
        renderer = structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=structlog.dev.plain_traceback, timestamp_key="at"
        )
        processors.append(renderer)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.level]),
        logger_factory=structlog.WriteLoggerFactory(file=target),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )


@dataclass
class _Kind:
    """Lines of one kind about one source.

    Attributes:
        since: monotonic ns, when its window began.
        length: of the window, ns.
        most: that pass in it.
    """

    since: int
    length: int
    most: int
    count: int = 0
    signals_blocked: int = 0


class RateLimiter:
    """Lets a line of one kind about one source through so often a minute, and says with the next how many it held back.

    A camera that comes and goes must not fill a disk with its lines, nor a warning that comes again and again: as long
    as lines are held back one passes, and the time to the next doubles, up to an hour. Figures and errors without a
    source always pass, and so does what somebody has changed (`by`).
    """

    def __init__(self, clock: Clock, most: int = 10, window_s: float = 60.0) -> None:
        self._clock, self._most, self._window_ns = clock, most, round(window_s * 1e9)
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._lock = threading.Lock()

    def __call__(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if method == "debug" or "by" in event or ("source" not in event and method != "warning"):
            return event
        with self._lock:
            row, signals_blocked = self._row((str(event.get("event")), str(event.get("source"))))
            row.count += 1
            if row.count > row.most:
                row.signals_blocked += 1
                raise structlog.DropEvent
        return {**event, "held_back": signals_blocked} if signals_blocked else event

    def _row(self, key: tuple[str, str]) -> tuple[_Kind, int]:
        """The record of this kind of line, and the count of lines held back before the one that is to pass."""
        now = self._clock.monotonic_ns()
        row = self._kinds.get(key)
        if row is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            row = self._kinds[key] = _Kind(now, self._window_ns, self._most)
        signals_blocked = 0
        if now - row.since >= row.length:
            signals_blocked = row.signals_blocked
            again = signals_blocked and now - row.since < 2 * row.length
            length, most = (min(2 * row.length, _LONGEST_NS), 1) if again else (self._window_ns, self._most)
            row = self._kinds[key] = _Kind(now, length, most)
        return row, signals_blocked


class StandardError:
    """The stream, whatever it is."""

    def __init__(self) -> None:
        self._file = io.FileIO(_STDERR, "w", closefd=False)

    def current(self) -> io.FileIO:
        return self._file

    def close(self) -> None:
        self._file.close()


class LogFile:
    """A file that takes lines while it can, and says how many it could not take as soon as it can again.

    Standard error is one as well: a disk may be full behind it, or whoever read it be gone.
    """

    def __init__(self, target: AppendedFile | StandardError) -> None:
        self._target = target
        self._lost, self._break = 0, ""  # after a line that was written in part

    def write(self, text: str) -> int:
        excuse = f"{self._lost} log lines could not be written here\n" if self._lost else ""
        data = (self._break + excuse + text).encode()
        start = 0
        try:
            file = self._target.current()
            for start in range(0, len(data), select.PIPE_BUF):
                self._check_takes(file)
                file.write(data[start : start + select.PIPE_BUF])
            self._lost, self._break = 0, ""
        except (OSError, ValueError):  # no room, nobody reads, or closed
            self._lost += 1
            self._break = "\n" if start else self._break
        return len(text)

    @staticmethod
    def _check_takes(file: io.FileIO) -> None:
        """A pipe that nobody reads would block whoever logs, and with them all others.

        Raises:
            BlockingIOError: nothing can be written now; never of a file on a disk.
        """
        poller = select.poll()
        poller.register(file, select.POLLOUT)
        if not poller.poll(0):
            raise BlockingIOError

    def flush(self) -> None:
        """Every line is written at once."""

    def close(self) -> None:
        """Later lines are lost."""
        self._target.close()


def _scrub(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Whatever a library put into its error, no password of a URL gets into the log, and nothing a terminal obeys."""
    first = [key for key in ("at", "level", "event") if key in event]  # where a reader looks first
    ordered = {key: event[key] for key in (*first, *event)}
    return {key: _clean(value, key) if isinstance(value, str) else value for key, value in ordered.items()}


def _clean(value: str, key: str) -> str:
    return scrub(value) if key == "exception" else printable(scrub(value))  # which has lines
