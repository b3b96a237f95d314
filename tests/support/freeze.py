"""`python freeze.py PID NAME`: stops one thread of a process while it waits, like a library that never returns.

A thread that works may hold the GIL, and would stop all threads. The script ends with the thread: a tracer must see the
thread die, or the process cannot be reaped.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_ALL = 0x40000000  # __WALL: threads as well
_FUTEX, _WAITS = "202", (0, 9)  # on x86-64; with a bit set or without
_LONG_S = 0.1  # a thread that waits for the GIL, a lock in its hand, wakes up every 5 ms, or later on a busy machine


def _switches(task: Path) -> str:
    """How often it has gone to sleep."""
    return (task / "status").read_text().partition("nonvoluntary_ctxt_switches")[0].rpartition(":")[2].strip()


def main() -> None:
    pid, name = sys.argv[1:]
    tasks = [task for task in Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().strip() == name]
    if not tasks:
        sys.exit(f"{pid} has no thread {name}")
    thread = int(tasks[0].name)
    libc = ctypes.CDLL(None, use_errno=True)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        before = _switches(tasks[0])
        time.sleep(_LONG_S)
        if _switches(tasks[0]) != before:
            continue
        for request in (_SEIZE, _INTERRUPT):
            if libc.ptrace(request, thread, None, None):
                sys.exit(os.strerror(ctypes.get_errno()))
        os.waitpid(thread, _ALL)
        call = (tasks[0] / "syscall").read_text().split()
        if call[0] == _FUTEX and int(call[2], 16) & 0x7F in _WAITS:
            break
        libc.ptrace(_DETACH, thread, None, None)
    else:
        sys.exit(f"{name} does not wait for a lock")
    os.write(1, b"frozen\n")
    while os.WIFSTOPPED(os.waitpid(thread, _ALL)[1]):
        pass


if __name__ == "__main__":
    main()
