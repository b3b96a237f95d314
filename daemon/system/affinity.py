"""Keeps the daemon off a core that is busy with the GPU's interrupts.

All interrupts of a GPU come to one core. 7,200 decoded pictures a second are 11,300 of them on an H200, which leave a
quarter of that core, and a thirtieth where they come thick: a thread that the scheduler puts there, not knowing, takes
30 ms for what takes 1 ms elsewhere, and all that wait for the interpreter's lock wait with it. See
docs/notes/2026-11-22-interrupts.md.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)
_BUSY, _QUIET = 2000.0, 1000.0  # interrupts/s: from the one a core is left to them, below the other it is used again
_LOOK_NS = 5_000_000_000
_SHARE = 4
_IRQS = Path("/sys/kernel/irq")  # and not /proc/interrupts, which container engines hide


class Affinity:
    """Which cores the threads of some processes run on: all that this process may use, but the busy ones.

    Threads that somebody else has put on cores of his choice stay there. Where the kernel does not tell of interrupts,
    nothing is done.

    Args:
        pids: of the processes, as they are now.
        share: at most one core in so many is left to interrupts.
        irqs: the kernel's folder with a folder for each of them.

    Attributes:
        avoided: cores, now.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], share: int = _SHARE, irqs: Path = _IRQS) -> None:
        self._pids, self._irqs = pids, irqs
        self._may_use = frozenset(os.sched_getaffinity(0)) if irqs.is_dir() else frozenset[int]()
        self._most = len(self._may_use) // share
        self._given = {self._may_use}  # a thread begun while others are moved may still have an earlier one
        self._counts: Counter[int] = Counter()
        self._looked: int | None = None  # monotonic ns
        self.avoided: frozenset[int] = frozenset()

    def check(self, now_ns: int) -> None:
        """Count, and move threads if it is time to; call it every second or so.

        Args:
            now_ns: monotonic.
        """
        if not self._most or (self._looked is not None and now_ns - self._looked < _LOOK_NS):
            return
        before, since = self._counts, self._looked
        self._counts, self._looked = interrupts(self._irqs), now_ns
        if since is None:
            return
        rates = {core: (self._counts[core] - before[core]) / (now_ns - since) * 1e9 for core in self._may_use}
        busy = [core for core in self._may_use if rates[core] >= (_QUIET if core in self.avoided else _BUSY)]
        avoided = frozenset(sorted(busy, key=lambda core: -rates[core])[: self._most])
        if avoided != self.avoided:
            told = {str(core): round(rates[core]) for core in sorted(avoided)}
            log.info("cores left to the GPU's interrupts", interrupts_per_s_by_core=told)
        if avoided or self.avoided:
            try:
                self._move(self._may_use - avoided)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):  # at the next look, then
                    return
                # A filter of system calls, or a cpuset that has become another
                log.warning("cannot keep off these cores: latency suffers", reason=error.strerror)
                self._most, avoided = 0, frozenset()
        self.avoided = avoided

    def _move(self, to: frozenset[int]) -> None:
        """Every thread that has the cores which it began with, or which this gave it."""
        self._given.add(to)
        for pid in self._pids():
            with suppress(FileNotFoundError):  # it has just ended
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with suppress(ProcessLookupError):
                        now = frozenset(os.sched_getaffinity(int(thread)))
                        if now != to and now in self._given:
                            os.sched_setaffinity(int(thread), to)


def interrupts(irqs: Path = _IRQS) -> Counter[int]:
    """Of all NVIDIA GPUs since the machine's start, by core; empty where the kernel does not tell."""
    counts: Counter[int] = Counter()
    with suppress(OSError):
        for irq in irqs.iterdir():
            with suppress(OSError, ValueError):  # it has just been freed
                if "nvidia" in (irq / "actions").read_text():
                    counts.update(dict(enumerate(map(int, (irq / "per_cpu_count").read_text().split(",")))))
    return counts
