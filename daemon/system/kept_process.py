"""A child process that is started again if it dies, and ends with the daemon."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

import structlog

from daemon.clock import Clock
from daemon.system.children import Child, finish, spawn
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0
_LIVED_NS = 60_000_000_000  # a process that lived this long is started again without the longer pause
_END_S = 3.0
_POLL_S = 0.2


class KeptProcess(threading.Thread):
    """Keeps a process running until `close`. Its death never ends the daemon.

    The process gets the order, a socket, and the descriptors. It ends when the other end of the socket is closed.

    Args:
        module: whose `main` it runs.
        title: in the log.
        fds: descriptors that it gets.

    Attributes:
        pid: None while it does not run.
    """

    def __init__(
        self, module: str, title: str, order: object, clock: Clock, *, name: str, fds: Sequence[int] = ()
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._module, self._title, self._order, self._fds = module, title, order, fds
        self._clock, self._ending, self._changed = clock, StopToken(), StopToken()
        self.pid: int | None = None

    def on_text(self, text: str) -> None:
        """Told what the process has written to the socket."""

    def change(self, order: object) -> None:
        """End the process, and begin it with another order."""
        self._order = order
        self._changed.set()

    def request_stop(self) -> None:
        """End the process soon."""
        self._ending.set()

    def close(self) -> None:
        """End the process, within a time limit. A second call does nothing."""
        self.request_stop()
        if self.ident is not None:
            self.join(_END_S + 1.0)

    def run(self) -> None:
        pause = _PAUSE_S
        while not self._ending.is_set:
            begun = self._clock.monotonic_ns()
            self._changed = StopToken()
            try:
                code = self._run_once()
            except OSError as error:
                log.warning(f"{self._title} cannot be started", reason=str(error))
            else:
                if self._ending.is_set:
                    return
                if self._changed.is_set:
                    continue
                log.warning(f"{self._title} ended: it is started again", exit_code=code, retry_in_s=pause)
            if self._clock.monotonic_ns() - begun > _LIVED_NS:
                pause = _PAUSE_S
            self._clock.wait(self._ending, pause)
            pause = min(_MAX_PAUSE_S, pause * 2)

    def _run_once(self) -> int | None:
        """Run one process to its end; returns its exit code."""
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                process = spawn(self._module, self._order, [theirs.fileno(), *self._fds])
            self.pid = process.pid
            try:
                self._serve(process, mine)
            finally:
                self.pid = None
                mine.shutdown(socket.SHUT_RDWR)  # the process ends when this end is closed
                finish(process, _END_S)
            return process.returncode

    def _serve(self, process: Child, mine: socket.socket) -> None:
        """Until the process has ended, or is to end."""
        mine.settimeout(_POLL_S)
        while not self._ending.is_set and not self._changed.is_set and process.poll() is None:
            try:
                text = mine.recv(4096)
            except TimeoutError:
                continue
            if not text:
                self._clock.wait(self._ending, _POLL_S)
                continue
            self.on_text(text.decode(errors="replace").strip())


def tell_daemon(end: socket.socket, text: str) -> None:
    """In the process: write to its socket. A daemon that has ended meanwhile does not hear it; the process finds that
    out when it waits for the end.

    Args:
        end: the process's own.
    """
    with suppress(BrokenPipeError):
        end.sendall(f"{text}\n".encode())
