"""`lookout bench holds`: how many live sources of one recording are served as they should be, found by trying.

Each number is one run of `lookout bench streams --paced`, with nothing left of the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from daemon.bench.apart import streams_of
from daemon.bench.harness import Load


@dataclass(frozen=True)
class Promise:
    """What "as they should be" is.

    Attributes:
        dropped_percent: of captured frames, at most.
        p50_ms, p99_ms: captured to sent, at most.
    """

    dropped_percent: float = 0.1
    p50_ms: float = 15.0
    p99_ms: float = 40.0


@dataclass(frozen=True)
class Trial:
    """One number of sources.

    Attributes:
        decoders: how many of them each decoder had.
        kept: the promise.
    """

    sources: int
    kept: bool
    fps: float
    dropped_percent: float
    p50_ms: float
    p99_ms: float
    decoders: dict[str, int]


@dataclass(frozen=True)
class Held:
    """What was found.

    Attributes:
        largest: number that kept the promise, 0 if none did.
        seconds: of each trial.
    """

    largest: int
    seconds: float
    promise: Promise
    trials: list[Trial]


def holds(load: Load, promise: Promise, step: int, on_trial: Callable[[Trial], None] = lambda _: None) -> Held:
    """Find it, to within `step` sources, beginning with the load's own number.

    Raises:
        LookoutError: a run failed.
    """
    trials: list[Trial] = []

    def kept(sources: int) -> bool:
        trials.append(_try(replace(load, sources=sources, paced=True), promise))
        on_trial(trials[-1])
        return trials[-1].kept

    return Held(largest(load.sources, step, kept), load.seconds, promise, trials)


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


def _try(load: Load, promise: Promise) -> Trial:
    found = streams_of(load)
    latency = found["latency_ms"] or {"p50": float("inf"), "p99": float("inf")}
    dropped = found["dropped_share"] * 100
    kept = (
        found["up"] == load.sources
        and dropped <= promise.dropped_percent
        and latency["p50"] <= promise.p50_ms
        and latency["p99"] <= promise.p99_ms
    )
    return Trial(load.sources, kept, found["fps"], round(dropped, 4), latency["p50"], latency["p99"], found["decoders"])
