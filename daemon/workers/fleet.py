"""In the daemon's process: all the capture processes, and the thread that waits for what comes from them."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from time import monotonic_ns, sleep

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
_EVERY_S = 0.004  # live: what comes closer together is taken in together, so that this thread and lanes wake less often
_NONE = NoHardware("not in this process")
_ON_CPU = 8  # sources that the CPU decodes in one process
_NICE = 10
_FULL = "the GPU has room for {} decoder sessions, which others have"


class Fleet(threading.Thread):
    """All capture processes; as a thread it lives until every source has ended, like a `CaptureThread`.

    What the CPU decodes has processes of its own beside those of the GPU's decoder: in one they would fight for the
    interpreter's lock, which costs the many that are decoded on the GPU more than the few that are not. And they come
    last where there are too few cores, because lanes and the GPU's decoder need little of them, but at once.

    Args:
        sources: shared out among the processes in turns.
        processes: how many, of either kind.
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
        self._begin, self._to, self._processes = begin, surroundings, processes
        self._members = [
            self._member(number, part, len(part) / len(sources), on_gpu=on_gpu)
            for number, (on_gpu, part) in enumerate(self._parts(self.captures))
        ]
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

    def _parts(self, captures: Sequence[RemoteCapture]) -> list[tuple[bool, list[RemoteCapture]]]:
        """Those of each process, and whether the GPU's decoder is for them."""
        on_gpu = self._for_decoder(captures, 0)
        others = [capture for capture in captures if capture not in on_gpu]
        parts: list[tuple[bool, list[RemoteCapture]]] = []
        for group in (on_gpu, others):
            count = self._most(len(group), on_gpu=group is on_gpu, alone=not on_gpu)
            parts += [(group is on_gpu, group[number::count]) for number in range(count)]
        return parts

    def _for_decoder(self, captures: Sequence[RemoteCapture], taken: int) -> list[RemoteCapture]:
        """Those that the GPU's decoder is for: it has room for so many, and who insists comes first.

        Args:
            taken: by others.
        """
        if isinstance(self._offer, NoHardware):
            return [*captures]
        asking = sorted((capture for capture in captures if capture.asks_gpu), key=lambda capture: not capture.insists)
        sessions, insisting = self._offer.sessions, sum(capture.insists for capture in asking)
        return asking if sessions is None else asking[: max(insisting, sessions - taken)]

    def _most(self, sources: int, *, on_gpu: bool, alone: bool) -> int:
        """Processes for so many sources of one kind.

        Args:
            alone: there are none of the other kind.
        """
        return min(self._processes, sources if on_gpu or alone else -(-sources // _ON_CPU))

    def _member(self, number: int, captures: list[RemoteCapture], part: float, *, on_gpu: bool) -> Member:
        offer, niceness = self._offer, 0 if on_gpu else _NICE
        if not on_gpu:  # pictures are for the GPU where that has been asked for; otherwise nothing is taken of it
            full = _FULL.format(offer.sessions)
            asked = any(capture.asks_gpu for capture in captures)
            offer = offer.without_decoder(full) if asked else NoHardware(full)
        return Member(
            number, captures, replace(self._begin, offer=offer, part=part, niceness=niceness), self._to, on_gpu=on_gpu
        )

    def _place(self, capture: RemoteCapture) -> None:
        self.captures = [row for row in self.captures if row.id != capture.id] + [capture]
        going = [member for member in self._members if not member.ended and member.sources]
        taken = sum(member.sources for member in going if member.on_gpu)
        on_gpu = bool(self._for_decoder([capture], taken))
        alike = [member for member in going if member.on_gpu == on_gpu]
        sources = sum(member.sources for member in alike) + 1
        if len(alike) < self._most(sources, on_gpu=on_gpu, alone=len(alike) == len(going)):
            member = self._member(len(self._members), [capture], 1 / max(self._processes, 1), on_gpu=on_gpu)
            member.mapper = self._mapper or member.mapper
            self._members = [*(row for row in self._members if not row.ended), member]
            member.start()
            return
        min(alike, key=lambda member: member.sources).add(capture)

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
        came = poller.poll(_BUSY_MS if busy else _IDLE_MS)
        for fd, _ in came:
            if fd == self._wake:
                os.read(self._wake, 64)
            else:
                members[fd].receive()
        for member in self._members:
            member.give_back()
            member.revive()
        if came and self._begin.live:
            sleep(_EVERY_S)
