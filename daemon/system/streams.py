"""The standard streams: whatever lies behind them, a command keeps its exit code, and what it says is text."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from daemon.errors import OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


def prepare_streams() -> None:
    """Call it before anything is opened: what gets the number of a closed stream is printed to."""
    for number in (_INPUT, _OUTPUT, _ERRORS):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
            os.set_inheritable(opened, True)  # or processes that this one starts would be without
    sys.stdin = sys.stdin or open(_INPUT, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = _stream(sys.stdout, _Output(_OUTPUT))
    sys.stderr = _stream(sys.stderr, _Errors(_ERRORS))


def flush_streams() -> None:
    """Raises:
    OutputError: standard output takes nothing more.
    """
    with suppress(ValueError):  # closed
        sys.stderr.flush()
        sys.stdout.flush()


def is_output_read() -> bool:
    """Whether somebody may still read standard output: neither its pipe nor its terminal is gone."""
    poller = select.poll()
    poller.register(_OUTPUT, 0)
    return not poller.poll(0)


class _Output(io.FileIO):
    """Output without a reader is thrown away: `lookout check | head` says by its exit code what it found."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self._begun = 0  # bytes of the last line, which has no end yet
        self._fault: str | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        if self._fault is not None:
            raise OutputError(self._fault)
        try:
            while (written := super().write(data)) is None:
                self._wait()
        except BrokenPipeError:
            return memoryview(data).nbytes
        except OSError as error:
            self._fault = f"standard output cannot be written: {error.strerror}"
            self._take_back()
            raise OutputError(self._fault) from error
        _, ended, rest = bytes(memoryview(data)[:written]).rpartition(b"\n")
        self._begun = len(rest) + (0 if ended else self._begun)
        return int(written)

    def _take_back(self) -> None:
        """Half a line is no JSON: a file loses it, where nobody has written behind it."""
        with suppress(OSError):
            found, end = os.fstat(self.fileno()), os.lseek(self.fileno(), 0, os.SEEK_CUR)
            if stat.S_ISREG(found.st_mode) and found.st_size == end:
                os.ftruncate(self.fileno(), end - self._begun)

    def _wait(self) -> None:
        """Another program that shares the terminal has made it non-blocking."""
        poller = select.poll()
        poller.register(self.fileno(), select.POLLOUT)
        poller.poll()


class _Errors(_Output):
    """There is nowhere else to say what cannot be said here."""

    def write(self, data: ReadableBuffer, /) -> int:
        with suppress(OutputError):
            return super().write(data)
        return memoryview(data).nbytes


def _stream(before: TextIO | None, raw: _Output) -> TextIO:
    """Names with bytes that are no text are shown with escapes."""
    encoding = before.encoding if before else "utf-8"
    is_errors = isinstance(raw, _Errors)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, errors="backslashreplace", line_buffering=is_errors or raw.isatty()
    )
