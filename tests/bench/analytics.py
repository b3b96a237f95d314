"""`python -m tests.bench analytics`: the cost of tracking a frame, by the number of objects in it.

Every batch has a frame of each source. The cost is CPU time of the thread, on any machine without a GPU.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import thread_time_ns
from typing import Any

import numpy as np

from daemon.analytics.broad_phase import Search
from daemon.analytics.loops import PYTHON, Loops, fastest_loops
from daemon.analytics.track_stage import Tracker, TrackerStage
from daemon.config.model import ModelConfig
from daemon.config.root import Config, LogConfig
from daemon.config.sources import SyntheticConfig, TrackingConfig
from daemon.log import logging
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.stages import Stage
from daemon.system import memory
from detectors.detections import Detections
from lookout.messages import FrameClock
from tests.bench.moving import HEIGHT, WIDTH, MovingObjects
from tests.bench.rules_cost import rules_cost

_FPS = 30
_WARMUP = 10  # frames of each source, in which tracks are confirmed
_LABELS = ("object",)
_PEER_FRAMES = 40

Batch = tuple[list[FrameInfo], list[Detections]]


@dataclass(frozen=True)
class AnalyticsOptions:
    """Options of the measurement; see `python -m tests.bench analytics --help`."""

    objects: tuple[int, ...] = (1, 5, 20, 50, 100, 200, 300)
    sources: int = 32
    frames: int = 60
    seed: int = 0


@dataclass(frozen=True)
class TrackingCost:
    """CPU time of one frame, us, medians over batches.

    Attributes:
        objects: in the picture.
        compiled: of the tracker; None without numba.
        numpy: likewise.
        peer: one frame a call; None if it is not installed.
        compiled_rules: of four rules a source, beside the tracker; None without numba.
        rules: likewise, where each rule looks for itself.
    """

    objects: int
    compiled: float | None
    numpy: float
    peer: float | None
    compiled_rules: float | None
    rules: float


@dataclass(frozen=True)
class AnalyticsCost:
    """The result.

    Attributes:
        sources: in each batch.
        peer: name and version of the peer, or the reason for its absence.
    """

    sources: int
    peer: str
    tracking: list[TrackingCost]


def analytics(options: AnalyticsOptions) -> AnalyticsCost:
    """Run and measure."""
    memory.configure_malloc()  # as in the daemon
    peer, name = _open_peer()
    with logging(LogConfig(level="error", format="console")):
        loops = fastest_loops(None)
        compiled = None if loops is PYTHON else loops
        rows = [_row(objects, options, compiled, peer) for objects in options.objects]
    return AnalyticsCost(options.sources, name, rows)


def _row(objects: int, options: AnalyticsOptions, compiled: Loops | None, peer: MakeUpdate | None) -> TrackingCost:
    batches = _batches(objects, options)
    return TrackingCost(
        objects,
        compiled=_tracking_cost(compiled, batches, options) if compiled else None,
        numpy=_tracking_cost(PYTHON, batches, options),
        peer=_peer_cost(peer, batches),
        compiled_rules=_rules_cost(objects, options, compiled.search) if compiled else None,
        rules=_rules_cost(objects, options, None),
    )


def _rules_cost(objects: int, options: AnalyticsOptions, search: Search | None) -> float:
    return round(rules_cost(objects, search, sources=options.sources, frames=options.frames).frame_us, 1)


def _tracking_cost(loops: Loops, batches: Sequence[Batch], options: AnalyticsOptions) -> float:
    config = Config(
        model=ModelConfig(path=Path("none")),
        sources=[SyntheticConfig(id=source) for source in _sources(options.sources)],
        tracking=TrackingConfig(enabled=True),
    )
    tracker = Tracker(config, Ledger(), compile=lambda _: loops)
    costs = _costs(partial(_call, TrackerStage(tracker, _LABELS)), batches)
    return _us(median(cost / options.sources for cost in costs[_WARMUP:]))


def _call(stage: Stage, batch: Batch) -> object:
    return stage(*batch)


def _us(ns: float) -> float:
    return round(ns / 1000, 1)


def _costs(work: Callable[[Any], object], items: Sequence[Any]) -> list[int]:
    """CPU time of each call, ns."""
    costs = []
    for item in items:
        began = thread_time_ns()
        work(item)
        costs.append(thread_time_ns() - began)
    return costs


def _sources(count: int) -> list[str]:
    return [f"cam-{number}" for number in range(count)]


def _batches(objects: int, options: AnalyticsOptions) -> list[Batch]:
    """Consecutive batches, each with one frame of every source."""
    sources = _sources(options.sources)
    paths = [MovingObjects(np.random.default_rng((options.seed, number)), objects) for number in range(options.sources)]
    batches = []
    for number in range(_WARMUP + options.frames):
        ns = number * 1_000_000_000 // _FPS
        clock = FrameClock("file", 0)
        frames = [FrameInfo(source, "bench", number, ns, ns, ns, clock, 0, WIDTH, HEIGHT) for source in sources]
        batches.append((frames, [path.boxes(number / _FPS) for path in paths]))
    return batches


# --- the peer -------------------------------------------------------------------------------------------------------

MakeUpdate = Callable[[], Callable[[tuple[FrameInfo, Detections]], object]]


def _open_peer() -> tuple[MakeUpdate | None, str]:
    """ByteTrack of Roboflow's `trackers`, with timestamps, and its name."""
    try:
        from supervision import Detections as Found
        from trackers import ByteTrackTracker
    except ImportError:
        return None, "trackers is not installed: pip install trackers"

    def make() -> Callable[[tuple[FrameInfo, Detections]], object]:
        tracker = ByteTrackTracker(
            track_activation_threshold=0.25, high_conf_det_threshold=0.25, minimum_consecutive_frames=3
        )

        def update(item: tuple[FrameInfo, Detections]) -> object:
            frame, found = item
            seen = Found(found.xyxy, confidence=found.confidence, class_id=found.class_id)
            return tracker.update(seen, timestamp=(frame.pts or 0) / 1e9)

        return update

    return make, f"trackers {importlib.metadata.version('trackers')}, ByteTrack"


def _peer_cost(make: MakeUpdate | None, batches: Sequence[Batch]) -> float | None:
    """Of the first source's frames, one a call."""
    if make is None:
        return None
    items = [(frames[0], found[0]) for frames, found in batches[: _WARMUP + _PEER_FRAMES]]
    return _us(median(_costs(make(), items)[_WARMUP:]))
