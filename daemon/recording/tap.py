"""Packets of one source on their way into its rings, in the process that reads the source."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from daemon.clock import SystemClock, boottime_ns
from daemon.recording.ring_layout import identity_of
from daemon.recording.ring_writer import RingWriter
from daemon.sources.port import PacketInfo

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class RingTape:
    """Implements `daemon.capture.sinks.PacketTape`: each packet goes into the ring of each store.

    Attributes:
        session: that `begin` was called for last.
    """

    def __init__(self) -> None:
        self.session = ""
        self._writers: tuple[RingWriter, ...] = ()
        self._lock = threading.Lock()  # of changes

    def use(self, fds: Sequence[int]) -> None:
        """See `daemon.capture.sinks.PacketTape`. A ring that it has already goes on without a break."""
        with self._lock:
            known = {writer.identity: writer for writer in self._writers}
            writers: list[RingWriter] = []
            try:
                for fd in fds:
                    writers.append(known.get(identity_of(fd)) or RingWriter(fd))
            except BaseException:
                _close(writer for writer in writers if writer not in self._writers)
                raise
            before, self._writers = self._writers, tuple(writers)
            _close(writer for writer in before if writer not in writers)

    def begin(self, session: str) -> None:
        """Take the rings from other processes, which may have had the source meanwhile."""
        self.session = session
        for writer in self._writers:
            writer.attach()

    def put(self, session: str, info: PacketInfo, data: ReadableBuffer) -> None:
        boot, utc = boottime_ns(), SystemClock.utc_ns()
        for writer in self._writers:
            writer.put_packet(session, info, data, boot=boot, utc=utc)

    def close(self) -> None:
        self.use(())


def _close(writers: Iterable[RingWriter]) -> None:
    for writer in writers:
        writer.close()
