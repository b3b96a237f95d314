"""Child processes: how they begin, and those that take long to end."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from daemon.system.signals import signals_blocked


def spawn(
    module: str, order: object, fds: Sequence[int], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE FDS.. ORDER`, all file descriptors, with signals blocked.

    The order is pickled into a memory file: a pipe would block until the process reads.

    Raises:
        OSError: no descriptor or no process.
    """
    orders = os.memfd_create("orders")
    try:
        os.write(orders, pickle.dumps(order))
        os.lseek(orders, 0, os.SEEK_SET)
        given = [*fds, orders]
        with signals_blocked():
            return subprocess.Popen(
                [sys.executable, "-m", module, *map(str, given)],
                stdin=subprocess.DEVNULL,
                pass_fds=given,
                env=environment,
            )
    finally:
        os.close(orders)


def reap(process: subprocess.Popen[Any], within_s: float) -> None:
    """Wait for a process to end, so that it leaves no zombie; after the time limit a thread waits on.

    Even a killed process may take long: the machine is busy, or a driver holds the process.
    """
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        with suppress(RuntimeError):  # the system gives no thread: the next process that starts reaps this one
            threading.Thread(target=process.wait, name="reaper", daemon=True).start()
