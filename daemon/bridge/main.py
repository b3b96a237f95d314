"""The bridge as a child of the daemon.

It ends when the other end of the socket is closed, which the daemon's own end does as well.
"""

from __future__ import annotations

import os
import select
import socket
import sys

import structlog

from daemon.bridge.bridge import Bridge
from daemon.bridge.kit import open_account
from daemon.bridge.process import BridgeOrder
from daemon.clock import SystemClock
from daemon.errors import LookoutError
from daemon.log import logging
from daemon.system.tuning import disable_core_dumps, raise_nofile_limit

log = structlog.get_logger(__name__)
_POLL_MS = 1000
_NICE = 5  # frames come first


def main(order: BridgeOrder, reports: int, bound: int | None = None) -> int:
    """
    Args:
        reports: socket to the daemon.
        bound: the port's, if there is one.
    """
    port = None if bound is None else socket.socket(fileno=bound)
    code = _run(order, socket.socket(fileno=reports), port)
    sys.stderr.flush()
    os._exit(code)  # a library of a target may have threads that do not end


def _run(order: BridgeOrder, end: socket.socket, bound: socket.socket | None) -> int:
    disable_core_dumps()
    raise_nofile_limit()
    os.nice(_NICE)
    clock = SystemClock()
    with logging(order.log):
        try:
            bridge = Bridge(order.bridge, order.addresses, clock)
        except LookoutError as error:
            log.error("the bridge cannot run", reason=str(error))
            return 2
        try:
            account = open_account(order.bridge, order.http, bridge.report, clock, bound)
        except LookoutError as error:
            log.error("the bridge's account cannot be served", reason=str(error))
            bridge.stop()
            return 2
        bridge.start()
        if account is not None:
            account.start()
        _wait(end)
        if account is not None:
            account.close()
        bridge.stop()
    return 0


def _wait(end: socket.socket) -> None:
    """Until the daemon has closed its end."""
    poller = select.poll()
    poller.register(end, select.POLLIN)
    while not poller.poll(_POLL_MS) or end.recv(64):
        pass
