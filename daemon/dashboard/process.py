"""In the daemon's process: the page in a child process, which is started again if it dies, and ends with the daemon."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from daemon.clock import Clock
from daemon.config.http import DashboardConfig, HttpConfig, TokenConfig
from daemon.config.root import Config, LogConfig
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from daemon.system.kept_process import KeptProcess

log = structlog.get_logger(__name__)


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
