"""structlog, as JSON or for a console. A log that cannot be written never stops the daemon."""

from __future__ import annotations

import io
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from daemon.appended_file import AppendedFile
from daemon.clock import Clock, SystemClock
from daemon.config.root import Level, LogConfig
from daemon.errors import ConfigError
from daemon.redact import printable, scrub

T = TypeVar("T")
_STDERR = 2
_MAX_KINDS = 10_000  # of lines that the limiter remembers
_MAX_WINDOW_NS = 3_600_000_000_000
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@contextmanager
def logging(config: LogConfig) -> Iterator[None]:
    """Log for the whole process as configured, to stderr or to a file that is closed at the end.

    Raises:
        ConfigError: the file cannot be written.
    """
    _now.clear()
    with closing(_open(config.file)) as target:
        _configure(config, target)
        yield


_now: list[Level] = []  # the level that this process was set to last, if it was


def set_level(config: LogConfig) -> None:
    """Log from another level on, in this process and in those that it starts from now on."""
    _now[:] = [config.level]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.level]))


def as_of_now(order: T) -> T:
    """An order for another process whose `log` has the level that this process was set to; others as they are."""
    config = getattr(order, "log", None)
    if not (_now and isinstance(config, LogConfig) and is_dataclass(order)):
        return order
    changed: Any = replace(order, log=msgspec.structs.replace(config, level=_now[0]))  # type: ignore[type-var]
    return changed  # type: ignore[no-any-return]


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
        limit: lines that pass in it.
    """

    since: int
    length: int
    limit: int
    count: int = 0
    suppressed: int = 0


class RateLimiter:
    """Limits lines of one kind about one source in a window of time; the next line has the number of lines held back.

    A flapping camera or a repeated warning must not fill a disk. While lines are held back, one line passes a window,
    and the window doubles, up to an hour. Metrics, errors without a source and what users do (`by`, `token`) always
    pass.
    """

    def __init__(self, clock: Clock, limit: int = 10, window_s: float = 60.0) -> None:
        self._clock, self._limit, self._window_ns = clock, limit, round(window_s * 1e9)
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._lock = threading.Lock()

    def __call__(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        is_limited = "source" in event or method == "warning"
        if method == "debug" or not is_limited or "by" in event or "token" in event:
            return event
        with self._lock:
            row, suppressed = self._row((str(event.get("event")), str(event.get("source"))))
            row.count += 1
            if row.count > row.limit:
                row.suppressed += 1
                raise structlog.DropEvent
        return {**event, "held_back": suppressed} if suppressed else event

    def _row(self, key: tuple[str, str]) -> tuple[_Kind, int]:
        """The record of this kind of line, and the number of lines held back before a line that passes."""
        now = self._clock.monotonic_ns()
        row = self._kinds.get(key)
        if row is None:
            if len(self._kinds) >= _MAX_KINDS:
                self._kinds.clear()
            row = self._kinds[key] = _Kind(now, self._window_ns, self._limit)
        suppressed = 0
        if now - row.since >= row.length:
            suppressed = row.suppressed
            again = suppressed and now - row.since < 2 * row.length
            length, limit = (min(2 * row.length, _MAX_WINDOW_NS), 1) if again else (self._window_ns, self._limit)
            row = self._kinds[key] = _Kind(now, length, limit)
        return row, suppressed


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
