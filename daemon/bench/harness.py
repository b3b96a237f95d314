"""A window of time in steady state of a running daemon, and what happened in it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from time import monotonic

from daemon.app import CUT_SHORT, App
from daemon.bench.usage import Meter, Sample, Usage
from daemon.clock import SystemClock
from daemon.errors import LookoutError
from daemon.metrics import CAUSES, Counts
from daemon.probes import GpuProbe, open_gpu_probe

_FIRST_FRAMES = 5  # of every source before it is looked whether the rate is steady
_PATIENCE_S = 120.0
_TICK_S = 0.25
_STEP_S = 0.5
_STEPS = 6
_SPREAD = 0.05


@dataclass(frozen=True)
class Warmth:
    """The time before the window.

    Attributes:
        up: sources of which frames were published.
        steady: the rate was, when the window began; otherwise the patience was over.
        start_s: from the first connect to the first frames of all.
        warm_s: and from there until the rate was steady.
    """

    up: int
    steady: bool
    start_s: float
    warm_s: float


@dataclass(frozen=True)
class Window:
    """What happened between two moments.

    Attributes:
        begin, end: UTC ns.
    """

    begin: int
    end: int
    seconds: float
    before: dict[str, Counts]
    after: dict[str, Counts]
    usage: Usage
    samples: list[Sample]

    def rates(self, ids: Iterable[str]) -> list[float]:
        """Published frames a second, by source."""
        return [(self.after[id].published - self.before[id].published) / self.seconds for id in ids]

    @property
    def captured(self) -> int:
        return sum(self.after[id].captured - self.before[id].captured for id in self.after)

    @property
    def published(self) -> int:
        return sum(self.after[id].published - self.before[id].published for id in self.after)

    @property
    def dropped(self) -> dict[str, int]:
        """By cause."""
        return {
            cause: sum(
                getattr(self.after[id].dropped, cause) - getattr(self.before[id].dropped, cause) for id in self.after
            )
            for cause in CAUSES
        }


def warm_up(app: App, ids: Iterable[str], at_most_s: float) -> Warmth:
    """Until every source has published some frames, and then until the rate is steady.

    It is when six half seconds in a row are within 5 % of their mean, or within what a frame of each source more or
    less makes of it.

    Args:
        at_most_s: to wait for a steady rate.
    """
    began, pause, ids = monotonic(), threading.Event(), list(ids)
    while True:
        counts = app.ledger.counts()
        up = sum(counts[id].published >= _FIRST_FRAMES for id in ids)
        if up == len(ids) or monotonic() - began > _PATIENCE_S:
            break
        pause.wait(_TICK_S)
    started = monotonic()
    rates: deque[float] = deque(maxlen=_STEPS)
    total, then = _published(app), started
    while monotonic() - started < at_most_s:
        pause.wait(_STEP_S)
        count, now = _published(app), monotonic()
        rates.append((count - total) / (now - then))
        total, then = count, now
        if len(rates) == _STEPS and is_steady(rates, len(ids) / _STEP_S):
            return Warmth(up, True, round(started - began, 2), round(monotonic() - started, 2))
    return Warmth(up, False, round(started - began, 2), round(monotonic() - started, 2))


def is_steady(rates: Iterable[float], grain: float) -> bool:
    """Whether all are near their mean.

    Args:
        grain: by which a rate may be off because frames are whole.
    """
    rates = list(rates)
    mean = sum(rates) / len(rates)
    return mean > 0 and all(abs(rate - mean) <= max(_SPREAD * mean, grain) for rate in rates)


def watch(app: App, probe: GpuProbe, seconds: float) -> Window:
    """Let time pass, and say what happened in it. Rows come later, see `daemon.bench.latency`."""
    clock, pause = SystemClock(), threading.Event()
    meter = Meter(lambda: app.pids, probe, app.model.gpu or 0)
    before, begin, began = app.ledger.counts(), clock.utc_ns(), monotonic()
    while (left := seconds - (monotonic() - began)) > 0:
        pause.wait(min(left, _TICK_S))
        meter.sample()
    after, passed, end = app.ledger.counts(), monotonic() - began, clock.utc_ns()
    captured = sum(after[id].captured - before[id].captured for id in after)
    return Window(begin, end, passed, before, after, meter.usage(captured), meter.samples)


def decoders(app: App) -> dict[str, int]:
    """How many sources each decoder has."""
    return dict(Counter(format.decoder for format in app.formats.values()))


def refusals(app: App) -> dict[str, int]:
    """Why sources are not decoded on the GPU, and how many."""
    reasons = [format.decoder_reason for format in app.formats.values()]
    return dict(Counter(reason for reason in reasons if reason))


@contextmanager
def probing() -> Iterator[GpuProbe]:
    with closing(open_gpu_probe()) as probe:
        yield probe


def ended_well(code: int) -> None:
    """To be called with the daemon's exit code; that a replay is cut short is what benchmarks do.

    Raises:
        LookoutError: it failed.
    """
    if code not in (0, CUT_SHORT):
        raise LookoutError("the daemon failed: see the log above")


def _published(app: App) -> int:
    return sum(count.published for count in app.ledger.counts().values())
