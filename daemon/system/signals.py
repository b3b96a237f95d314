"""Signals: the first SIGTERM or SIGINT stops the daemon, the second ends the process at once. SIGHUP reloads.

On a terminal SIGHUP says that the terminal was closed, and stops as well; `nohup` leaves it to reload.

A thread handles the signals. Python would run handlers in the main thread between two instructions, where the thread
may hold the lock that the handler needs, or be blocked in a library. So the handlers do nothing: the interpreter's C
code writes each signal's number into a pipe, which the thread reads.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from daemon.errors import OutputError

_TO_STOP = (signal.SIGTERM, signal.SIGINT)
_FOR_ALL = (*_TO_STOP, signal.SIGHUP)  # terminals and service managers send these to the whole group
_END = b"\0"  # no signal has this number
_STANDARD_STREAMS = 0, 1, 2


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Blocks the signals, so that a child process can call `ignore_stop_signals` before it receives one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_stop_signals() -> None:
    """For child processes: terminals and service managers signal them too, but they end with the daemon."""
    for number in _FOR_ALL:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_ALL)


def exit_on_signals() -> None:
    """Until `stopping_on_signals` there is nothing to close: SIGTERM, SIGINT and the end of a terminal end the process
    with 0."""
    to_end = _to_end()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in to_end:
        signal.signal(number, _end_now)
    # A thread as well: a handler waits while the main thread is in a system call that began just after the signal, or
    # if another thread received it.
    threading.Thread(target=_end_on_signal, args=(reading, to_end), name="signals", daemon=True).start()
    if signal.SIGHUP not in to_end:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # there is nothing to reload yet


@contextmanager
def killed_by_interrupts() -> Iterator[None]:
    """While a command is loaded, SIGINT ends the process as the system does it, without the traceback of an import."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # a shell has those in the background ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _to_end() -> tuple[signal.Signals, ...]:
    """The signals that stop this process."""
    reloads = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or not any(map(os.isatty, _STANDARD_STREAMS))
    return _TO_STOP if reloads else _FOR_ALL


def _end_now(_number: int, _frame: object) -> None:
    os._exit(0)


def _end_on_signal(pipe: int, to_end: Sequence[int]) -> None:
    while os.read(pipe, 1)[0] not in to_end:
        pass  # SIGHUP
    os._exit(0)


@contextmanager
def stopping_on_signals(stop: Callable[[], None], reload: Callable[[], object] | None = None) -> Iterator[None]:
    """Signals call `stop`, and SIGHUP `reload`, in a thread of their own. Enter it in the main thread.

    SIGHUPs that come before `reload` has returned count as one. An exception of either goes to the log, and later
    signals are heard. The previous handlers are restored at the end.
    """
    to_stop = _FOR_ALL if signal.getsignal(signal.SIGHUP) is _end_now else _to_end()
    with _pipe() as (reading, writing):
        listening = _Listening(reading, to_stop, stop, reload)
        listener = threading.Thread(target=listening.run, name="signals", daemon=True)
        listener.start()
        numbers = _FOR_ALL if reload else to_stop
        wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        before = {number: signal.signal(number, _do_nothing) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():  # a late signal does not change the exit code
                signal.signal(number, signal.SIG_IGN if handler is _end_now else handler)
            signal.set_wakeup_fd(wakeup)
            os.set_blocking(writing, True)
            os.write(writing, _END)
            listener.join()


def leave(code: int) -> NoReturn:
    """End the process now, even if threads are blocked in libraries.

    The interpreter's own shutdown would restore the default of SIGHUP, which kills, and unload libraries that threads
    still use, which may crash.
    """
    with suppress(OSError, ValueError, OutputError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


def _do_nothing(_number: int, _frame: object) -> None:
    """The number is in the pipe."""


@dataclass(frozen=True)
class _Listening:
    """Reads the numbers of signals from a pipe."""

    pipe: int
    to_stop: Sequence[int]
    stop: Callable[[], None]
    reload: Callable[[], object] | None

    def run(self) -> None:
        """Until the end is written."""
        asked = False
        poller = select.poll()
        poller.register(self.pipe, select.POLLIN)
        while True:
            poller.poll()
            numbers = _read(self.pipe)
            for number in numbers:
                # A shell and the system both say that a terminal is closed.
                if number in _TO_STOP or (number in self.to_stop and not asked):
                    if asked:
                        os._exit(128 + number)
                    asked = True
                    _call(self.stop)
            if self.reload and signal.SIGHUP in numbers and not asked:
                _call(self.reload)
            if 0 in numbers:
                return


def _call(act: Callable[[], object]) -> None:
    """Whatever comes of it, the next signal is heard."""
    try:
        act()
    except Exception:  # noqa: BLE001 - the log has it
        import structlog  # the thread begins before anything is loaded

        structlog.get_logger(__name__).exception("a signal was not acted on")


def _read(pipe: int) -> bytes:
    """All bytes in the pipe."""
    found = b""
    with suppress(BlockingIOError):
        while chunk := os.read(pipe, 4096):
            found += chunk
    return found
