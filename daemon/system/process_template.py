"""The process that a daemon's other processes are forked from: `python -m daemon.system.process_template SOCKET`.

It imports what they run once, so that each begins in a hundredth of the time and shares the memory of what is imported.
It has one thread, and opens nothing. It ends when the daemon has ended, and all forked from it end with it.
"""

from __future__ import annotations

import daemon.system.loading  # noqa: F401 - before all else

# isort: split
import ctypes
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from errno import EAGAIN, EMFILE
from typing import NoReturn

from daemon.system.signals import ignore_stop_signals

_SET_NAME, _DIE_WITH_PARENT = 15, 1  # prctl(2): PR_SET_NAME, PR_SET_PDEATHSIG
_MAX_FDS, _MAX_NAME = 16, 256
TITLE_BYTES = 64  # room for what a process is called in the lists of the system


class _Template:
    """Forks a process for each packet, which is the name of the module whose `main` the process runs.

    It brings these descriptors: a socket for reports of the pid (-errno if there is none) and later of the exit code; a
    file with the pickled environment and order; standard output and errors; and the process's own. A packet without
    them is only to import the module.
    """

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._running: dict[int, socket.socket] = {}  # by pid, where its end is told
        self._is_spoiled = False  # an import has failed, and may have left something half loaded
        self._bell, self._ringer = os.pipe()  # rung when a process has ended
        os.set_blocking(self._ringer, False)
        signal.set_wakeup_fd(self._ringer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Until the daemon has ended; or, after an import that failed, until all processes have."""
        poller = select.poll()  # the daemon may have given the socket any number
        poller.register(self._requests, select.POLLIN)
        poller.register(self._bell, select.POLLIN)
        while self._running or not self._is_spoiled:
            ready = [fd for fd, _ in poller.poll()]
            if self._bell in ready:
                os.read(self._bell, 4096)
                self._tell_ends()
            if self._requests.fileno() in ready:
                packet, fds, flags, _ = socket.recv_fds(self._requests, _MAX_NAME, _MAX_FDS)
                if not packet:
                    return
                for fd in fds:
                    os.set_inheritable(fd, False)  # programs that libraries start must not keep it open
                if flags & socket.MSG_CTRUNC:
                    _refuse(fds, EMFILE)
                else:
                    self._serve(packet.decode(), fds)

    def _serve(self, module: str, fds: Sequence[int]) -> None:
        try:
            importlib.import_module(module)
        except BaseException:  # noqa: BLE001 - the process says it
            self._is_spoiled = True
        if not fds:
            return
        gc.freeze()
        reports = socket.socket(fileno=fds[0])
        pid = self._fork(module, reports, fds)
        _close(fds[1:])
        try:
            reports.send(str(pid).encode())
        except OSError:  # it took so long that nobody waits any more
            if pid > 0:
                os.kill(pid, signal.SIGKILL)
        if pid > 0:
            self._running[pid] = reports

    def _fork(self, module: str, reports: socket.socket, fds: Sequence[int]) -> int:
        """The pid; -errno if there is none."""
        parent = os.getpid()
        sys.stdout.flush()  # or each process would write it once more
        try:
            pid = os.fork()
        except OSError as error:
            return -(error.errno or EAGAIN)
        if not pid:
            self._leave(reports)
            _become(module, parent, fds)
        return pid

    def _leave(self, reports: socket.socket) -> None:
        """Close, in a new process, what is the template's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in (self._requests, reports, *self._running.values()):
            end.close()
        os.close(self._bell)
        os.close(self._ringer)

    def _tell_ends(self) -> None:
        for pid in [*self._running]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with self._running.pop(pid) as reports, suppress(OSError):
                    reports.send(str(os.waitstatus_to_exitcode(status)).encode())


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _refuse(fds: Sequence[int], error: int) -> None:
    """Not all descriptors came, because there was none free."""
    if fds:
        with socket.socket(fileno=fds[0]) as reports, suppress(OSError):
            reports.send(str(-error).encode())
        _close(fds[1:])


def _become(module: str, parent: int, fds: Sequence[int]) -> NoReturn:
    """Set up what an interpreter finds at its start, and run the module's `main`."""
    libc = ctypes.CDLL(None)
    libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    _, orders, output, errors, *own = fds
    for number, fd in ((1, output), (2, errors)):
        os.dup2(fd, number)
        os.close(fd)
    sys.argv = [module, *map(str, own)]
    libc.prctl(_SET_NAME, module.removeprefix("daemon.").encode())
    _set_title(f"lookout\0{module}".encode())
    with os.fdopen(orders, "rb") as file:  # from the daemon, which started this
        os.environ.clear()
        os.environ.update(pickle.load(file))  # noqa: S301
        order = pickle.load(file)  # noqa: S301
    sys.exit(importlib.import_module(module).main(order, *own))


def _set_title(title: bytes) -> None:
    """Write over the command line in the memory of this process, which the system's lists show."""
    with suppress(OSError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        begin, end = int(fields[45]), int(fields[46])
        if 0 < begin < end:
            ctypes.memmove(begin, title[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


def main() -> NoReturn:
    ignore_stop_signals()
    _Template(socket.socket(fileno=int(sys.argv[1]))).serve()
    os._exit(0)


if __name__ == "__main__":
    main()
