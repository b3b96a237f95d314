"""Child processes that take long to end."""

from __future__ import annotations

import subprocess
import threading
from typing import Any


def reap(process: subprocess.Popen[Any], within_s: float) -> None:
    """Wait for a process to end, so that it leaves no zombie; after the time limit a thread waits on.

    Even a killed process may take long: the machine is busy, or a driver holds the process.
    """
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        threading.Thread(target=process.wait, name="reaper", daemon=True).start()
