"""Figures of `lookout bench` over a detector with a known service time and fault agree with those of a queue.

The queue is the daemon's own, on a clock that the test moves; `make speed` has the same on a real clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from time import monotonic

import numpy as np
import pytest

from daemon.bench.compare import compare_reports
from daemon.bench.harness import Window
from daemon.bench.latency import RANKS, Rowset
from daemon.bench.listener import STAMP
from daemon.bench.steady import Pace, RowLog, is_steady
from daemon.config.sources import SyntheticConfig
from daemon.pipeline.ledger import ROW
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
    """Percentiles of frames captured, or due, in the window: ms until done."""
    latencies = [(done - began) / 1e6 for began, done in frames if window.begin <= began < window.end]
    return {name: float(np.percentile(latencies, rank)) for name, rank in RANKS.items()}


def test_closed_loop_latency_shows_the_queue() -> None:
    """Eight frames wait, and every hundredth batch delays them all; throughput is the lane's."""
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
    """A free lane takes the newest due frame; those between are counted as superseded. Delays of the capture thread
    count in the latency of its frames."""
    source = SyntheticConfig(id="clip", width=32, height=32, fps=_FPS)
    with Simulation([source], lambda number: _fault(number, 0.025), max_batch=1) as simulation:
        first = simulation.clock.monotonic_ns()
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


def test_a_step_of_the_time_of_day_moves_no_frame() -> None:
    """It moves no frame out of the window or to another second, and changes no latency."""

    def figures(step_s: float) -> tuple[object, ...]:
        source = SyntheticConfig(id="clip", width=32, height=32, fps=_FPS)
        with Simulation([source], lambda number: _fault(number, 0.025), max_batch=1) as simulation:
            simulation.mark()
            simulation.run(4)
            simulation.clock.step(step_s)
            simulation.run(5)
            window = simulation.window()
            rows = simulation.rowset(window, paced=True)
        return rows.latency(), rows.stages(), rows.timeline(), rows.worst_second(), sum(rows.histogram().counts)

    assert figures(-3600.0) == figures(0.0) == figures(2.5)


def _slower(by_s: float) -> Callable[[int], float]:
    """Seconds per batch, growing steadily."""
    return lambda number: 0.02 + by_s * number


@pytest.mark.parametrize(("by_s", "steady"), [(0.0, True), (0.00004, False)])
def test_p99_that_drifts_at_a_constant_rate_is_not_steady(by_s: float, steady: bool) -> None:
    """400 frames in 20 s, with a service time that is constant or grows by 16 ms."""
    source = SyntheticConfig(id="clip", width=32, height=32, fps=_FPS)
    with Simulation([source], _slower(by_s), max_batch=1) as simulation:
        simulation.run(20)
        window = simulation.window()
        rows = simulation.rowset(window, paced=True)
    assert window.rates(["clip"]) == [pytest.approx(_FPS, rel=0.01)]
    assert {second.fps for second in rows.timeline()} <= {19, 20, 21}
    assert rows.is_steady() is steady


@pytest.mark.parametrize(
    ("paces", "steady"),
    [
        ([(100.0, 20.0), (104.0, 20.5), (96.0, 19.5)], True),
        ([(100.0, 20.0), (100.0, 20.0)], False),  # too few windows
        ([(100.0, 20.0), (115.0, 20.0), (85.0, 20.0)], False),
        ([(100.0, 20.0), (100.0, 23.0), (100.0, 26.0)], False),
        ([(100.0, 2.0), (100.0, 2.8), (100.0, 2.0)], True),  # within a millisecond
        ([(100.0, None), (100.0, 20.0), (100.0, 30.0)], True),  # too few frames for a p99 in one of them
        ([(0.0, None)] * 3, False),
    ],
)
def test_steady_means_throughput_and_p99_within_10_percent(
    paces: list[tuple[float, float | None]], steady: bool
) -> None:
    assert is_steady([Pace(*pace) for pace in paces], grain=2.0) is steady


def test_rows_are_windows_between_two_arrivals() -> None:
    """A p99 needs at least 100 frames."""
    log, count = RowLog(paced=True), 200
    rows = np.zeros(count, ROW)
    rows["total"], rows["behind"] = np.arange(count) * 1_000_000, 5_000_000
    rows["dropped"][:50] = 1
    since = monotonic()
    for part in (rows, rows, rows[:100]):
        log(part)
    first, second = log.paces(since)
    assert first.p99_ms == pytest.approx(np.percentile(np.arange(50, 200) + 5, 99))
    assert first.fps > 0
    assert second.p99_ms is None
    later = monotonic()
    assert log.paces(later) == []
    assert len(log.all()) == 500


@pytest.mark.parametrize("paced", [True, False])
def test_received_is_joined_by_source_and_seq(paced: bool) -> None:
    """Two sources have equal numbers; a frame that was not received is left out."""
    sources = [SyntheticConfig(id=id, width=32, height=32, fps=_FPS) for id in ("one", "two")]
    with Simulation(sources, lambda _: 0.01, max_batch=2) as simulation:
        simulation.run(5)
        window = simulation.window()
        rows = simulation.ledger.drain()
    sent = rows[rows["dropped"] == 0]
    stamps = np.zeros(len(sent), STAMP)
    stamps["source"], stamps["seq"] = sent["source"], sent["seq"]
    on_the_way = np.where(sent["source"] == 0, 1_000_000, 3_000_000)
    stamps["received_ns"] = sent["captured_ns"] + sent["total"] + on_the_way
    shuffled = np.random.default_rng(3).permutation(stamps)[1:]
    missing = [(row["source"], row["seq"]) for row in stamps if row not in shuffled]
    stages = Rowset(rows, window, simulation.ids, paced=paced, stamps=shuffled).stages()
    kept = np.array([(row["source"], row["seq"]) not in missing for row in sent])
    truth = (sent["total"] + on_the_way + (sent["behind"] if paced else 0))[kept] / 1e6
    found = stages[f"{'due' if paced else 'captured'} to received"]
    assert found["p50"] == pytest.approx(np.percentile(truth, 50), abs=0.001)
    assert found["max"] == pytest.approx(truth.max(), abs=0.001)
    assert found["mean"] == pytest.approx(truth.mean(), abs=0.001)


def _measured(service_s: float, seed: int) -> dict[str, float]:
    """One repeat with a lane of about that service time."""
    chance = random.Random(seed)
    with Simulation([_closed()], lambda _: service_s * chance.gauss(1, 0.03), depth=DEPTH, max_batch=1) as simulation:
        simulation.run(1 + chance.random())
        simulation.mark()
        simulation.run(6)
        window = simulation.window()
        latency = simulation.rowset(window, paced=False).latency()
    return {"fps": window.published / window.seconds, "p50": latency["p50"], "p99": latency["p99"]}


def _report(service_s: float, seeds: range) -> dict[str, list[float]]:
    repeats = [_measured(service_s, seed) for seed in seeds]
    return {name: [repeat[name] for repeat in repeats] for name in repeats[0]}


def test_a_lane_that_is_5_percent_slower_is_found() -> None:
    old, new = _report(0.02, range(5)), _report(0.021, range(5, 10))
    changes = compare_reports(report(old, paced=False), report(new, paced=False))
    assert {change.metric: change.result for change in changes} == {"fps": "worse", "cpu": "same", "rss": "same"}
    same = compare_reports(report(old, paced=False), report(_report(0.02, range(10, 15)), paced=False))
    assert {change.result for change in same} == {"same"}
