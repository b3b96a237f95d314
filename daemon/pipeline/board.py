"""Where frames wait for a lane: the newest of each source (live), or all of them in order (lossless).

While lanes are busy frames gather here by themselves, so batches grow with load and are one when idle; there is
no batching timer. Lanes of one GPU leave live frames to gather as long as others have more in flight, up to a full
batch: two small batches cost as much of the CPU as two large ones. A source has at most one batch in flight, so its
messages need no reordering.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Literal

from daemon.clock import Clock
from daemon.pipeline.frames import Frame
from daemon.pipeline.ledger import Ledger
from daemon.system.stop import Stop

PATIENT_DEPTH = 2  # frames of a source that waits for lanes where others do not
Cause = Literal["shutdown", "removed"]
"""Why a frame that waits for room is given up."""


class Batch:
    """Frames that a lane has taken.

    Attributes:
        frames: at least one, unless nothing came in time.
        claimed: their fate is the lane's to tell, if there are any.
    """

    __slots__ = ("claimed", "frames")

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames
        self.claimed = not frames


class _Queue:
    """One source's frames.

    Attributes:
        in_flight: a lane has a frame of it.
        gone: the source was removed while it was in flight.
        wanted: its thread waits for room, or for its last frame to be on its way.
        wake: tells its thread that there is.
        replaces: a newer frame takes the place of an older one.
        depth: frames that there is room for.
    """

    __slots__ = ("depth", "frames", "gone", "in_flight", "replaces", "wake", "wanted")

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.replaces, self.depth = False, 1
        self.in_flight = self.gone = self.wanted = False
        self.wake: Callable[[], None] = lambda: None

    def call(self) -> None:
        """Tell its thread, if it waits."""
        if self.wanted:
            self.wanted = False
            self.wake()


class FrameBoard:
    """Frames of all sources, put by capture threads and taken by lanes.

    One lock. Lanes wait here; capture threads do not, they are told when it is worth asking again.

    Args:
        depth: None for live: one frame a source, replaced by the next; otherwise lossless: so many frames wait
            for each source, and then there is no room.
        max_age_ns: a live frame older than this when a lane is free is dropped as stale.
        lanes: that take from here. Where it is lossless, no batch has frames of more sources than one lane's share:
            a source is in flight once, and a batch with one frame of each would leave nothing to the others.
        batch: frames that are taken at once, at most; None for what the lane asks for.
        gather: a batch takes so little time that waiting for one is worth it; it is not where it is lossless.
        patient: live: sources that wait for lanes all the same, such as recordings that are played as fast as can be.

    Attributes:
        live: newer frames replace older ones.
    """

    def __init__(
        self,
        sources: Sequence[str],
        ledger: Ledger,
        clock: Clock,
        *,
        depth: int | None,
        max_age_ns: int,
        lanes: int = 1,
        batch: int | None = None,
        gather: bool = False,
        patient: Iterable[str] = (),
    ) -> None:
        self._batch = batch
        self._gather = gather and depth is None
        self._in_flight = 0  # sources
        self._full = 1  # frames of a full batch, as the last lane said
        self._called = False  # a lane, since the last came
        self._ledger, self._clock = ledger, clock
        self.live, self._depth, self._max_age_ns = depth is None, depth or 1, max_age_ns
        self._lanes = lanes
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._most_sources = 0
        # Sources a lane may take from, longest waiting first. A frame that replaces another keeps its place.
        self._ready: dict[str, None] = {}
        self._filled = threading.Condition(self._lock)  # for lanes
        self._in_hand: dict[Batch, None] = {}  # taken, and not claimed yet
        self._closed = False
        patient = set(patient)
        for source in sources:
            self.add(source, patient=source in patient)

    def add(self, source: str, *, patient: bool = False) -> None:
        """Frames of a source will come.

        Args:
            patient: see above.
        """
        with self._lock:
            replaces = self.live and not patient
            queue = self._queues.setdefault(source, _Queue())
            queue.gone, queue.replaces = False, replaces
            queue.depth = PATIENT_DEPTH if self.live and patient else self._depth
            self._most_sources = self._share()

    def remove(self, source: str) -> None:
        """No more frames of a source will come; what is left of it is dropped."""
        with self._lock:
            queue = self._queues.get(source)
            if queue is None:
                return
            while queue.frames:
                self._ledger.drop(queue.frames.popleft().info, "removed")
            self._ready.pop(source, None)
            if queue.in_flight:  # should it come back before, its frames must not overtake those in flight
                queue.gone, queue.wake = True, lambda: None
            else:
                del self._queues[source]
            self._most_sources = self._share()

    def _share(self) -> int:
        """Sources in one batch, at most."""
        return len(self._queues) if self.live else -(-len(self._queues) // self._lanes)

    def listen(self, source: str, wake: Callable[[], None]) -> None:
        """Whom to tell when a source that had no room has some, or is settled; returns at once."""
        self._queues[source].wake = wake

    def put(self, frame: Frame, *, give_up: Cause | None = None, hold_ns: int = 0) -> bool:
        """Leave a frame; False if there is no room for it now.

        Args:
            give_up: where there is no room, drop it for this cause.
            hold_ns: a frame that was captured less than this before is not replaced yet: cameras with B-frames send
                several at once, and a lane that has nothing else to do takes them one after the other.
        """
        with self._lock:
            return self._put(frame, give_up=give_up, hold_ns=hold_ns)

    def put_all(self, frames: Iterable[Frame]) -> None:
        """Leave several at once; those that there is no room for are dropped."""
        with self._lock:
            for frame in frames:
                self._put(frame, give_up="shutdown")

    def take(self, most: int, timeout_s: float, retired: Stop | None = None) -> Batch:
        """Up to `most` frames, or as many as are given at once, as soon as one is there; none when the time is over or
        the board is closed and empty.

        The sources taken from are in flight until `release`.

        Args:
            retired: once set, nothing is taken: what others take after that comes after what was taken here.
        """
        with self._lock:
            self._full = most = min(most, self._batch or most)
            self._filled.wait_for(lambda: self._closed or self._is_worth_taking(), timeout_s)
            self._called = False
            if retired and retired.is_set:
                self._call_lane()
                return Batch([])
            frames: list[Frame] = []
            ready = dict.fromkeys(islice(self._ready, self._most_sources))
            for source in ready:
                del self._ready[source]
            again: list[str] = []  # sources with more, which wait until the others have had their turn
            while len(frames) < most and (ready or again):
                if not ready:
                    ready, again = dict.fromkeys(again), []
                source = next(iter(ready))
                del ready[source]
                queue = self._queues[source]
                frame = queue.frames.popleft()
                if queue.replaces and self._is_stale(frame):
                    self._ledger.drop(frame.info, "stale")
                else:
                    frames.append(frame)
                    queue.in_flight = True
                if queue.frames:
                    again.append(source)
                self._tell(queue)
            # Those that had no turn are first again. Who has a frame in the batch is in flight.
            self._ready = {**ready, **self._ready, **dict.fromkeys(again)}
            for source in {frame.info.source for frame in frames}:
                self._ready.pop(source, None)
                self._in_flight += 1
            batch = Batch(frames)
            if frames:
                self._in_hand[batch] = None
            self._call_lane()
            return batch

    def claim(self, batch: Batch) -> bool:
        """Whether the frames' fate is the lane's to tell; it is not once they were given up. Takes no lock."""
        if self._in_hand.pop(batch, self) is not self:  # one of two threads gets it
            batch.claimed = True
        return batch.claimed

    def release(self, batch: Batch) -> None:
        """The batch's messages are on their way: its sources may be taken from again."""
        frames = batch.frames
        with self._lock:
            # Order by each source's last frame in the batch, so that a source with two frames does not go first again.
            for source in reversed(dict.fromkeys(frame.info.source for frame in reversed(frames))):
                self._in_flight -= 1
                queue = self._queues[source]
                queue.in_flight = False
                if queue.gone:
                    del self._queues[source]
                    self._most_sources = self._share()
                    continue
                if queue.frames:
                    self._ready[source] = None
                self._tell(queue)
            if not self._gather:  # otherwise the lane that gives these back takes the next
                self._call_lane()

    def call_lane(self) -> None:
        """One lane takes no more: another takes what is there."""
        with self._lock:
            self._called = False
            self._call_lane()

    def is_settled(self, source: str) -> bool:
        """Nothing of a source waits here or is in flight: its results are in the outbox."""
        with self._lock:
            queue = self._queues.get(source)
            if queue is None or queue.gone:
                return True
            queue.wanted = bool(queue.frames) or queue.in_flight
            return not queue.wanted

    def close(self) -> None:
        """No more frames are taken in; lanes may take what is left."""
        with self._lock:
            self._closed = True
            self._filled.notify_all()
            for queue in self._queues.values():
                queue.call()

    @property
    def drained(self) -> bool:
        """Closed, with nothing left to take."""
        if not self._closed:
            return False
        with self._lock:
            return not any(queue.frames for queue in self._queues.values())

    def abandon(self) -> None:
        """Drop what is left, in the hands of lanes too: the time to stop is over."""
        with self._lock:
            self._closed = True
            for queue in self._queues.values():
                while queue.frames:
                    self._ledger.drop(queue.frames.popleft().info, "shutdown")
            while batch := self._last_in_hand():
                for frame in batch.frames:
                    self._ledger.drop(frame.info, "shutdown")
            self._ready.clear()
            self._filled.notify_all()

    def _last_in_hand(self) -> Batch | None:
        """One that no lane can claim from here on."""
        try:
            return self._in_hand.popitem()[0]
        except KeyError:
            return None

    def _put(self, frame: Frame, *, give_up: Cause | None, hold_ns: int = 0) -> bool:
        source = frame.info.source
        queue = self._queues.get(source)
        if self._closed or queue is None or queue.gone:
            self._ledger.drop(frame.info, "shutdown" if self._closed else "removed")
            return True
        if queue.replaces and queue.frames:
            if not give_up and self._clock.monotonic_ns() - queue.frames[-1].info.captured_ns < hold_ns:
                queue.wanted = True
                return False
            self._ledger.drop(queue.frames.popleft().info, "superseded")
        elif len(queue.frames) >= queue.depth:
            if give_up:
                self._ledger.drop(frame.info, give_up)
            queue.wanted = not give_up
            return give_up is not None
        queue.frames.append(frame)
        if not (queue.in_flight or source in self._ready):
            self._ready[source] = None
            self._call_lane()
        return True

    def _is_worth_taking(self) -> bool:
        waiting = len(self._ready)
        return waiting > 0 and (not self._gather or waiting >= min(self._in_flight, self._full))

    def _call_lane(self) -> None:
        """If there is something for it. One that was called and has not come yet takes all there is."""
        if self._is_worth_taking() and not (self._gather and self._called):
            self._called = True
            self._filled.notify()

    def _tell(self, queue: _Queue) -> None:
        """A thread that is woken for room finds some for several frames."""
        if queue.wanted and len(queue.frames) <= queue.depth // 2:
            queue.call()

    def _is_stale(self, frame: Frame) -> bool:
        return self._clock.monotonic_ns() - frame.info.captured_ns > self._max_age_ns
