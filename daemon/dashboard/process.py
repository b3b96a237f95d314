"""In the daemon's process: the page in a child process, which is started again if it dies, and ends with the daemon."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from daemon.clock import Clock
from daemon.config.http import DashboardConfig, HttpConfig, TokenConfig
from daemon.config.root import Config, LogConfig
from daemon.dashboard.addresses import DaemonAddress
from daemon.redact import Secret
from daemon.system.children import Child, finish, spawn
from daemon.system.stop_token import StopToken

log = structlog.get_logger(__name__)
_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0
_LIVED_NS = 60_000_000_000  # a page that lived this long is started again without the longer pause
_END_S = 3.0
_POLL_S = 0.2


@dataclass(frozen=True)
class PageOrder:
    """Configuration of the child process; see `daemon.dashboard.server.Dashboard`."""

    page: DashboardConfig
    addresses: Sequence[DaemonAddress]
    log: LogConfig


def with_access(config: Config, token: Secret) -> Config:
    """A configuration whose HTTP API the page may use; without an API, one on this machine alone."""
    http = config.http if config.http.enabled else HttpConfig(enabled=True, port=0)
    rows = [*http.tokens, TokenConfig("dashboard", "operate", token)]
    return msgspec.structs.replace(config, http=msgspec.structs.replace(http, tokens=rows))


def new_token() -> Secret:
    """A token for one run of the daemon."""
    return Secret(secrets.token_hex(32))


class PageProcess(threading.Thread):
    """Keeps the page running until `close`. Its death never ends the daemon.

    Args:
        on_ready: called with the page's address each time that it serves.
    """

    def __init__(self, order: PageOrder, clock: Clock, on_ready: Callable[[str], None] | None = None) -> None:
        super().__init__(name="dashboard", daemon=True)
        self._order, self._clock, self._on_ready = order, clock, on_ready
        self._ending = StopToken()
        self.pid: int | None = None

    def close(self) -> None:
        """End the page, within a time limit. A second call does nothing."""
        self._ending.set()
        if self.ident is not None:
            self.join(_END_S + 1.0)

    def run(self) -> None:
        pause = _PAUSE_S
        while not self._ending.is_set:
            begun = self._clock.monotonic_ns()
            try:
                code = self._run_once()
            except OSError as error:
                log.warning("the page cannot be started", reason=str(error))
            else:
                if self._ending.is_set:
                    return
                log.warning("the page ended: it is started again", exit_code=code, retry_in_s=pause)
            if self._clock.monotonic_ns() - begun > _LIVED_NS:
                pause = _PAUSE_S
            self._clock.wait(self._ending, pause)
            pause = min(_MAX_PAUSE_S, pause * 2)

    def _run_once(self) -> int | None:
        """Run one process to its end; returns its exit code."""
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                process = spawn("daemon.dashboard.main", self._order, [theirs.fileno()])
            self.pid = process.pid
            try:
                self._serve(process, mine)
            finally:
                self.pid = None
                mine.shutdown(socket.SHUT_RDWR)  # the page ends when this end is closed
                finish(process, _END_S)
            return process.returncode

    def _serve(self, process: Child, mine: socket.socket) -> None:
        """Until the process has ended, or is to end."""
        mine.settimeout(_POLL_S)
        while not self._ending.is_set and process.poll() is None:
            try:
                text = mine.recv(4096)
            except TimeoutError:
                continue
            if not text:
                self._clock.wait(self._ending, _POLL_S)
                continue
            url = text.decode(errors="replace").strip()
            log.info("the page", url=url)
            if self._on_ready is not None:
                self._on_ready(url)
