"""Benchmarks of the whole daemon on the CPU: every frame is accounted for, and nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from daemon.bench.latency import RANKS
from daemon.bench.load import Load, PhasedSources, config_of
from daemon.bench.recording import Row, read
from daemon.bench.repeats import Children
from daemon.bench.result import Constraints
from daemon.bench.run import Run, run
from daemon.bench.search import max_met, most_sources
from daemon.errors import LookoutError
from daemon.sources.decode import DecoderPool, NoHardwareDecoder
from daemon.sources.port import next_picture
from detectors.factory import Backend
from detectors.fake.detector import FakeDetector
from tests.support import clips
from tests.support.daemon import PATIENCE_S, ROOT, wait_until
from tests.support.hardware import FakeGpu

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.slow]


def _adds_up(found: Run) -> None:
    """Rates agree with counts over the window's time."""
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
def test_a_run_adds_up(clip: Path, paced: bool, backend: Backend) -> None:
    result = run(Load((clip,), sources=3, paced=paced, seconds=2.0, warm_up=0, backend=backend, lanes=1, max_batch=4))
    _adds_up(result)
    assert result.up == 3
    assert result.decoders == {"cpu": 3}
    assert result.refusals == {f"the {backend} backend reads pictures in host memory": 3}
    assert result.asked_fps == (45 if paced else None)
    if paced:  # at a recording's pace, after half a second that it may have been late, with one at either end
        assert result.captured <= 3 * (15 * (result.seconds + 0.5) + 2)
    else:
        assert sum(result.dropped.values()) == 0
    # A message is received after it is made, each of them.
    sent, received = result.latency_ms, result.stages_ms[f"{'due' if paced else 'captured'} to received"]
    assert all(received[rank] > sent[rank] for rank in RANKS if sent)


@pytest.mark.parametrize("paced", [False, True])
def test_a_recording_has_every_frame_once(tmp_path: Path, clip: Path, paced: bool) -> None:
    """Published or dropped, with the times of the run."""
    record = tmp_path / "frames.jsonl"
    load = Load((clip,), sources=2, paced=paced, seconds=1.0, warm_up=0, backend="fake", lanes=1, max_batch=2)
    found = run(load, frames_out=record, open_detector=lambda _, options: FakeDetector(options, 0.01))
    rows = list(read(record))
    for source in ("clip-0", "clip-1"):
        seqs = sorted(row.seq for row in rows if row.source == source)
        assert seqs == list(range(len(seqs)))
    totals = {round(row.latency.total / 1e6, 3) for row in rows if row.latency}
    if not paced:  # otherwise figures count from when a frame was due
        assert found.latency_ms["max"] in totals
    assert len([row for row in rows if row.latency]) >= found.published > 0


@pytest.mark.parametrize("paced", [False, True])
def test_until_the_end_has_every_frame_of_every_clip(tmp_path: Path, clip: Path, paced: bool) -> None:
    """Two clips as three sources, each played once; percentiles are of all recorded frames."""
    other = clips.pattern(tmp_path / "other.mkv", seconds=1, fps=10)
    record = tmp_path / "frames.jsonl"
    load = Load((clip, other), sources=3, until_end=True, paced=paced, backend="fake", lanes=1, max_batch=2)
    found = run(load, frames_out=record, open_detector=lambda _, options: FakeDetector(options, 0.001))
    _adds_up(found)
    rows = list(read(record))
    counts = {source: sum(row.source == source for row in rows) for source in ("clip-0", "clip-1", "clip-2")}
    assert counts == {"clip-0": 45, "clip-1": 10, "clip-2": 45}
    assert (found.captured, found.up) == (100, 3)
    published = [row for row in rows if row.latency]
    assert found.published == len(published)
    assert sum(found.histogram.counts) == len(published)
    if not paced:
        assert found.published == 100
        _has_ranks(found, published)
        last = max(row.captured_at + row.latency.total for row in published if row.latency)
        span = (last - min(row.captured_at for row in rows)) / 1e9  # by another clock, which is read a moment later
        assert found.seconds == pytest.approx(span, abs=0.05)


