"""Settings of the interpreter and of the process."""

from __future__ import annotations

import gc
import mmap
import os
import resource
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil

from daemon.errors import LookoutError
from daemon.system import memory

_MIN_FILES = 24  # enough for one synthetic source
_NICEST = 19
_SHARES_BY_SESSION, _SESSION = Path("/proc/sys/kernel/sched_autogroup_enabled"), Path("/proc/self/autogroup")
_SESSION_TRIES, _SESSION_AGAIN_S = 20, 0.1
_SPARE_BYTES = 64 << 20  # of address space: packages that are imported later, and a heap of a thread


def configure_gc_and_switch_interval(*, captures: bool = True) -> None:
    """Settings for many threads that each do little for a frame.

    Garbage collection: what exists now is frozen, because a full collection stops every thread, and frames make no
    cycles. Switch interval: capture threads release the GIL many times per millisecond. With the default 5 ms a waiting
    thread forces a context switch at each release, which costs more than the work between two of them; 50 ms avoids
    that. If other processes capture, 5 ms is enough: the few threads left release the GIL by themselves within less,
    and each forced switch wakes a thread on another core. 240 paced HEVC sources with tracking, on two H100: 7,025
    frames/s of 7,200 with 5 ms, 6,634 with 0.5 ms
    (`lookout bench run CLIP --sources 240 --paced --phase 0 --analytics`).

    Args:
        captures: this process captures sources.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    sys.setswitchinterval(0.05 if captures else 0.005)


def name_threads() -> None:
    """Give threads their names in the system, for `top -H`, debuggers and cores; Python 3.14 does it itself."""
    for thread in set(threading.enumerate()) - {threading.main_thread()}:  # its name is the process's
        with suppress(OSError):  # the thread has ended, or this is not Linux
            Path(f"/proc/self/task/{thread.native_id}/comm").write_text(thread.name[:15])


def disable_core_dumps() -> None:
    """A core dump would hold passwords and keys. To get one, raise the limit of the running process with prlimit(1)."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard_limit))


def come_last() -> None:
    """Run when nothing else wants a core or a disk: frames come first. Niceness alone would leave them less."""
    os.nice(_NICEST)
    with suppress(OSError):  # a sandbox may refuse either
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError, psutil.Error):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    _leave_session()


def _leave_session() -> None:
    """Into a session of its own, which is the nicest.

    Where the system shares the cores among sessions (sched(7), autogroup), what an idle process takes counts against
    its whole session, and that is the daemon's.
    """
    try:
        if _SHARES_BY_SESSION.read_text().strip() != "1":
            return
        os.setsid()
    except OSError:  # there is no such sharing
        return
    for _ in range(_SESSION_TRIES):
        try:
            _SESSION.write_text(str(_NICEST))
        except BlockingIOError:  # the system lets one in so often
            threading.Event().wait(_SESSION_AGAIN_S)
        except OSError:
            return
        else:
            return


def check_room(threads: int) -> None:
    """Whether the system gives so many more threads at once, and some memory beside their stacks.

    Without it a daemon is nearly ready when it finds that it cannot go on.

    Raises:
        LookoutError: it does not.
    """
    end, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(threads):
            thread = threading.Thread(target=end.wait, name="room", daemon=True)
            thread.start()
            started.append(thread)
        mmap.mmap(-1, _SPARE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (RuntimeError, OSError, MemoryError) as error:
        raise LookoutError(
            f"the system gives no room for {threads} more threads and {_SPARE_BYTES >> 20} MiB: raise the limits "
            f"(`ulimit -u`, `ulimit -v`, TasksMax, MemoryMax)"
        ) from error
    finally:
        end.set()
        for thread in started:
            thread.join()


def prepare_process() -> None:
    """Before anything is opened: memory is given back, and descriptors are as many as the system allows.

    Capture processes, started from here, have it too.
    """
    memory.configure_malloc()
    raise_nofile_limit()


def raise_nofile_limit() -> None:
    """Raise the limit of open files to the maximum: a source on the GPU takes about six, and 1,024 is a common limit.

    Raises:
        LookoutError: the maximum is too low to start; libzmq would end the process without a message.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    if 0 <= hard_limit < _MIN_FILES:
        raise LookoutError(
            f"the process may open {hard_limit} files, of which {_MIN_FILES} are needed: raise `ulimit -n`"
        )
