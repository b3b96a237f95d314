"""`lookout bench part engine`: the GPU's engine alone, an upper bound for lanes.

The engine's commands are replayed, one batch after the other, without input or output.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Protocol, runtime_checkable

from daemon.config.root import LogConfig
from daemon.errors import LookoutError
from daemon.log import logging
from detectors.factory import Backend, engine_backend, open_detector
from detectors.port import Options, Precision

_BATCHES_PER_CHECK = 10  # of the time
_TURNS = 5


@runtime_checkable
class Replays(Protocol):
    """A lane whose backend can run the engine alone."""

    def replay(self, size: int, times: int) -> float: ...


@dataclass(frozen=True)
class EngineOptions:
    """Options of the measurement; see `lookout bench part engine --help`."""

    model: Path
    labels: str | None = None
    precision: Precision = "auto"
    builder_level: int = 3
    cache: Path | None = None
    max_batch: int = 32
    seconds: float = 3.0
    device: int = 0
    backend: Backend | None = None


@dataclass(frozen=True)
class EngineRate:
    """Attributes:
    images_per_s: median of some turns in steady state; `least` and `most` are the lowest and highest.
    """

    model: str
    precision: str
    batch: int
    images_per_s: float
    least: float
    most: float


def engine(options: EngineOptions) -> EngineRate:
    """Run and measure.

    Raises:
        LookoutError: the backend has no engine to run alone.
        DetectorError: the model cannot be used.
    """
    with (
        logging(LogConfig(level="error", format="console")),
        closing(open_detector(options.backend or engine_backend(), detector_options(options))) as detector,
    ):
        info = detector.info
        with closing(detector.lane()) as lane:
            if not isinstance(lane, Replays):
                raise LookoutError(f"the {info.backend} backend has no engine to run alone")
            lane.replay(info.max_batch, _BATCHES_PER_CHECK)
            rates = [_rate(lane, info.max_batch, options.seconds / _TURNS) for _ in range(_TURNS)]
    return EngineRate(
        f"{info.name} {info.digest}",
        info.precision,
        info.max_batch,
        round(median(rates), 1),
        round(min(rates), 1),
        round(max(rates), 1),
    )


def detector_options(options: EngineOptions) -> Options:
    """How the model is opened."""
    return Options(
        options.model,
        labels=options.labels,
        precision=options.precision,
        builder_level=options.builder_level,
        cache=options.cache,
        max_batch=options.max_batch,
        device=options.device,
    )


def _rate(lane: Replays, size: int, seconds: float) -> float:
    done, taken, until = 0, 0.0, monotonic() + seconds
    while monotonic() < until:
        taken += lane.replay(size, _BATCHES_PER_CHECK)
        done += size * _BATCHES_PER_CHECK
    return done / taken
