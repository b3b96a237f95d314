"""`python -m tests.bench tracing`: what a trace costs, and a frame that has none.

Nothing is sent: what is measured is all that Lookout does for a trace but the socket's part.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time_ns

from daemon.pipeline.ledger import Ledger
from daemon.tracing.record import Record
from daemon.tracing.spans import request_of
from daemon.tracing.tracing import Tracing
from tests.support.clock import ManualClock
from tests.tracing.parts import exporter, result
from tests.tracing.records import RESOURCE

_AT_ONCE = 100
_TOTAL_NS = 5_000_000


@dataclass(frozen=True)
class TracingOptions:
    """Options of the measurement; see `python -m tests.bench tracing --help`."""

    frames: int = 200_000
    traces: int = 10_000
    rounds: int = 5


@dataclass(frozen=True)
class TracingCost:
    """
    Attributes:
        not_chosen_ns: CPU of a frame that is not chosen, beyond that of the loop around it.
        chosen_us: of one that is, in the publisher's thread.
        sent_us: of its spans, in the thread that sends.
        bytes: of a trace in a request, compressed.
    """

    not_chosen_ns: float
    chosen_us: float
    sent_us: float
    bytes: float


def tracing(options: TracingOptions) -> TracingCost:
    """Run and measure."""
    rounds = range(options.rounds)
    waiting = _waiting()
    return TracingCost(
        not_chosen_ns=min(_not_chosen(options.frames) for _ in rounds),
        chosen_us=min(_chosen(options.traces) for _ in rounds) / 1e3,
        sent_us=min(_spent(options.traces // _AT_ONCE, lambda: _body(waiting)) for _ in rounds) / _AT_ONCE / 1e3,
        bytes=len(_body(waiting)) / _AT_ONCE,
    )


def _tracing(clock: ManualClock, every: int) -> Tracing:
    waiting = exporter("http://127.0.0.1:1", clock=clock, every=every)
    return Tracing(waiting.settings, Ledger(["cam"]).accounts, waiting, clock)


def _not_chosen(count: int) -> float:
    """ns of each. An empty function takes the place of the choice in the loop that it is compared with."""
    clock = ManualClock(10**10)
    choose, (made, latency) = _tracing(clock, 1_000_000).choose, result(1, 10**10, _TOTAL_NS)

    def nothing(_: object, __: object) -> None: ...

    empty = _spent(count, lambda: nothing(made, latency))
    return max(0.0, _spent(count, lambda: choose(made, latency)) - empty)


def _chosen(count: int) -> float:
    """ns of each, the queue's part included."""
    clock = ManualClock(10**10)
    choose, (made, latency) = _tracing(clock, 1).choose, result(1, 10**10, _TOTAL_NS)

    def one() -> None:
        clock.advance(1)  # within the budget
        choose(made, latency)

    return _spent(count, one)


def _body(records: Sequence[Record]) -> bytes:
    """A request."""
    return gzip.compress(request_of(records, RESOURCE), 5)


def _waiting() -> list[Record]:
    """Some traces."""
    clock = ManualClock(10**10)
    chooser = exporter("http://127.0.0.1:1", clock=clock, every=1)
    choose = Tracing(chooser.settings, Ledger(["cam"]).accounts, chooser, clock).choose
    for seq in range(_AT_ONCE):
        clock.advance(1)
        choose(*result(seq, clock.monotonic_ns(), _TOTAL_NS))
    return chooser.waiting


def _spent(count: int, call: Callable[[], object]) -> float:
    """ns of CPU of a call."""
    began = process_time_ns()
    for _ in range(count):
        call()
    return (process_time_ns() - began) / count
