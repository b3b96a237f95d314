"""In the daemon's process: the bridge in a child process, on a port that stays the daemon's own."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from daemon.clock import Clock
from daemon.config.bridge import BridgeConfig
from daemon.config.http import HttpConfig
from daemon.config.root import LogConfig
from daemon.peers.addresses import DaemonAddress
from daemon.system.kept_process import KeptProcess

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class BridgeOrder:
    """Configuration of the child process; see `daemon.bridge.bridge.Bridge`.

    Attributes:
        http: host, tokens and certificate of `bridge.port`.
    """

    bridge: BridgeConfig
    addresses: Sequence[DaemonAddress]
    http: HttpConfig
    log: LogConfig


class BridgeProcess(KeptProcess):
    """Keeps the bridge running until `finish`.

    Args:
        bound: its port, which a restart does not give up; None without one.
    """

    def __init__(self, order: BridgeOrder, clock: Clock, bound: socket.socket | None) -> None:
        self._bound = bound
        fds = [bound.fileno()] if bound else []
        super().__init__("daemon.bridge.main", "the bridge", order, clock, name="bridge", fds=fds)

    def finish(self, seconds: float) -> None:
        """After `request_stop`: wait so long, and give up the port, even if the system cannot end the process."""
        if self.ident is not None:
            self.join(seconds)
        if self._bound is not None:
            with suppress(OSError):
                self._bound.shutdown(socket.SHUT_RDWR)
            self._bound.close()
