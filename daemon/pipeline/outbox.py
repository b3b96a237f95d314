"""The bounded queue before the publisher. When it is full, drops are counted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from lookout.messages import Model

if TYPE_CHECKING:
    from daemon.pipeline.frames import FrameInfo
    from daemon.pipeline.ledger import Ledger
    from detectors.detections import Detections
    from detectors.port import StageTimes
    from lookout.messages import Clip, Counts, Event, Metrics, Status, Store


class Served(msgspec.Struct, frozen=True):
    """The model behind a result, as messages name it, and its labels."""

    model: Model
    labels: tuple[str, ...]
    device: str = ""  # that it works on, such as gpu0

    @property
    def name(self) -> str:
        """Of the model, where there are several."""
        return self.model.id or ""


class Work(msgspec.Struct, frozen=True, gc=False):
    """The work of a lane on a batch, beside the detector's own times.

    Attributes:
        lane: name of its thread.
        frames: in the batch.
        detected: monotonic ns at which the detector had ended.
        handed_over: monotonic ns at which the stages had ended.
    """

    lane: str
    frames: int
    detected: int
    handed_over: int


class Result(msgspec.Struct, frozen=True, gc=False):
    """The detections of one frame, without its pixels.

    Attributes:
        taken: monotonic ns at which the lane took the frame.
        times: of the batch.
        served: the model.
        work: of the batch; None where no lane has made it.
    """

    frame: FrameInfo
    detections: Detections
    taken: int
    times: StageTimes
    served: Served
    work: Work | None = None


class Report(msgspec.Struct, frozen=True, gc=False):
    """A message about something else than one frame's detections, without its index, which the publisher sets.

    Attributes:
        message: None for a removed source, whose status late subscribers do not need.
        source: id of the removed source.
    """

    topic: bytes
    message: Status | Event | Counts | Metrics | Clip | Store | None
    source: str = ""


class Note(msgspec.Struct, frozen=True, gc=False):
    """A note on a source that is up, beside those of its connection. The status is sent again with it.

    Attributes:
        topic: of the status.
        text: None for nothing any more.
    """

    topic: bytes
    text: str | None


Item = Result | Report | Note


class Outbox:
    """Results and reports in order. Results are bounded; reports are few and never dropped.

    Args:
        limit: maximum number of results.
        lossless: lanes wait for room. Otherwise the oldest result is dropped and counted, because a newer one is worth
            more.

    Attributes:
        limit, lossless: as given.
    """

    def __init__(self, limit: int, ledger: Ledger, *, lossless: bool) -> None:
        self.limit = limit
        self._ledger, self.lossless = ledger, lossless
        self._items: deque[Item] = deque()
        self._results = 0
        self._sending: deque[Item] = deque()  # handed to the publisher, not numbered yet
        self._taken = 0  # items of the last `get`, being sent
        self._closed = False
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)  # for the publisher
        self._emptied = threading.Condition(self._lock)  # for lanes that wait for room
        self._all_sent = threading.Condition(self._lock)  # for `flush`

    def __len__(self) -> int:
        return len(self._items)

    def put(self, results: Sequence[Result]) -> None:
        """Add the results of a batch, each as soon as there is room."""
        with self._lock:
            for result in results:
                while self.lossless and self._results >= self.limit and not self._closed:
                    self._filled.notify()
                    self._emptied.wait(0.1)
                if self._closed:
                    self._ledger.drop(result.frame, "shutdown")
                    continue
                if self._results >= self.limit:
                    self._drop_oldest()
                self._results += 1
                self._items.append(result)
            self._filled.notify()

    def report(self, report: Report | Note) -> None:
        with self._lock:
            self._items.append(report)
            self._filled.notify()

    def get(self, max_items: int, timeout_s: float) -> Sequence[Item]:
        """Wait for items and return up to `max_items`, none after the timeout. The items of the last call are sent."""
        with self._lock:
            self._sending.clear()
            self._taken = 0
            if not self._items:
                self._all_sent.notify_all()
            self._filled.wait_for(lambda: self._items, timeout_s)
            items = [self._items.popleft() for _ in range(min(max_items, len(self._items)))]
            self._results -= sum([isinstance(item, Result) for item in items])
            self._sending.extend(items)
            self._taken = len(items)
            self._emptied.notify_all()
            return items

    def sending(self) -> Iterator[Item]:
        """The items of the last `get`, each when it is numbered and sent, but for those dropped meanwhile. Takes no
        lock."""
        with suppress(IndexError):
            while True:
                yield self._sending.popleft()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all items are sent; returns whether they are."""
        with self._lock:
            return self._all_sent.wait_for(lambda: not self._items and not self._taken, timeout_s)

    def abandon(self) -> None:
        """Drop all results that are not sent: the time to stop is over. Reports stay for the publisher."""
        with self._lock:
            self._closed = True
            with suppress(IndexError):  # the publisher pops from the other end meanwhile
                while True:
                    self._items.appendleft(self._sending.pop())
            for item in self._items:
                if isinstance(item, Result):
                    self._ledger.drop(item.frame, "shutdown")
            self._items, self._results = deque(item for item in self._items if not isinstance(item, Result)), 0
            self._emptied.notify_all()
            self._all_sent.notify_all()

    def _drop_oldest(self) -> None:
        place = next(place for place, item in enumerate(self._items) if isinstance(item, Result))
        self._ledger.drop(self._items[place].frame, "outbox_full")  # type: ignore[union-attr]
        del self._items[place]
        self._results -= 1
