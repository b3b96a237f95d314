"""`python freeze.py PID NAME`: stops one thread of a process where it is, as a library that never returns would.

Ends with the thread; whoever traces a thread must be there to see it die, or its process cannot be buried.
"""

import ctypes
import os
import sys
from pathlib import Path

_SEIZE, _INTERRUPT = 0x4206, 0x4207
_ALL = 0x40000000  # __WALL: threads as well


def main() -> None:
    pid, name = sys.argv[1:]
    tasks = [task for task in Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().strip() == name]
    if not tasks:
        sys.exit(f"{pid} has no thread {name}")
    thread = int(tasks[0].name)
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (_SEIZE, _INTERRUPT):
        if libc.ptrace(request, thread, None, None):
            sys.exit(os.strerror(ctypes.get_errno()))
    while os.WIFSTOPPED(os.waitpid(thread, _ALL)[1]):
        os.write(1, b"frozen\n")


if __name__ == "__main__":
    main()
