"""How fast opened models are, in turns, so that what else the machine does falls on all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from detectors.port import ENGINE, Detector, Image, Lane

_TURNS = 7
_TURN_S = 0.2
_SIZE = (1280, 720)

Energy = Callable[[], float | None]
"""Joules used so far, None where nobody counts them."""


@dataclass(frozen=True)
class Speed:
    """One lane with full batches of the same pictures, preprocess and NMS included.

    Attributes:
        fps: median of `turns`, which are those of the other models of the race, made one beside the other.
        latency_ms: of one picture alone, median.
        watts, joules: while it ran, and for a picture; None where nobody counts.
        memory: bytes that the backend planned of its device, None if it plans none.
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
        """How many times as fast as another of the same race, by turns; and whether all of them but one are faster."""
        times = [mine / theirs for mine, theirs in zip(self.turns, other.turns)]
        return median(times), sum(ratio <= 1 for ratio in times) <= 1


def race(detectors: Mapping[str, Detector], files: Mapping[str, int], energy: Energy) -> dict[str, Speed]:
    """Measure them.

    Args:
        files: bytes of each model's file.
    """
    with ExitStack() as stack:
        lanes = {name: stack.enter_context(closing(detector.lane())) for name, detector in detectors.items()}
        pictures = {name: detector.sample(*_SIZE) for name, detector in detectors.items()}
        turns: dict[str, list[_Turn]] = {name: [] for name in detectors}
        for name, lane in lanes.items():
            _turn(lane, pictures[name], detectors[name].info.max_batch, energy)  # warms up
        for _ in range(_TURNS):
            for name, lane in lanes.items():
                turns[name].append(_turn(lane, pictures[name], detectors[name].info.max_batch, energy))
        return {name: _sum_up(detectors[name], rows, files[name]) for name, rows in turns.items()}


@dataclass(frozen=True)
class _Turn:
    fps: float
    latency_s: float
    joules: float | None
    seconds: float
    pictures: int


def _turn(lane: Lane, picture: Image, batch: int, energy: Energy) -> _Turn:
    single = []
    for _ in range(3):
        began = perf_counter()
        lane.detect([picture])
        single.append(perf_counter() - began)
    before, began, done = energy(), perf_counter(), 0
    while perf_counter() - began < _TURN_S:
        lane.detect([picture] * batch)
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
