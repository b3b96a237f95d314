"""Waits for the steady state of a running daemon, and measures a window of time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from time import monotonic, monotonic_ns

from daemon.bench.steady import WINDOWS, RowLog, is_steady
from daemon.bench.usage import Meter, Sample, Usage
from daemon.daemon import CUT_SHORT, Daemon
from daemon.errors import LookoutError
from daemon.monitoring.probes import GpuProbe, open_gpu_probe
from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.ledger import Counts, together
from daemon.progress import Tell
from daemon.system.gpus import name_visible_gpus
from lookout.messages import VideoFormat

_FIRST_FRAMES = 5  # of every source, before rates are checked
_START_TIMEOUT_S = 120.0
_TICK_S = 0.25
_POLL_S = 0.02  # for decoders of sources: a short recording ends soon


@dataclass(frozen=True)
class WarmUp:
    """The time before the window.

    Attributes:
        up: number of sources with published frames.
        steady: whether throughput and p99 were steady when the window began.
        start_s: from the first connection to the first frames of all sources.
        warm_s: from there until all was steady.
    """

    up: int
    steady: bool
    start_s: float
    warm_s: float


@dataclass(frozen=True)
class Window:
    """Measurements between two moments.

    Attributes:
        begin, end: monotonic ns.
        formats: of the connected sources, by id.
        models_before, models_after: of all sources together, by model.
    """

    begin: int
    end: int
    before: dict[str, Counts]
    after: dict[str, Counts]
    usage: Usage
    samples: list[Sample]
    formats: dict[str, VideoFormat]
    models_before: Mapping[str, Counts] = field(default_factory=dict)
    models_after: Mapping[str, Counts] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9

    def rates(self, ids: Iterable[str]) -> list[float]:
        """Published frames per second, by source."""
        return [(self.after[id].published - self.before[id].published) / self.seconds for id in ids]

    @property
    def captured(self) -> int:
        return sum(self.after[id].captured - self.before[id].captured for id in self.after)

    @property
    def published(self) -> int:
        return sum(self.after[id].published - self.before[id].published for id in self.after)

    @property
    def dropped(self) -> dict[str, int]:
        """Dropped frames by cause."""
        rows = [dropped_between(self.before[id], self.after[id]) for id in self.after]
        return {cause: sum(row[cause] for row in rows) for cause in CAUSES}

    @property
    def decoders(self) -> dict[str, int]:
        """Number of sources by decoder."""
        return dict(Counter(format.decoder for format in self.formats.values()))

    @property
    def refusals(self) -> dict[str, int]:
        """Number of sources by reason for not using the GPU's decoder."""
        reasons = [format.decoder_reason for format in self.formats.values()]
        return dict(Counter(reason for reason in reasons if reason))


def dropped_between(before: Counts, after: Counts) -> dict[str, int]:
    """Dropped frames by cause."""
    return {cause: getattr(after.dropped, cause) - getattr(before.dropped, cause) for cause in CAUSES}


def warm_up(daemon: Daemon, ids: Iterable[str], rows: RowLog, at_most_s: float, tell: Tell | None = None) -> WarmUp:
    """Wait until every source has published frames, and then until throughput and p99 are steady.

    Args:
        rows: collects the daemon's rows.
        at_most_s: limit of the wait for a steady rate.
        tell: called now and then with the seconds so far.
    """
    began, pause, ids = monotonic(), threading.Event(), list(ids)
    while True:
        counts = daemon.ledger.counts_by_model()
        up = sum(all(row.published >= _FIRST_FRAMES for row in counts[id].values()) for id in ids)
        if up == len(ids) or monotonic() - began > _START_TIMEOUT_S:
            break
        pause.wait(_TICK_S)
    started, steady = monotonic(), False
    while not steady and (left := at_most_s - (monotonic() - started)) > 0:
        pause.wait(min(left, _TICK_S))
        if tell is not None:
            tell(monotonic() - started, at_most_s)
        steady = is_steady(rows.paces(started)[-WINDOWS:], len(ids))
    return WarmUp(up, steady, round(started - began, 2), round(monotonic() - started, 2))


def watch(daemon: Daemon, probe: GpuProbe, device: int, seconds: float | None, tell: Tell | None = None) -> Window:
    """Measure for some seconds, or until all recordings have ended if `seconds` is None.

    Args:
        device: number of the GPU.
        tell: called now and then with the seconds so far.
    """
    pause, formats = threading.Event(), daemon.sources.formats
    meter = Meter(lambda: daemon.parts.pids, probe, device)
    models = counts_by_model(daemon)
    before, begin = daemon.ledger.counts(), monotonic_ns()
    while not daemon.is_stopping:
        left = _TICK_S if seconds is None else seconds - (monotonic_ns() - begin) / 1e9
        if left <= 0 or (seconds is None and daemon.sources.finished):
            break
        pause.wait(min(left, _TICK_S if len(formats) == len(before) else _POLL_S))
        formats |= daemon.sources.formats
        meter.sample()
        if tell is not None:
            tell((monotonic_ns() - begin) / 1e9, seconds or 0.0)
    after, end = daemon.ledger.counts(), monotonic_ns()
    models_after = counts_by_model(daemon)
    captured = sum(after[id].captured - before[id].captured for id in after)
    return Window(begin, end, before, after, meter.usage(captured), meter.samples, formats, models, models_after)


def counts_by_model(daemon: Daemon) -> dict[str, Counts]:
    """The accounts of all sources together, by model."""
    rows = [*daemon.ledger.counts_by_model().values()]
    return {name: together([row[name] for row in rows if name in row]) for name in dict.fromkeys(chain(*rows))}


@contextmanager
def probing() -> Iterator[GpuProbe]:
    """A probe of this process's visible GPUs. They are named first: with hidden GPUs, driver and probe count
    differently.
    """
    name_visible_gpus()
    with closing(open_gpu_probe()) as probe:
        yield probe


def ended_well(code: int) -> None:
    """Check the daemon's exit code; benchmarks may stop a replay early.

    Raises:
        LookoutError: the daemon failed.
    """
    if code not in (0, CUT_SHORT):
        raise LookoutError("the daemon failed: see the log above")
