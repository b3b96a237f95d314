"""Keeps the daemon's threads off a core that is busy with the GPU's interrupts.

All interrupts of a GPU go to one core. At 7,200 decoded pictures a second an H200 raises 11,300 interrupts a second,
which leave a quarter of that core, and a thirtieth in bursts. A thread that the scheduler puts there takes 30 ms for
1 ms of work, and every thread that waits for the GIL waits with it. See docs/notes/2026-11-22-interrupts.md.
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
_BUSY, _QUIET = (
    2000.0,
    1000.0,
)  # interrupts/s at which a core is avoided, and below which it is used again
_INTERVAL_NS = 5_000_000_000
_SHARE = 4
_IRQS = Path("/sys/kernel/irq")  # container engines hide /proc/interrupts


class Affinity:
    """Sets the CPU affinity of all threads: every core that this process may use, except the busy ones.

    Threads with an affinity that another program has set are not changed. Where the kernel does not count interrupts
    nothing is done.

    Args:
        pids: the current processes.
        share: avoid at most one core in so many.
        irqs: the kernel's folder of interrupts.

    Attributes:
        avoided: the cores that are avoided now.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], share: int = _SHARE, irqs: Path = _IRQS) -> None:
        self._pids, self._irqs = pids, irqs
        self._may_use = frozenset(os.sched_getaffinity(0)) if irqs.is_dir() else frozenset[int]()
        self._max_avoided = len(self._may_use) // share
        self._assigned = {self._may_use}  # every mask so far: a thread that starts during a change has an earlier one
        self._counts: Counter[int] = Counter()
        self._checked_ns: int | None = None  # monotonic ns
        self.avoided: frozenset[int] = frozenset()

    def check(self, now_ns: int) -> None:
        """Count interrupts and move threads, if it is time to; call it every second.

        Args:
            now_ns: monotonic.
        """
        if not self._max_avoided or (self._checked_ns is not None and now_ns - self._checked_ns < _INTERVAL_NS):
            return
        before, since = self._counts, self._checked_ns
        self._counts, self._checked_ns = interrupts(self._irqs), now_ns
        if since is None:
            return
        rates = {core: (self._counts[core] - before[core]) / (now_ns - since) * 1e9 for core in self._may_use}
        busy = [core for core in self._may_use if rates[core] >= (_QUIET if core in self.avoided else _BUSY)]
        avoided = frozenset(sorted(busy, key=lambda core: -rates[core])[: self._max_avoided])
        if avoided != self.avoided:
            logged = {str(core): round(rates[core]) for core in sorted(avoided)}
            log.info("cores left to the GPU's interrupts", interrupts_per_s_by_core=logged)
        if avoided or self.avoided:
            try:
                self._move(self._may_use - avoided)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):  # retried at the next check
                    return
                # A filter of system calls, or another cpuset
                log.warning("cannot keep off these cores: latency suffers", reason=error.strerror)
                self._max_avoided, avoided = 0, frozenset()
        self.avoided = avoided

    def _move(self, to: frozenset[int]) -> None:
        """Move every thread whose affinity is the initial one or one that was set here."""
        self._assigned.add(to)
        for pid in self._pids():
            with suppress(FileNotFoundError):  # it has just ended
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with suppress(ProcessLookupError):
                        now = frozenset(os.sched_getaffinity(int(thread)))
                        if now != to and now in self._assigned:
                            os.sched_setaffinity(int(thread), to)


def interrupts(irqs: Path = _IRQS) -> Counter[int]:
    """Interrupts of all NVIDIA GPUs since the machine's start, by core; empty if the kernel does not count them."""
    counts: Counter[int] = Counter()
    with suppress(OSError):
        for irq in irqs.iterdir():
            with suppress(OSError, ValueError):  # it has just been freed
                if "nvidia" in (irq / "actions").read_text():
                    counts.update(dict(enumerate(map(int, (irq / "per_cpu_count").read_text().split(",")))))
    return counts
