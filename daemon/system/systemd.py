"""The service manager's side of a service of Type=notify: READY, STATUS, WATCHDOG (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache


def notify(state: str) -> None:
    """Send a state such as "READY=1" if systemd (or whoever set NOTIFY_SOCKET) asked for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with suppress(OSError):
        try:
            _sender(address).sendall(state.encode())
        except OSError:  # whoever listened there has begun anew
            _sender.cache_clear()
            _sender(address).sendall(state.encode())


@cache
def _sender(address: str) -> socket.socket:
    """Kept, so that a sign of life needs no descriptor that there may not be."""
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sender.connect(address)
    except OSError:
        sender.close()
        raise
    return sender


def watchdog_s() -> float | None:
    """Seconds between signs of life that the service manager wants, None if it wants none."""
    wanted = os.environ.get("WATCHDOG_USEC", "")
    if not wanted.isdigit() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(wanted) / 1e6 or None
