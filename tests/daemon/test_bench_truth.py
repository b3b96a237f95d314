"""Figures of `lookout bench` over a detector of a known service time with a known fault: they are the queue's.

The queue is the daemon's own, on a clock that is moved by hand; `make speed` has the same on the machine's.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest

from daemon.bench.compare import compare
from daemon.bench.harness import Window
from daemon.bench.latency import RANKS
from daemon.config import SyntheticConfig
from tests.support.figures import report
from tests.support.queues import DEPTH, closed_loop, open_loop
from tests.support.simulation import Simulation

_FPS = 20.0


def _closed() -> SyntheticConfig:
    return SyntheticConfig(id="clip", width=32, height=32, fps=15, pace="fast")


def _fault(number: int, service_s: float) -> float:
    """200 ms more for every hundredth batch."""
    return service_s + 0.2 * (number % 100 == 99)


def _ranks(frames: Iterable[tuple[int, int]], window: Window) -> dict[str, float]:
    """Of frames captured, or due, in the window: ms until they were done."""
    latencies = [(done - began) / 1e6 for began, done in frames if window.begin <= began < window.end]
    return {name: float(np.percentile(latencies, rank)) for name, rank in RANKS.items()}


def test_a_closed_loop_shows_the_queue_it_fills() -> None:
    """Eight wait, and each hundredth batch holds all of them up; how many are done is what the lane can do."""
    with Simulation([_closed()], lambda number: _fault(number, 0.02), depth=DEPTH, max_batch=1) as simulation:
        simulation.run(1)
        simulation.mark()
        simulation.run(9)
        window = simulation.window()
        rows = simulation.rowset(window, paced=False)
    found = rows.latency()
    frames = closed_loop(simulation.served)
    truth = _ranks(frames, window)
    assert found == pytest.approx({"mean": found["mean"], **truth}, abs=0.001)
    assert truth["p50"] == 180
    assert truth["max"] == 400
    assert sum(rows.histogram().counts) == pytest.approx(window.published, abs=DEPTH + 1)
    assert window.rates(["clip"]) == [pytest.approx(1 / 0.022, rel=0.01)]
    timeline = rows.timeline()
    whole = window.begin + 1_000_000_000 * len(timeline)
    assert sum(second.fps for second in timeline) == sum(window.begin <= began < whole for began, _ in frames)
    assert rows.worst_second() == max(second.p99_ms or 0 for second in timeline)


def test_an_open_loop_counts_from_when_a_frame_was_due() -> None:
    """The lane takes the newest frame that is due when it is free; those between are superseded and said to be. Where
    the source's thread was held up, frames are captured late, and that is in their figures."""
    source = SyntheticConfig(id="clip", width=32, height=32, fps=_FPS)
    with Simulation([source], lambda number: _fault(number, 0.025), max_batch=1) as simulation:
        first = simulation.clock.utc_ns()
        for _ in range(20):
            simulation.run(0.983)
            simulation.stall(0.141)
            simulation.run(0.141)
        window = simulation.window()
        rows = simulation.rowset(window, paced=True)
    truth = open_loop(simulation.served, first, _FPS)
    found = rows.latency()
    assert found == pytest.approx({"mean": found["mean"], **_ranks([row[1:] for row in truth], window)}, abs=0.001)
    stages = rows.stages()
    assert (stages["behind"]["p50"], found["p50"], stages["captured to sent"]["p95"]) == (0, 25, 25)
    assert stages["behind"]["max"] >= 40
    assert found["p95"] > 40
    numbers = [row[0] for row in truth]
    assert len(set(numbers)) == len(numbers)
    assert window.dropped["superseded"] == numbers[-1] + 1 - len(numbers)
    assert window.captured == window.published + window.dropped["superseded"]


def _measured(service_s: float, seed: int) -> dict[str, float]:
    """What one repeat shows of a lane whose batches take as long as that, more or less."""
    chance = random.Random(seed)
    with Simulation([_closed()], lambda _: service_s * chance.gauss(1, 0.03), depth=DEPTH, max_batch=1) as simulation:
        simulation.run(1 + chance.random())
        simulation.mark()
        simulation.run(1.5)
        window = simulation.window()
        latency = simulation.rowset(window, paced=False).latency()
    return {"fps": window.published / window.seconds, "p50": latency["p50"], "p99": latency["p99"]}


def _report(service_s: float, seeds: range) -> dict[str, list[float]]:
    repeats = [_measured(service_s, seed) for seed in seeds]
    return {name: [repeat[name] for repeat in repeats] for name in repeats[0]}


def test_a_lane_that_is_5_percent_slower_is_found() -> None:
    old, new = _report(0.02, range(5)), _report(0.021, range(5, 10))
    verdicts = {change.metric: change.verdict for change in compare(report(old), report(new))}
    # A frame more or less in the window is 1.4 % of its rate; latency has no such grain. Any may be the one to tell.
    assert "worse" in verdicts.values()
    assert "better" not in verdicts.values()
    same = compare(report(old), report(_report(0.02, range(10, 15))))
    assert {change.verdict for change in same} == {"same"}
