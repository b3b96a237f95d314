"""TCP ports for the servers of tests; each port is given once, even to several test processes."""

from __future__ import annotations

import os
import socket

_FIRST, _COUNT = 20_000, 12_000  # below the ports that the kernel gives to outgoing connections
_turn = os.getpid() * 997  # two processes begin at different places


def free_port() -> int:
    """A free port that no other test process is given while this process lives.

    Another process may take a port between a test's look at it and its server's `bind`. An abstract Unix socket with
    the port's number in its name is therefore the reservation: the kernel lets one process bind it, and frees it when
    that process ends.
    """
    global _turn  # noqa: PLW0603
    for _ in range(_COUNT):
        port = _FIRST + _turn % _COUNT
        _turn += 1
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0lookout-tests-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        reservation.detach()  # it stays bound until the process ends
        return port
    raise OSError(f"no port is free from {_FIRST} to {_FIRST + _COUNT}")
