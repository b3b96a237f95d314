"""Where frames wait for a lane: the newest of each source (live), or all of them in order (lossless).

While lanes are busy frames gather here by themselves, so batches grow with load and are one when idle; there is
no batching timer. A source has at most one batch in flight, so its messages need no reordering.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from daemon.clock import Clock
from daemon.frames import Frame
from daemon.metrics import Ledger


class FrameBoard:
    """Frames of all sources, put by capture threads and taken by lanes.

    Args:
        depth: None for live: one frame a source, replaced by the next; otherwise lossless: so many frames wait
            for each source, and then `put` blocks.
        max_age_ns: a live frame older than this when a lane is free is dropped as stale.
    """

    def __init__(
        self, sources: Sequence[str], ledger: Ledger, clock: Clock, *, depth: int | None, max_age_ns: int
    ) -> None:
        self._ledger, self._clock = ledger, clock
        self._live, self._depth, self._max_age_ns = depth is None, depth or 1, max_age_ns
        self._frames: dict[str, deque[Frame]] = {source: deque() for source in sources}
        # Sources a lane may take from, longest waiting first. A frame that replaces another keeps its place.
        self._ready: dict[str, None] = {}
        self._in_flight: set[str] = set()
        self._closed = False
        self._changed = threading.Condition()

    def put(self, frame: Frame, stop: threading.Event) -> None:
        """Leave a frame; lossless, wait for room until there is some or `stop` is set (then it is dropped)."""
        source = frame.info.source
        frames = self._frames[source]
        with self._changed:
            if self._live and frames:
                self._ledger.drop(frames.popleft().info, "superseded")
            while len(frames) >= self._depth and not stop.is_set() and not self._closed:
                self._changed.wait(0.1)
            if len(frames) >= self._depth or self._closed:
                self._ledger.drop(frame.info, "shutdown")
                return
            frames.append(frame)
            if source not in self._in_flight:
                self._ready[source] = None
                self._changed.notify_all()

    def take(self, most: int, timeout_s: float) -> list[Frame]:
        """Up to `most` frames, as soon as one is there; none when the time is over or the board is closed and empty.

        The sources taken from are in flight until `release`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._closed, timeout_s)
            batch: list[Frame] = []
            while self._ready and len(batch) < most:
                # A frame from each source in turn, so that a full queue cannot keep the others waiting.
                for source in list(self._ready)[: most - len(batch)]:
                    frame = self._frames[source].popleft()
                    if self._is_stale(frame):
                        self._ledger.drop(frame.info, "stale")
                    else:
                        batch.append(frame)
                        self._in_flight.add(source)
                    if not self._frames[source]:
                        del self._ready[source]
            for source in self._in_flight:
                self._ready.pop(source, None)
            self._changed.notify_all()
            return batch

    def release(self, batch: Sequence[Frame]) -> None:
        """The batch's messages are on their way: its sources may be taken from again."""
        with self._changed:
            for source in {frame.info.source for frame in batch}:
                self._in_flight.discard(source)
                if self._frames[source]:
                    self._ready[source] = None
            self._changed.notify_all()

    def settle(self, source: str, timeout_s: float) -> None:
        """Wait until nothing of a source waits here or is in flight: its results are in the outbox."""
        with self._changed:
            self._changed.wait_for(lambda: not self._frames[source] and source not in self._in_flight, timeout_s)

    def close(self) -> None:
        """No more frames are taken in; lanes may take what is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def drained(self) -> bool:
        """Closed, with nothing left to take."""
        with self._changed:
            return self._closed and not any(self._frames.values())

    def abandon(self) -> None:
        """Drop what is left: the time to stop is over."""
        with self._changed:
            for frames in self._frames.values():
                while frames:
                    self._ledger.drop(frames.popleft().info, "shutdown")
            self._ready.clear()

    def _is_stale(self, frame: Frame) -> bool:
        return self._live and self._clock.monotonic_ns() - frame.info.captured_ns > self._max_age_ns
