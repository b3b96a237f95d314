"""Child processes: how they begin, and those that take long to end."""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import ECHILD, ETIMEDOUT
from typing import Protocol

from daemon.log import as_of_now
from daemon.system.process_template import TITLE_BYTES
from daemon.system.signals import signals_blocked

_BEGIN_S = 10.0  # the first one imports, perhaps from a slow disk; below `monitor.stuck_after_s`
_END_S = 1.0
_MESSAGE_BYTES = 32
_TRIES = 2  # a template that has ended is found when it is asked
_STREAMS = 1, 2
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # numpy would start more, and only a process without them is safe to fork


class Process(Protocol):
    """`subprocess.Popen` or `Child`."""

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


class Child:
    """A process that was forked from the template, with the part of `subprocess.Popen` that is needed.

    Attributes:
        returncode: the exit code, below 0 a signal; None while it runs or was not asked for.
    """

    def __init__(self, pid: int, reports: socket.socket) -> None:
        self.pid, self._reports = pid, reports
        self.returncode: int | None = None
        self._waiting = threading.Lock()  # by the one that waits

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """
        Args:
            timeout: seconds.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self._waiting.acquire(timeout=-1 if timeout is None else timeout):
            try:
                if self.returncode is None and _is_readable(self._reports, timeout):
                    code = self._reports.recv(_MESSAGE_BYTES)
                    if not code:  # the template has ended, and the system kills what was forked from it: now
                        self._kill()
                    self.returncode = int(code or -signal.SIGKILL)
                    self._reports.close()
            finally:
                self._waiting.release()
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        """Nothing if it has ended."""
        if self.poll() is None:
            self._kill()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class _Template:
    """Started when the first process is wanted, and again when it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def submit(self, module: str, fds: Sequence[int]) -> subprocess.Popen[bytes] | None:
        """Ask for a process, or without descriptors for an import: see `daemon.system.process_template`.

        Returns:
            The template that was asked.

        Raises:
            OSError: no descriptor or no process.
        """
        with self._lock:
            if self._requests:
                with suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
                    socket.send_fds(self._requests, [module.encode()], fds)
                    return self._process
                self.end()
            self._requests = self._begin()
            socket.send_fds(self._requests, [module.encode()], fds)
            return self._process

    def _begin(self) -> socket.socket:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.settimeout(_BEGIN_S)
        try:
            with theirs, signals_blocked():
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "daemon.system.process_template", str(theirs.fileno()), " " * TITLE_BYTES],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, **_ONE_THREAD},
                )
        except BaseException:
            mine.close()
            raise
        return mine

    def give_up(self, process: subprocess.Popen[bytes] | None) -> None:
        """End this template, which does not answer; the next process that is wanted starts another."""
        with self._lock:
            if self._process is process:
                self.end()

    def end(self) -> None:
        """End it, and what was forked from it."""
        if self._requests:
            self._requests.close()
        if self._process:
            self._process.kill()
            reap(self._process, _END_S)
        self._requests = self._process = None


_template = _Template()
atexit.register(_template.end)


def prepare(*modules: str) -> None:
    """Have the template import what processes will need, while other things are done."""
    with suppress(OSError):  # said when a process is wanted
        for module in modules:
            _template.submit(module, [])


def spawn(
    module: str,
    order: object,
    fds: Sequence[int],
    environment: Mapping[str, str] | None = None,
    begin_s: float = _BEGIN_S,
) -> Child:
    """Run `main(ORDER, *FDS)` of a module in a process of its own, with copies of the order and of the descriptors.

    It is forked from a template, which imports the module once; see `daemon.system.process_template`. A template that
    does not answer is killed, and with it what was forked from it.

    Args:
        begin_s: it must have begun by then.

    Raises:
        OSError: no descriptor or no process.
    """
    with _written(dict(os.environ if environment is None else environment), as_of_now(order)) as orders:
        for _ in range(_TRIES):
            os.lseek(orders, 0, os.SEEK_SET)
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                try:
                    template = _template.submit(module, [theirs.fileno(), orders, *_STREAMS, *fds])
                except BaseException:
                    mine.close()
                    raise
            if not _is_readable(mine, begin_s):
                mine.close()
                _template.give_up(template)
                raise OSError(ETIMEDOUT, f"it did not begin within {begin_s:.0f} s")
            pid = int(mine.recv(_MESSAGE_BYTES) or 0)
            if pid > 0:
                return Child(pid, mine)
            mine.close()
            if pid:
                raise OSError(-pid, os.strerror(-pid))
    raise OSError(ECHILD, "what it is forked from has ended")


def finish(process: Process, grace_s: float, within_s: float = _END_S) -> None:
    """Wait for a process that ends by itself; kill it after the grace, and reap it."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    if process.poll() is None:
        process.kill()
    reap(process, within_s)


def reap(process: Process, within_s: float) -> None:
    """Wait for a process to end, so that it leaves no zombie; after the time limit a thread waits on.

    Even a killed process may take long: the machine is busy, or a driver holds the process.
    """
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        with suppress(RuntimeError):  # the system gives no thread
            threading.Thread(target=process.wait, name="reaper", daemon=True).start()


def _is_readable(reports: socket.socket, timeout_s: float | None) -> bool:
    poller = select.poll()
    poller.register(reports, select.POLLIN)
    return bool(poller.poll(None if timeout_s is None else timeout_s * 1000))


@contextmanager
def _written(*objects: object) -> Iterator[int]:
    """A file in memory with these: a pipe would block until they are read."""
    orders = os.memfd_create("orders")
    try:
        for one in objects:
            os.write(orders, pickle.dumps(one))
        yield orders
    finally:
        os.close(orders)
