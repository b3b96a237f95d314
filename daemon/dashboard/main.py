"""The page as a child of the daemon.

It ends when the other end of the socket is closed, which the daemon's own end does as well.
"""

from __future__ import annotations

import select
import socket

import structlog

from daemon.clock import SystemClock
from daemon.dashboard.process import PageOrder
from daemon.dashboard.server import Dashboard
from daemon.errors import LookoutError
from daemon.log import logging
from daemon.system.kept_process import tell_daemon
from daemon.system.tuning import disable_core_dumps, raise_nofile_limit

log = structlog.get_logger(__name__)
_POLL_MS = 1000


def main(order: PageOrder, reports: int) -> int:
    """
    Args:
        reports: socket to the daemon, for the page's URL.
    """
    end = socket.socket(fileno=reports)
    disable_core_dumps()
    raise_nofile_limit()
    with logging(order.log):
        try:
            served = Dashboard(order.page, order.addresses, SystemClock())
        except LookoutError as error:
            log.error("the page cannot be served", reason=str(error))
            return 2
        try:
            served.start()
            tell_daemon(end, served.url)
            _wait(end, served)
        finally:
            served.close()
    return 0


def _wait(end: socket.socket, served: Dashboard) -> None:
    """Until the daemon has closed its end, or the server has failed."""
    poller = select.poll()
    poller.register(end, select.POLLIN)
    while served.is_alive:
        if poller.poll(_POLL_MS) and not end.recv(64):
            return
