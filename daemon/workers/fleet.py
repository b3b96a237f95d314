"""In the daemon's process: all the capture processes, and the thread that waits for what comes from them."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from time import monotonic_ns

import structlog

from daemon.config import SourceConfig
from daemon.sources.decoding import NoHardware
from daemon.workers.member import Member
from daemon.workers.memory import Mapper
from daemon.workers.process import Begin
from daemon.workers.remote import RemoteCapture, Surroundings

log = structlog.get_logger(__name__)
_BUSY_MS = 2  # places come home without waking anybody; a source that waits for one waits so long for the word of it
_IDLE_MS = 200
_NONE = NoHardware("not in this process")


class Fleet(threading.Thread):
    """All capture processes; as a thread it lives until every source has ended, like `daemon.capture.CaptureThread`.

    Args:
        sources: shared out among the processes in turns.
        processes: how many.
        begin: what each is to do; `sources` and `part` of it are its own.
        on_failure: called when this thread cannot go on.
        seq: number of their first frames.

    Attributes:
        captures: of its sources.
        beat_ns: monotonic time of the last turn of the loop, for the watchdog.
    """

    def __init__(
        self,
        sources: Sequence[SourceConfig],
        processes: int,
        begin: Begin,
        surroundings: Surroundings,
        on_failure: Callable[[str], None],
        seq: int = 0,
    ) -> None:
        super().__init__(name="capture-processes", daemon=True)
        self.captures = [
            RemoteCapture(source, once=begin.make_source(source, _NONE).once, seq=seq) for source in sources
        ]
        self._offer, self._on_failure = begin.offer, on_failure
        count = min(processes, len(sources))
        parts = [self.captures[number::count] for number in range(count)]
        self._members = [
            Member(number, part, replace(begin, part=len(part) / len(sources)), surroundings)
            for number, part in enumerate(parts)
        ]
        self._begin, self._to, self._processes = begin, surroundings, processes
        self._orders: deque[Callable[[], None]] = deque()  # for this thread
        self._mapper: Mapper | None = None
        self._ending = threading.Event()
        self._wake, self._waker = os.pipe()
        self.beat_ns = monotonic_ns()

    @property
    def memory(self) -> int:
        """Bytes of the GPU that their decoders are planned to take."""
        return sum(member.memory for member in self._members)

    @property
    def pids(self) -> list[int]:
        """Of the processes that run."""
        return [pid for member in self._members if (pid := member.pid) is not None]

    def add(self, source: SourceConfig, seq: int) -> RemoteCapture:
        """Another source, for the process that has the fewest; from any thread, as long as this one lives."""
        capture = RemoteCapture(source, once=self._begin.make_source(source, _NONE).once, seq=seq)
        self._order(lambda: self._place(capture))
        return capture

    def remove(self, source: str) -> None:
        """Ask one source to end; from any thread."""
        self._order(lambda: self._displace(source))

    def stop(self) -> None:
        """Ask all sources to end; join it with a time limit."""
        self._ending.set()
        os.write(self._waker, b".")

    def kill(self) -> None:
        """What still runs when the time to stop is over."""
        for member in self._members:
            member.kill()

    def run(self) -> None:
        try:
            with closing(self._offer.mapper()) as mapper:
                self._serve(mapper)
        except Exception as error:
            log.exception("capture processes failed")
            self._on_failure(f"capture processes failed: {error}")

    def _serve(self, mapper: Mapper) -> None:
        """Until all have ended."""
        mapper.use()
        try:
            for member in self._members:
                member.mapper = mapper
                member.start()
            self._mapper, told = mapper, False
            while self._orders or not all(member.ended for member in self._members):
                while self._orders:
                    self._orders.popleft()()
                if self._ending.is_set() and not told:
                    told = True
                    for member in self._members:
                        member.stop()
                self._turn()
                self.beat_ns = monotonic_ns()
        finally:
            for member in self._members:
                member.close()

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        os.write(self._waker, b".")

    def _place(self, capture: RemoteCapture) -> None:
        self.captures = [row for row in self.captures if row.id != capture.id] + [capture]
        going = [member for member in self._members if not member.ended and member.sources]
        if len(going) < self._processes:
            part = 1 / max(self._processes, 1)
            member = Member(len(self._members), [capture], replace(self._begin, part=part), self._to)
            member.mapper = self._mapper or member.mapper
            self._members = [*(row for row in self._members if not row.ended), member]
            member.start()
            return
        min(going, key=lambda member: member.sources).add(capture)

    def _displace(self, source: str) -> None:
        for member in self._members:
            if member.has(source) and not member.ended:
                member.remove(source)

    def _turn(self) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        members = {fd: member for member in self._members if (fd := member.fileno()) is not None}
        for fd in members:
            poller.register(fd, select.POLLIN)
        busy = any(member.lends for member in self._members)
        for fd, _ in poller.poll(_BUSY_MS if busy else _IDLE_MS):
            if fd == self._wake:
                os.read(self._wake, 64)
            else:
                members[fd].receive()
        for member in self._members:
            member.give_back()
            member.revive()
