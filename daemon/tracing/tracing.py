"""Chooses the frames that are traced: one of so many, and those that are slow or dropped, within a budget."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from daemon.clock import Clock
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.ledger import Rows
from daemon.pipeline.outbox import Result
from daemon.tracing.record import IdMaker, LostFrame, Reason, SentFrame
from daemon.tracing.spans import traceparent
from lookout.messages import Latency

if TYPE_CHECKING:
    from daemon.tracing.exporter import Exporter, ExporterFigures
    from daemon.tracing.settings import Settings

_SECOND_NS = 1_000_000_000
_MAX_A_SECOND = 10
_FOR_SAMPLED = 2  # of them, which slow frames leave
_FOR_DROPPED = 4  # likewise, for dropped frames while both kinds have to wait
_ASKED_FOR = 1 + CAUSES.index("rate_limit")


class Tracing:
    """The publisher's thread calls `choose`, the monitor's `observe`.

    Args:
        accounts: of the ledger, whose order is the index in rows.
        exporter: sends the traces.
    """

    def __init__(self, settings: Settings, accounts: Sequence[str], exporter: Exporter, clock: Clock) -> None:
        self._every, self._slow_ns = settings.every, settings.slow_ns
        self._accounts, self._exporter, self._clock = accounts, exporter, clock
        self._ids, self._budget = IdMaker(), _Budget()
        self._random = random.Random()  # noqa: S311 - it guards nothing
        self._until_next = self._gap()
        self._drops_wait = False
        self._left_out = self._dropped_left_out = 0  # each written by one thread
        self._seen_left_out = 0

    def choose(self, result: Result, latency: Latency) -> str | None:
        """The `traceparent` of a frame that is about to be sent; None for one that is not traced."""
        self._until_next -= 1
        if self._until_next > 0 and latency.total < self._slow_ns:
            return None
        reason: Reason = "slow"
        if self._until_next <= 0:
            reason, self._until_next = "sampled", self._gap()
        most = _MAX_A_SECOND - (_FOR_DROPPED if self._drops_wait else 0) - (_FOR_SAMPLED if reason == "slow" else 0)
        now_ns = self._clock.monotonic_ns()
        if not self._budget.take(now_ns, most):
            self._left_out += 1
            return None
        frame = result.frame
        ids = self._ids.ids(frame.account or frame.source, frame.seq, frame.captured_ns, is_sent=True)
        self._exporter.put(
            SentFrame(
                ids, reason, self._clock.utc_ns() - now_ns, frame.source, frame.session, frame.seq, frame.captured_ns,
                result.taken, result.times, latency, result.served, result.work,
            )
        )  # fmt: skip
        return traceparent(ids)

    def observe(self, rows: Rows) -> None:
        """Choose among rows of frames that were dropped. A rate that was asked for is no reason."""
        dropped = rows["dropped"]
        lost = rows[(dropped > 0) & (dropped != _ASKED_FOR)]
        if not len(lost):
            self._drops_wait = False
            return
        now_ns, chosen = self._clock.monotonic_ns(), 0
        offset_ns = self._clock.utc_ns() - now_ns
        published_wait, self._seen_left_out = self._left_out > self._seen_left_out, self._left_out
        most = _FOR_DROPPED if published_wait else _MAX_A_SECOND
        for place in islice(_rarest_first(lost["dropped"]), most):
            if not self._budget.take(now_ns, _MAX_A_SECOND):
                break
            chosen += 1
            account, cause, seq, _, captured_ns, _, decode, *_ = lost[place].item()
            name = self._accounts[account]
            source, _, model = name.partition("/")
            at_ns = captured_ns or now_ns
            ids = self._ids.ids(name, seq, at_ns, is_sent=False)
            self._exporter.put(LostFrame(ids, offset_ns, source, model, seq, at_ns, decode, CAUSES[cause - 1]))
        self._dropped_left_out += len(lost) - chosen
        self._drops_wait = chosen < len(lost)

    @property
    def figures(self) -> ExporterFigures:
        """The account of traces, with frames that the budget has left out as `limit`."""
        return self._exporter.figures(limit=self._left_out + self._dropped_left_out)

    def _gap(self) -> int:
        """Frames until the next one: a fixed number would find the same few sources of those that take turns."""
        return self._random.randrange(1, 2 * self._every)


class _Budget:
    """So many traces in any second."""

    def __init__(self) -> None:
        self._taken: deque[int] = deque()
        self._lock = threading.Lock()

    def take(self, at_ns: int, most: int) -> bool:
        """Whether one more may be made.

        Args:
            at_ns: monotonic.
            most: that may have been made within a second, with this one.
        """
        with self._lock:
            while self._taken and at_ns - self._taken[0] >= _SECOND_NS:
                self._taken.popleft()
            if len(self._taken) >= most:
                return False
            self._taken.append(at_ns)
            return True


def _rarest_first(dropped: npt.NDArray[np.int64]) -> Iterator[int]:
    """Places of frames, of each cause in turn, so that a rare one is not lost among many of another."""
    counts = np.bincount(dropped)
    causes = sorted(np.flatnonzero(counts).tolist(), key=lambda cause: int(counts[cause]))
    places = [np.flatnonzero(dropped == cause).tolist() for cause in causes]
    for turn in range(max(map(len, places))):
        for row in places:
            if turn < len(row):
                yield row[turn]
