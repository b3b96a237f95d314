"""The service manager's side of a service of Type=notify: READY, STATUS, WATCHDOG (sd_notify(3))."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send a state such as "READY=1" if systemd (or whoever set NOTIFY_SOCKET) asked for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.sendall(state.encode())


def watchdog_s() -> float | None:
    """Seconds between signs of life that the service manager wants, None if it wants none."""
    wanted = os.environ.get("WATCHDOG_USEC", "")
    if not wanted.isdigit() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(wanted) / 1e6 or None
