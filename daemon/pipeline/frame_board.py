"""Where frames wait for a lane: the newest of each source (live), or all of them in order (lossless).

While lanes are busy frames gather here by themselves, so batches grow with load and are one when idle; there is
no batching timer. Lanes of one GPU leave live frames to gather as long as others have more in flight, up to a full
batch: two small batches cost as much of the CPU as two large ones. A source has at most one batch in flight, so its
messages need no reordering.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

from daemon.clock import Clock
from daemon.pipeline.batch import Batch
from daemon.pipeline.board_rules import PATIENT_DEPTH, BoardRules
from daemon.pipeline.drop_causes import GiveUp
from daemon.pipeline.frames import Frame
from daemon.pipeline.ledger import Ledger
from daemon.system.stop_token import StopToken
from detectors.port import Size


class _Queue:
    """One source's frames.

    Attributes:
        in_flight: a lane has a frame of the source.
        held: calls of `follow` that are not over.
        gone: the source was removed while it was in flight.
        after_last: called when the frames in flight are through.
        waits_for_room: the capture thread waits for room, or until its last frame is in the outbox.
        wake: wakes the capture thread; None before it listens, and once the source is gone.
        replaces: a newer frame replaces an older one.
        depth: maximum number of frames.
    """

    __slots__ = ("after_last", "depth", "frames", "gone", "held", "in_flight", "replaces", "waits_for_room", "wake")

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.replaces, self.depth, self.held = False, 1, 0
        self.in_flight = self.gone = self.waits_for_room = False
        self.after_last: list[Callable[[], None]] = []
        self.wake: Callable[[], None] | None = None


class FrameBoard:
    """Frames of all sources, put by capture threads and taken by lanes.

    One lock. Lanes wait here. Capture threads do not wait: the board wakes them when there is room.

    Args:
        patient: sources that wait for lanes in live mode, too, such as recordings played at full speed.

    Attributes:
        live: newer frames replace older ones.
    """

    def __init__(
        self,
        sources: Sequence[str],
        ledger: Ledger,
        clock: Clock,
        rules: BoardRules,
        patient: Iterable[str] = (),
    ) -> None:
        self._rules = rules
        self._gather = rules.gather and rules.depth is None
        self._in_flight = 0  # sources
        self._full = 1  # size of a full batch, by the last lane
        self._called = False  # a lane was woken and has not come yet
        self._ledger, self._clock = ledger, clock
        self.live, self._depth = rules.depth is None, rules.depth or 1
        self._pictures: Mapping[str, int] = {}  # replaced as a whole
        self._sizes: Mapping[str, Size] = {}  # likewise
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._most_sources = 0
        # Sources with frames for a lane, longest waiting first. A frame that replaces another keeps the place.
        self._ready: dict[str, None] = {}
        self._filled = threading.Condition(self._lock)  # for lanes
        self._waiting_lanes = 0
        self._in_hand: dict[Batch, None] = {}  # taken, and not claimed yet
        self._closed = False
        patient = set(patient)
        for source in sources:
            self.add(source, patient=source in patient)

    def add(self, source: str, *, patient: bool = False) -> None:
        """Accept frames of a source; see the class for `patient`."""
        with self._lock:
            replaces = self.live and not patient
            queue = self._queues.setdefault(source, _Queue())
            queue.gone, queue.replaces = False, replaces
            queue.depth = PATIENT_DEPTH if self.live and patient else self._depth
            self._most_sources = self._share()

    def remove(self, source: str) -> None:
        """Accept no more frames of a source, and drop those that wait."""
        with self._lock:
            queue = self._queues.get(source)
            if queue is None:
                return
            while queue.frames:
                self._ledger.drop(queue.frames.popleft().info, "removed")
            self._ready.pop(source, None)
            if queue.in_flight:  # if the source comes back, its frames must not overtake those in flight
                queue.gone, queue.wake = True, None
            else:
                del self._queues[source]
            self._most_sources = self._share()

    def follow(self, source: str, former: FrameBoard) -> None:
        """Give no frame of a source to a lane before its last ones on another board are through."""
        with self._lock:
            self._queues[source].held += 1
            self._ready.pop(source, None)
        if not former._after_last(source, partial(self._free, source)):
            self._free(source)

    def _free(self, source: str) -> None:
        with self._lock:
            queue = self._queues.get(source)
            if queue is not None and queue.held:
                queue.held -= 1
                if queue.frames and not (queue.in_flight or queue.held):
                    self._ready[source] = None
                self._call_lane()

    def _after_last(self, source: str, call: Callable[[], None]) -> bool:
        """Call a function without the lock when frames of a removed source are through; False if none is in flight."""
        with self._lock:
            queue = self._queues.get(source)
            if queue is None or not queue.gone:
                return False
            queue.after_last.append(call)
            return True

    def set_pictures(self, pictures: Mapping[str, int]) -> None:
        """Set the pictures that the model sees for a frame of each source, where they are several."""
        self._pictures = pictures

    def set_sizes(self, sizes: Mapping[str, Size]) -> None:
        """Set the input size of each source, where it is not the model's own. A batch has frames of one size."""
        self._sizes = sizes

    def _share(self) -> int:
        """Maximum number of sources in one batch."""
        return len(self._queues) if self.live else -(-len(self._queues) // self._rules.lanes)

    def listen(self, source: str, wake: Callable[[], None]) -> None:
        """Call `wake` when a source that had no room has some, or is settled."""
        self._queues[source].wake = wake

    def put(self, frame: Frame, *, give_up: GiveUp | None = None, hold_ns: int = 0) -> bool:
        """Add a frame; False if there is no room for it now.

        Args:
            give_up: drop cause if there is no room.
            hold_ns: do not replace a frame younger than this yet. Cameras with B-frames send several frames at once,
                and an idle lane takes them one after the other.
        """
        with self._lock:
            waiting = len(self._ready)
            done = self._put(frame, give_up, hold_ns)
            if len(self._ready) > waiting:
                self._call_lane()
            return done

    def has_room(self, source: str, hold_ns: int) -> bool:
        """Whether `put` takes a frame of a source now; if not, its capture is woken when it may."""
        with self._lock:
            queue = self._queues.get(source)
            if self._closed or queue is None or queue.gone:
                return True  # it is dropped, and counted
            queue.waits_for_room = not self._takes(queue, hold_ns)
            return not queue.waits_for_room

    def put_all(self, frames: Iterable[Frame]) -> None:
        """Add several frames; frames without room are dropped."""
        with self._lock:
            waiting = len(self._ready)
            for frame in frames:
                self._put(frame, "shutdown")
            if len(self._ready) > waiting:
                self._call_lane()  # which calls another if it leaves frames

    def take_batch(self, limit: int, timeout_s: float, retired: StopToken | None = None) -> Batch:
        """Wait for frames and take up to `limit` of them; none after the timeout, or if the board is closed and empty.

        The sources of the batch are in flight until `release`. A frame that the model sees as several pictures counts
        as so many; the first frame is taken in any case.

        Args:
            retired: if set, the batch is empty, so that later frames of a source go to other lanes.
        """
        with self._lock:
            self._full = limit = min(limit, self._rules.batch or limit)
            self._waiting_lanes += 1
            self._filled.wait_for(lambda: self._closed or self._is_worth_taking(), timeout_s)
            self._waiting_lanes -= 1
            self._called = False
            if retired and retired.is_set:
                self._call_lane()
                return Batch([])
            sources, size = self._first_sources()
            frames = self._pop_frames(sources, limit)
            batch = Batch(frames, size)
            if frames:
                self._in_hand[batch] = None
            self._call_lane()
            return batch

    def _first_sources(self) -> tuple[list[str], Size | None]:
        """The sources whose turn it is: those with the input size of the source that has waited longest."""
        ready, sizes = self._ready, self._sizes
        if not (sizes and ready):
            return list(islice(ready, self._most_sources)), None
        size = sizes.get(next(iter(ready)))
        same = (source for source in ready if sizes.get(source) == size)
        return list(islice(same, self._most_sources)), size

    def _pop_frames(self, sources: Sequence[str], room: int) -> list[Frame]:
        """Take frames for so many pictures, one of each source at each turn. Sources of which none is taken keep their
        place."""
        frames: list[Frame] = []
        pictures, queues = self._pictures, self._queues
        oldest_ns = self._clock.monotonic_ns() - self._rules.max_age_ns
        while sources:
            more: list[str] = []
            for source in sources:
                needed = pictures.get(source, 1) if pictures else 1
                if needed > room and frames:
                    return frames
                queue = queues[source]
                frame = queue.frames.popleft()
                if queue.replaces and frame.info.captured_ns < oldest_ns:
                    self._ledger.drop(frame.info, "stale")
                else:
                    frames.append(frame)
                    room -= needed
                    self._set_in_flight(source, queue)
                if queue.frames:
                    more.append(source)
                elif not queue.in_flight:
                    del self._ready[source]
                if queue.waits_for_room:
                    self._tell(queue)
            sources = more
        return frames

    def _set_in_flight(self, source: str, queue: _Queue) -> None:
        if not queue.in_flight:
            queue.in_flight = True
            self._in_flight += 1
            del self._ready[source]

    def is_waited_for(self, batch: Batch) -> bool:
        """Whether the sources of a batch wait for lanes, and no stop has begun: its frames get no older while it is
        tried again."""
        with self._lock:
            queues = [self._queues.get(frame.info.source) for frame in batch.frames]
            return not self._closed and all(queue and not queue.replaces and not queue.gone for queue in queues)

    def claim(self, batch: Batch) -> bool:
        """Whether the lane accounts for the batch; it does not after `abandon`. Takes no lock."""
        if self._in_hand.pop(batch, self) is not self:  # `pop` succeeds in one of two threads
            batch.note_claimed()
        return batch.claimed

    def release(self, batch: Batch) -> None:
        """The results are in the outbox: other batches may have frames of these sources."""
        sources = [frame.info.source for frame in batch.frames]
        calls: list[Callable[[], None]] = []
        with self._lock:
            # Order by each source's last frame in the batch, so that a source with two frames does not go first again.
            for source in reversed(dict.fromkeys(reversed(sources))):
                self._in_flight -= 1
                queue = self._queues[source]
                queue.in_flight = False
                if queue.after_last:
                    calls += queue.after_last
                    queue.after_last.clear()
                if queue.gone:
                    del self._queues[source]
                    self._most_sources = self._share()
                    continue
                if queue.frames and not queue.held:
                    self._ready[source] = None
                if queue.waits_for_room:
                    self._tell(queue)
            if not self._gather:  # otherwise the calling lane takes the next batch
                self._call_lane()
        for call in calls:
            call()

    def call_lane(self) -> None:
        """A lane has retired: wake another."""
        with self._lock:
            self._called = False
            self._call_lane()

    def is_settled(self, source: str) -> bool:
        """Whether all results of a source are in the outbox: no frame waits or is in flight."""
        with self._lock:
            queue = self._queues.get(source)
            if queue is None or queue.gone:
                return True
            queue.waits_for_room = bool(queue.frames) or queue.in_flight
            return not queue.waits_for_room

    def close(self) -> None:
        """Accept no more frames; lanes may take those that wait."""
        with self._lock:
            self._closed = True
            self._filled.notify_all()
            for queue in self._queues.values():
                _wake(queue)

    @property
    def drained(self) -> bool:
        """Whether it is closed and empty."""
        if not self._closed:
            return False
        with self._lock:
            return not any(queue.frames for queue in self._queues.values())

    def abandon(self) -> None:
        """Drop all frames, those of unclaimed batches too: the time to stop is over."""
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
        """Remove an unclaimed batch, so that no lane can claim it."""
        try:
            return self._in_hand.popitem()[0]
        except KeyError:
            return None

    def _put(self, frame: Frame, give_up: GiveUp | None, hold_ns: int = 0) -> bool:
        source = frame.info.source
        queue = self._queues.get(source)
        if self._closed or queue is None or queue.gone:
            self._ledger.drop(frame.info, "shutdown" if self._closed else "removed")
            return True
        frames = queue.frames
        if not self._takes(queue, 0 if give_up else hold_ns):
            if give_up:
                self._ledger.drop(frame.info, give_up)
            queue.waits_for_room = not give_up
            return give_up is not None
        if queue.replaces and frames:
            self._ledger.drop(frames.popleft().info, "superseded")
        frames.append(frame)
        if not (queue.in_flight or queue.held or source in self._ready):
            self._ready[source] = None
        return True

    def _takes(self, queue: _Queue, hold_ns: int) -> bool:
        """Whether a queue has room, or a frame that may be replaced."""
        if queue.replaces:
            frames = queue.frames
            return not (hold_ns and frames) or self._clock.monotonic_ns() - frames[-1].info.captured_ns >= hold_ns
        return len(queue.frames) < queue.depth

    def _is_worth_taking(self) -> bool:
        waiting = len(self._ready)
        return waiting > 0 and (not self._gather or waiting >= min(self._in_flight, self._full))

    def _call_lane(self) -> None:
        """Wake a lane if frames wait, unless a woken lane is on its way: it takes all frames."""
        if self._is_worth_taking() and not (self._gather and self._called):
            self._called = True
            if self._waiting_lanes:
                self._filled.notify()

    def _tell(self, queue: _Queue) -> None:
        """Wake a thread that waits for room only when there is some for several frames."""
        if len(queue.frames) <= queue.depth // 2:
            _wake(queue)


def _wake(queue: _Queue) -> None:
    """Wake the capture thread, if it waits."""
    if queue.waits_for_room:
        queue.waits_for_room = False
        if queue.wake is not None:
            queue.wake()
