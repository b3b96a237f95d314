"""Speed of opened models, measured interleaved so that other load on the machine affects all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Protocol, runtime_checkable

import numpy as np

from calibration.frames import Bgr
from detectors.port import ENGINE, Detector, HostImage, Image, Lane

_TURNS = 7
TURN_S = 0.2  # seconds

Energy = Callable[[], float | None]
"""Joules used so far; None if unknown."""


@dataclass(frozen=True)
class Speed:
    """Speed of one lane with full batches, preprocess and NMS included.

    Attributes:
        fps: median of `turns`, which are interleaved with those of the other models.
        latency_ms: median for a single picture.
        watts, joules: mean power, and energy per picture; None if unknown.
        memory: bytes of device memory that the backend planned; None if it plans none.
        weights: bytes of the plan, or of the file.
    """

    batch: int
    fps: float
    turns: tuple[float, ...]
    latency_ms: float
    watts: float | None
    joules: float | None
    memory: int | None
    weights: int

    def over(self, other: Speed) -> tuple[float, bool]:
        """The median ratio to another model's speed, turn by turn, and whether all turns but one at most are faster."""
        times = [mine / theirs for mine, theirs in zip(self.turns, other.turns)]
        return median(times), sum(ratio <= 1 for ratio in times) <= 1


@runtime_checkable
class _Places(Protocol):
    """A detector that moves a picture to the memory its lanes read fastest."""

    def place(self, picture: HostImage) -> Image: ...


def measure_speeds(
    detectors: Mapping[str, Detector], files: Mapping[str, int], pictures: Sequence[Bgr], energy: Energy
) -> dict[str, Speed]:
    """Measure speeds on pictures with objects, so that NMS has boxes and a GPU draws its usual power.

    Args:
        files: size of each model's file in bytes.
    """
    with ExitStack() as stack:
        lanes = {name: stack.enter_context(closing(detector.lane())) for name, detector in detectors.items()}
        images = {name: _placed(detector, pictures) for name, detector in detectors.items()}
        turns: dict[str, list[_Turn]] = {name: [] for name in detectors}
        for name, lane in lanes.items():
            _turn(lane, images[name], detectors[name].info.max_batch, energy)  # warms up
        for _ in range(_TURNS):
            for name, lane in lanes.items():
                turns[name].append(_turn(lane, images[name], detectors[name].info.max_batch, energy))
        return {name: _sum_up(detectors[name], rows, files[name]) for name, rows in turns.items()}


def _placed(detector: Detector, pictures: Sequence[Bgr]) -> list[Image]:
    images = [HostImage(np.ascontiguousarray(picture)) for picture in pictures]
    return [detector.place(image) for image in images] if isinstance(detector, _Places) else list(images)


@dataclass(frozen=True)
class _Turn:
    fps: float
    latency_s: float
    joules: float | None
    seconds: float
    pictures: int


def _turn(lane: Lane, images: Sequence[Image], batch: int, energy: Energy) -> _Turn:
    single = []
    for image in images[:3]:
        began = perf_counter()
        lane.detect([image])
        single.append(perf_counter() - began)
    batches = cycle([[images[(first + place) % len(images)] for place in range(batch)]
                     for first in range(0, len(images), batch)])  # fmt: skip
    before, began, done = energy(), perf_counter(), 0
    while perf_counter() - began < TURN_S:
        lane.detect(next(batches))
        done += batch
    seconds, after = perf_counter() - began, energy()
    used = None if before is None or after is None else after - before
    return _Turn(done / seconds, median(single), used, seconds, done)


def _sum_up(detector: Detector, turns: list[_Turn], file_bytes: int) -> Speed:
    rates = [turn.fps for turn in turns]
    known = [turn.joules for turn in turns if turn.joules is not None]
    joules = sum(known) if len(known) == len(turns) else None
    planned = dict(detector.info.memory)
    return Speed(
        batch=detector.info.max_batch,
        fps=round(median(rates), 2),
        turns=tuple(round(rate, 2) for rate in rates),
        latency_ms=round(1e3 * median(turn.latency_s for turn in turns), 3),
        watts=None if joules is None else round(joules / sum(turn.seconds for turn in turns), 1),
        joules=None if joules is None else round(joules / sum(turn.pictures for turn in turns), 5),
        memory=sum(planned.values()) or None,
        weights=planned.get(ENGINE, file_bytes),
    )
