"""Child processes that may end later than they are waited for."""

from __future__ import annotations

import subprocess
import threading
from typing import Any


def reap(process: subprocess.Popen[Any], within_s: float) -> None:
    """Wait until a process has ended, so that it leaves no zombie; after that time a thread beside waits on.

    A process that was killed may take long, too: the machine is busy, or a driver holds it.
    """
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        threading.Thread(target=process.wait, name="reaper", daemon=True).start()
