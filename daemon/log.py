"""structlog, JSON for machines or console for people; a log that cannot be written never stops the daemon."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from daemon.config import LogConfig
from daemon.errors import ConfigError
from daemon.redact import scrub

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@contextmanager
def logging(config: LogConfig) -> Iterator[None]:
    """Log for the whole process as configured, to stderr or to a file that is closed at the end.

    Raises:
        ConfigError: the file cannot be written.
    """
    if config.file is None:
        _configure(config, sys.stderr)
        yield
        return
    file = LogFile(config.file)
    try:
        _configure(config, file)
        yield
    finally:
        file.close()


def _configure(config: LogConfig, target: TextIO | LogFile) -> None:
    as_json = config.format == "json" or (config.format == "auto" and not (config.file is None and sys.stderr.isatty()))
    processors: list[Processor] = [
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


class LogFile:
    """A file that takes lines while it can, and says how many it could not take as soon as it can again."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = io.FileIO(path, "a")  # without a buffer that would fail later, elsewhere
        except OSError as error:
            raise ConfigError(f"log.file: {path} cannot be written: {error.strerror}") from error
        self._lost = 0

    def write(self, text: str) -> int:
        excuse = f"{self._lost} log lines could not be written here\n" if self._lost else ""
        try:
            self._file.write((excuse + text).encode())
            self._lost = 0
        except (OSError, ValueError):  # no room, or closed
            self._lost += 1
        return len(text)

    def flush(self) -> None:
        """Every line is written at once."""

    def close(self) -> None:
        """What is logged later is lost."""
        self._file.close()


def _scrub(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Whatever a library put into its error, no user name or password of a URL gets into the log."""
    first = [key for key in ("at", "level", "event") if key in event]  # where a reader looks first
    ordered = {key: event[key] for key in (*first, *event)}
    return {key: scrub(value) if isinstance(value, str) else value for key, value in ordered.items()}
