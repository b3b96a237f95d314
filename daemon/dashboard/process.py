"""In the daemon's process: the page in a child process, which is started again if it dies, and ends with the daemon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from daemon.clock import Clock
from daemon.config.http import DashboardConfig
from daemon.config.root import LogConfig
from daemon.peers.addresses import DaemonAddress
from daemon.system.kept_process import KeptProcess

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class PageOrder:
    """Configuration of the child process; see `daemon.dashboard.server.Dashboard`."""

    page: DashboardConfig
    addresses: Sequence[DaemonAddress]
    log: LogConfig


class PageProcess(KeptProcess):
    """Keeps the page running until `close`.

    Args:
        on_ready: called with the page's address each time that it serves.
    """

    def __init__(self, order: PageOrder, clock: Clock, on_ready: Callable[[str], None] | None = None) -> None:
        super().__init__("daemon.dashboard.main", "the page", order, clock, name="dashboard")
        self._on_ready = on_ready

    def on_text(self, text: str) -> None:
        log.info("the page", url=text)
        if self._on_ready is not None:
            self._on_ready(text)
