"""Benchmarks of the whole daemon, on the CPU: every frame accounted for, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.bench.capacity import Promise, capacity, held
from daemon.bench.churn import churn
from daemon.bench.load import Load
from daemon.bench.streams import streams

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.slow]


@pytest.mark.parametrize("paced", [False, True])
def test_streams_adds_up(clip: Path, paced: bool) -> None:
    result = streams(Load(clip, sources=3, paced=paced, seconds=2.0, backend="cpu", lanes=1, max_batch=4))
    assert (result.up, result.unaccounted, result.received_share) == (3, 0, 1.0)
    assert result.decoders == {"cpu": 3}
    assert result.refusals == {"the cpu backend reads pictures in host memory": 3}
    assert result.latency_ms["p50"] <= result.latency_ms["p99"] <= result.latency_ms["max"]
    lowest, _, highest = result.source_fps
    assert lowest > 0.8 * highest
    if paced:
        assert highest == pytest.approx(15, rel=0.15)


def test_capacity_runs_the_daemon_and_keeps_no_promise_that_nobody_could(clip: Path) -> None:
    load = Load(clip, sources=2, seconds=1.0, backend="cpu", lanes=1, max_batch=4)
    report = capacity(load, Promise(dropped_percent=100, p50_ms=10_000, p99_ms=0.0001), 1)
    assert held(report) == 0
    assert [case.load["sources"] for case in report.cases] == [2, 1]
    assert report.cases[1].value("fps") == pytest.approx(15, rel=0.15)
    assert report.cases[1].repeats[0][0].decoders == {"cpu": 1}


def test_churn_breaks_what_it_should_and_finds_it_back(clip: Path) -> None:
    result = churn(Load(clip, sources=3, paced=True, seconds=1.0, backend="cpu", lanes=1, max_batch=4), 20, 1)
    assert (result.settled.drops, result.ended.drops) == (2, 20)
    assert result.ended.threads <= result.settled.threads
    assert result.ended.open_files <= result.settled.open_files
    assert result.churning_fps == pytest.approx(15, rel=0.15)
