"""The interpreter and the system, told what is coming."""

from __future__ import annotations

import gc
import resource
import sys
import threading
from contextlib import suppress
from pathlib import Path

from daemon.errors import LookoutError

_FEWEST_FILES = 24  # for one drawn source


def configure_gc_and_switch_interval(*, captures: bool = True) -> None:
    """For many threads that each do little for a frame.

    The collector: what is there now stays, and what a frame makes has no cycles; looking through it all holds up every
    thread. The lock: threads that capture give it up of themselves, many times a millisecond. Who has waited for the
    usual 5 ms makes every such moment a switch to another thread, which costs more than the work in between. Where
    others capture, those few that are left do not give it up by themselves, and a lane must not wait for it.

    Args:
        captures: sources are captured in this process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    sys.setswitchinterval(0.05 if captures else 0.0005)


def name_threads() -> None:
    """Tell the system what Python's threads are, for `top -H`, debuggers and cores; Python 3.14 does it by itself."""
    for thread in set(threading.enumerate()) - {threading.main_thread()}:  # whose name is the process's
        with suppress(OSError):  # it has just ended, or this is not Linux
            Path(f"/proc/self/task/{thread.native_id}/comm").write_text(thread.name[:15])


def disable_core_dumps() -> None:
    """A core holds passwords and keys; who needs one raises the limit of the process that runs, with prlimit(1)."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def raise_nofile_limit() -> None:
    """As many as may be had: a source that the GPU decodes takes about six, and 1,024 is a common limit.

    Raises:
        LookoutError: they are too few to begin with; libzmq would end the process without a word of ours.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if 0 <= most < _FEWEST_FILES:
        raise LookoutError(f"the process may open {most} files, of which {_FEWEST_FILES} are needed: raise `ulimit -n`")
