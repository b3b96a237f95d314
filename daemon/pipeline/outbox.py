"""What waits for the publisher: bounded, in order, and counted when it is full."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from daemon.messages import Metrics, Model, Status
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from detectors.detections import Detections
from detectors.port import StageTimes


class Served(msgspec.Struct, frozen=True):
    """The model that found something, as messages name it, and its labels."""

    model: Model
    labels: tuple[str, ...]


class Result(msgspec.Struct, frozen=True, gc=False):
    """What a lane found in one frame; the pixels are gone by now.

    Attributes:
        taken: monotonic ns, when the lane took the frame.
        times: of the batch.
        served: by what.
    """

    frame: FrameInfo
    detections: Detections
    taken: int
    times: StageTimes
    served: Served


@dataclass(frozen=True, slots=True)
class Report:
    """A status or metrics message before it has its index: the publisher counts.

    Attributes:
        message: None if the source is gone, so that late comers need not be told of it.
        source: that is gone.
    """

    topic: bytes
    message: Status | Metrics | None
    source: str = ""


class Outbox:
    """What waits to be sent, in order. Results are bounded; reports are few, and are never left out.

    Args:
        limit: results that may wait.
        lossless: a full outbox makes lanes wait; otherwise the oldest result is dropped and counted, for a newer one
            is worth more.

    Attributes:
        limit, lossless: as they were given.
    """

    def __init__(self, limit: int, ledger: Ledger, *, lossless: bool) -> None:
        self.limit = limit
        self._ledger, self.lossless = ledger, lossless
        self._items: deque[Result | Report] = deque()
        self._results = 0
        self._sending: deque[Result | Report] = deque()  # taken, and not numbered yet
        self._taken = 0  # items of the last `take`, being sent
        self._closed = False
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)  # for the publisher
        self._emptied = threading.Condition(self._lock)  # for lanes that want room, and whoever waits for the end

    def __len__(self) -> int:
        return len(self._items)

    def put(self, results: Sequence[Result]) -> None:
        """Leave a batch's results, each as soon as there is room for it."""
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

    def report(self, report: Report) -> None:
        with self._lock:
            self._items.append(report)
            self._filled.notify()

    def take(self, most: int, timeout_s: float) -> Sequence[Result | Report]:
        """Up to `most` items when one is there, none when the time is over; those taken before are sent by now."""
        with self._lock:
            self._sending.clear()
            self._taken = 0
            self._emptied.notify_all()
            self._filled.wait_for(lambda: self._items, timeout_s)
            items = [self._items.popleft() for _ in range(min(most, len(self._items)))]
            self._results -= sum(isinstance(item, Result) for item in items)
            self._sending.extend(items)
            self._taken = len(items)
            self._emptied.notify_all()
            return items

    def sent(self) -> bool:
        """The next of the items taken is about to be numbered and sent; False if it is given up. Takes no lock."""
        try:
            self._sending.popleft()
        except IndexError:
            return False
        return True

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything that was put here is sent; returns whether it is."""
        with self._lock:
            return self._emptied.wait_for(lambda: not self._items and not self._taken, timeout_s)

    def abandon(self) -> None:
        """Drop the results that are not sent: the time to stop is over. Reports stay, should the publisher go on."""
        with self._lock:
            self._closed = True
            with suppress(IndexError):  # the publisher takes from the other end meanwhile
                while True:
                    self._items.appendleft(self._sending.pop())
            for item in self._items:
                if isinstance(item, Result):
                    self._ledger.drop(item.frame, "shutdown")
            self._items, self._results = deque(item for item in self._items if isinstance(item, Report)), 0
            self._emptied.notify_all()

    def _drop_oldest(self) -> None:
        place = next(place for place, item in enumerate(self._items) if isinstance(item, Result))
        self._ledger.drop(self._items[place].frame, "outbox_full")  # type: ignore[union-attr]
        del self._items[place]
        self._results -= 1
