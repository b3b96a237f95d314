"""The API of recordings as a child of the daemon.

It ends when the other end of the socket is closed, which the daemon's own end does as well. A thread that a store's
file system holds does not hold it up: only the system may.
"""

from __future__ import annotations

import os
import select
import socket
import sys

import structlog

from daemon.clock import SystemClock
from daemon.errors import LookoutError
from daemon.log import logging
from daemon.playback.process import PlaybackOrder
from daemon.playback.server import PlaybackServer
from daemon.system.kept_process import tell_daemon
from daemon.system.tuning import disable_core_dumps, raise_nofile_limit

log = structlog.get_logger(__name__)
_POLL_MS = 1000
_NICE = 10  # frames come first


def main(order: PlaybackOrder, reports: int, bound: int) -> int:
    """
    Args:
        reports: socket to the daemon.
        bound: the port's.
    """
    code = _serve(order, socket.socket(fileno=reports), socket.socket(fileno=bound))
    sys.stderr.flush()
    os._exit(code)


def _serve(order: PlaybackOrder, end: socket.socket, bound: socket.socket) -> int:
    disable_core_dumps()
    raise_nofile_limit()
    os.nice(_NICE)
    with logging(order.log):
        try:
            server = PlaybackServer(order.http, order.places, bound, SystemClock(), order.evidence)
        except LookoutError as error:
            log.error("recordings cannot be served", reason=str(error))
            return 2
        try:
            server.start()
            tell_daemon(end, "ready")
            _wait(end, server)
        finally:
            server.close()
    return 0


def _wait(end: socket.socket, server: PlaybackServer) -> None:
    """Until the daemon has closed its end, or the server has failed."""
    poller = select.poll()
    poller.register(end, select.POLLIN)
    while server.is_alive:
        if poller.poll(_POLL_MS) and not end.recv(64):
            return
