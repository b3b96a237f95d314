"""`lookout bench capacity`: how many live sources of one recording are served as they should be, found by trying.

Each number is one run of `lookout bench streams --paced`, with nothing left of the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from daemon.bench.apart import streams_of
from daemon.bench.load import Load
from daemon.bench.result import Case, Report, environment_of, load_of
from daemon.bench.streams import Streams


@dataclass(frozen=True)
class Promise:
    """What "as they should be" is.

    Attributes:
        dropped_percent: of captured frames, at most.
        p50_ms, p99_ms: from when a frame was due until it was sent, at most.
    """

    dropped_percent: float = 0.1
    p50_ms: float = 15.0
    p99_ms: float = 40.0

    def kept(self, run: Streams) -> bool:
        latency = run.latency_ms or {"p50": float("inf"), "p99": float("inf")}
        return (
            run.up == run.sources
            and run.dropped_share * 100 <= self.dropped_percent
            and latency["p50"] <= self.p50_ms
            and latency["p99"] <= self.p99_ms
        )


def capacity(load: Load, promise: Promise, step: int, on_trial: Callable[[Case], None] = lambda _: None) -> Report:
    """Find it, to within `step` sources, beginning with the load's own number. Of a report's cases, those with `kept`
    are the numbers that kept the promise; what is between the largest of them and the next was not tried.

    Raises:
        LookoutError: a run failed.
    """
    cases: list[Case] = []

    def kept(sources: int) -> bool:
        tried = replace(load, sources=sources, paced=True)
        runs = streams_of(tried)
        cases.append(Case(load_of(tried), [runs], kept=promise.kept(runs[0])))
        on_trial(cases[-1])
        return bool(cases[-1].kept)

    largest(load.sources, step, kept)
    return Report("capacity", environment_of(load), cases, promise=asdict(promise))


def held(report: Report) -> int:
    """The largest number that kept the promise, 0 if none did."""
    return max((int(case.load["sources"]) for case in report.cases if case.kept), default=0)


def largest(start: int, step: int, holds: Callable[[int], bool]) -> int:
    """The largest number that holds, to within a step; what holds for one is taken to hold for all below."""
    good, bad, number, stride = 0, 0, start, step
    while not bad or bad - good > step:
        if holds(number):
            good = number
        else:
            bad = number
        if good and bad:
            number = (good + bad) // 2
        else:
            number = max(1, number + stride if good else number - stride)
            stride *= 2
    return good
