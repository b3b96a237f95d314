"""Benchmarks of the whole daemon, on the CPU: every frame accounted for, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.bench.capacity import Promise, capacity, held
from daemon.bench.churn import churn
from daemon.bench.load import Load
from daemon.bench.recording import read
from daemon.bench.streams import Streams, streams
from detectors.factory import Backend
from detectors.fake.detector import FakeDetector

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.slow]


def _adds_up(found: Streams) -> None:
    """Its rates are those of its counts, over the time that the window took."""
    assert found.unaccounted == 0
    assert found.received_share == 1.0
    assert found.fps == pytest.approx(found.published / found.seconds, rel=0.01)
    assert sum(source.fps for source in found.by_source.values()) == pytest.approx(found.fps, rel=0.01)
    rates = sorted(source.fps for source in found.by_source.values())
    assert (found.source_fps[0], found.source_fps[2]) == pytest.approx((rates[0], rates[-1]))
    assert found.dropped_share == pytest.approx(sum(found.dropped.values()) / max(1, found.captured), abs=1e-5)
    if found.published:  # by a machine that had time for one in the window
        assert found.latency_ms["p50"] <= found.latency_ms["p99"] <= found.latency_ms["max"]


@pytest.mark.parametrize(("paced", "backend"), [(False, "cpu"), (True, "fake")])
def test_streams_adds_up(clip: Path, paced: bool, backend: Backend) -> None:
    result = streams(Load(clip, sources=3, paced=paced, seconds=2.0, warm_up=0, backend=backend, lanes=1, max_batch=4))
    _adds_up(result)
    assert result.up == 3
    assert result.decoders == {"cpu": 3}
    assert result.refusals == {f"the {backend} backend reads pictures in host memory": 3}
    assert result.asked_fps == (45 if paced else None)
    if paced:  # at a recording's pace, after half a second that it may have been late, with one at either end
        assert result.captured <= 3 * (15 * (result.seconds + 0.5) + 2)
    else:
        assert sum(result.dropped.values()) == 0


@pytest.mark.parametrize("paced", [False, True])
def test_a_recording_has_every_frame_once(tmp_path: Path, clip: Path, paced: bool) -> None:
    """Published or dropped; and its times are those of the run."""
    record = tmp_path / "frames.jsonl"
    load = Load(clip, sources=2, paced=paced, seconds=1.0, warm_up=0, backend="fake", lanes=1, max_batch=2)
    found = streams(load, frames_out=record, open_detector=lambda _, options: FakeDetector(options, 0.01))
    rows = list(read(record))
    for source in ("clip-0", "clip-1"):
        seqs = sorted(row.seq for row in rows if row.source == source)
        assert seqs == list(range(len(seqs)))
    totals = {round(row.latency.total / 1e6, 3) for row in rows if row.latency}
    if not paced:  # otherwise figures count from when a frame was due
        assert found.latency_ms["max"] in totals
    assert len([row for row in rows if row.latency]) >= found.published > 0


def test_capacity_runs_the_daemon_and_keeps_no_promise_that_nobody_could(clip: Path) -> None:
    load = Load(clip, sources=2, seconds=1.0, warm_up=0, backend="cpu", lanes=1, max_batch=4)
    report = capacity(load, Promise(dropped_percent=100, p50_ms=10_000, p99_ms=0.0001), 1)
    assert held(report) == 0
    assert [case.load["sources"] for case in report.cases] == [2, 1]
    (run,) = report.cases[1].repeats[0]
    _adds_up(run)
    assert report.cases[1].value("fps") == run.fps
    assert (run.loop, run.decoders) == ("open", {"cpu": 1})


def test_churn_breaks_what_it_should_and_finds_it_back(clip: Path) -> None:
    result = churn(
        Load(clip, sources=3, paced=True, seconds=1.0, warm_up=0, backend="fake", lanes=1, max_batch=4), 20, 1
    )
    assert result.victims == 1
    assert result.settled.drops >= 2  # as many as were asked for; one more may be on its way when it is told to stop
    assert result.ended.drops >= 20
    assert result.ended.threads <= result.settled.threads
    assert result.ended.open_files <= result.settled.open_files
    assert result.churning_fps > 0