def _has_ranks(found: Run, published: list[Row]) -> None:
    """Percentiles agree with those of the recorded frames."""
    totals = [row.latency.total / 1e6 for row in published if row.latency]
    for name, rank in RANKS.items():
        assert found.latency_ms[name] == pytest.approx(np.percentile(totals, rank), abs=0.001), name


def test_a_truncated_recording_is_reported(tmp_path: Path, clip: Path) -> None:
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(clip.read_bytes()[: clip.stat().st_size // 2])
    with pytest.raises(LookoutError, match=r"clip-1: .*cut\.mkv"):
        run(Load((clip, cut), sources=2, until_end=True, backend="fake", lanes=1))


def _phases(clip: Path, seed: int, hardware: DecoderPool) -> list[int]:
    """Times of the first pictures of three sources, ns."""
    load = Load((clip,), sources=3, seed=seed, phase=2.0)
    config = config_of(load)
    make, first = PhasedSources(config, load), []
    for source in config.active:
        with closing(make(source, hardware).open()) as reader:
            picture = next_picture(reader)
            assert picture is not None
            assert picture.pts is not None
            assert picture.load().width == 320
            first.append(picture.pts)
    return first


def test_sources_of_one_clip_start_at_different_offsets(clip: Path) -> None:
    """Equal seeds give equal offsets on any decoder, so that runs can be compared. Skipped pictures go back to the
    decoder: it has fewer surfaces than pictures are skipped."""
    cpu = NoHardwareDecoder("not asked for")
    first = _phases(clip, 0, cpu)
    assert len(set(first)) == 3
    assert first == _phases(clip, 0, cpu)
    assert first != _phases(clip, 1, cpu)
    assert all(0 <= time <= 2_000_000_000 for time in first)
    assert max(first) > 1_000_000_000
    with closing(FakeGpu(surfaces=4).pool) as pool:
        assert _phases(clip, 0, pool) == first
    assert set(PhasedSources(config_of(Load((clip,))), Load((clip,), phase=0)).offsets.values()) == {0.0}
    assert PhasedSources(config_of(Load((clip,))), Load((clip,), until_end=True)).offsets == {}


@pytest.mark.long
def test_a_search_with_impossible_limits_finds_nothing(clip: Path) -> None:
    load = Load((clip,), sources=2, seconds=1.0, warm_up=0, backend="cpu", threads=1, lanes=1, max_batch=4)
    report = most_sources(load, Constraints(dropped_percent=100, p50_ms=10_000, p99_ms=0.0001), 1)
    assert max_met(report) == 0
    assert [case.load["sources"] for case in report.cases] == [2, 1]
    (found,) = report.cases[1].repeats[0]
    _adds_up(found)
    assert report.cases[1].value("fps") == found.fps
    assert (found.loop, found.decoders) == ("open", {"cpu": 1})


def test_a_process_that_begins_while_the_others_are_killed_is_killed_too() -> None:
    """Ctrl-C comes between its start and its being known: the command waited for its end."""
    children = Children()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as early:
        children.add(early)
        children.kill()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as late:
        children.add(late)
        codes = early.wait(PATIENCE_S), late.wait(PATIENCE_S)
    assert codes == (-signal.SIGKILL, -signal.SIGKILL)


def test_a_subscriber_does_not_outlive_the_benchmark_that_was_killed(tmp_path: Path) -> None:
    """Nor the processes that wait for what it might print, even if it was never connected."""
    begin = "import os, subprocess, sys; subprocess.Popen([*sys.argv[1:], str(os.getpid())])"
    listener = [sys.executable, "-m", "daemon.bench.listener", f"ipc://{tmp_path}/nobody", str(tmp_path / "stamps")]
    with subprocess.Popen(
        [sys.executable, "-c", f"{begin}; input()", *listener], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        wait_until((tmp_path / "stamps").exists, "it listens")
        parent.kill()
        assert parent.stdout.read() == b""  # the last process that holds it has ended
