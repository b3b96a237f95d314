"""The service's side of Type=notify: READY, STATUS, WATCHDOG (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache


def notify(state: str) -> None:
    """Send a state such as "READY=1" to the service manager, if NOTIFY_SOCKET is set."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with suppress(OSError):
        try:
            _sender(address).sendall(state.encode())
        except OSError:  # the listener has restarted
            _sender.cache_clear()
            _sender(address).sendall(state.encode())


@cache
def _sender(address: str) -> socket.socket:
    """Cached, so that a heartbeat needs no new descriptor."""
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sender.connect(address)
    except OSError:
        sender.close()
        raise
    return sender


def watchdog_s() -> float | None:
    """The service manager's watchdog interval, seconds; None if it has none."""
    wanted = os.environ.get("WATCHDOG_USEC", "")
    if not wanted.isdigit() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(wanted) / 1e6 or None
