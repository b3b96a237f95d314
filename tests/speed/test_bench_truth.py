"""`lookout bench run` over a detector of a known service time with a known fault: its figures are the queue's.

One process has the whole queue: a capture process would hold frames of its own.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from daemon.bench.compare import compare_reports
from daemon.bench.load import Load
from daemon.bench.recording import read
from daemon.bench.result import Case, Report, environment_of, settings_of
from daemon.bench.run import Run
from daemon.bench.run import run as run_bench
from detectors.factory import Backend
from detectors.fake.detector import FakeDetector
from detectors.port import Detector, Options
from tests.support import clips
from tests.support.queues import DEPTH, closed_loop, open_loop

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.speed]
_STALL_S = 0.2
_EVERY = 100


class Faulty(FakeDetector):
    """Takes `service_s` for a batch, and 200 ms more for every hundredth.

    Attributes:
        served: UTC ns at which each batch began and ended, as the queue's truth is to be made of.
    """

    def __init__(self, options: Options, service_s: float) -> None:
        super().__init__(options, service_s, self._serve)
        self.served: list[tuple[int, int]] = []

    def _serve(self, seconds: float) -> None:
        fault = _STALL_S if len(self.served) % _EVERY == _EVERY - 1 else 0.0
        began = time.time_ns()
        time.sleep(seconds + fault)
        self.served.append((began, time.time_ns()))


def run(load: Load, service_s: float, record: Path) -> tuple[Run, Faulty]:
    made: list[Faulty] = []

    def open_faulty(_: Backend, options: Options) -> Detector:
        made.append(Faulty(options, service_s))
        return made[0]

    return run_bench(load, open_detector=open_faulty, frames_out=record), made[0]


def compare(found: Run, truth_ns: list[int], ranks: dict[str, float]) -> None:
    """Within 5 % and two ranks: where the distribution is steep, a frame more at the end of the window moves a rank."""
    for name, rank in ranks.items():
        least, most = np.percentile(truth_ns, [rank - 2, min(100.0, rank + 2)]) / 1e6
        assert 0.95 * least <= found.latency_ms[name] <= 1.05 * most, name


def test_closed_loop_latency_shows_the_queue(tmp_path: Path, clip: Path) -> None:
    load = Load((clip,), sources=1, seconds=9.0, backend="fake", lanes=1, max_batch=1, processes=0)
    found, detector = run(load, 0.02, tmp_path / "frames.jsonl")
    assert found.loop == "closed"
    truth = [done - captured for captured, done in closed_loop(detector.served)][2 * DEPTH :]
    compare(found, truth, {"p50": 50, "p95": 95, "p99": 99})
    assert found.fps == pytest.approx(1 / (0.02 + _STALL_S / _EVERY), rel=0.1)


def test_an_open_loop_counts_from_when_a_frame_was_due(tmp_path: Path) -> None:
    """The lane takes the newest frame that is due when it is free; those between are superseded and said to be."""
    fps = 20
    clip = clips.pattern(tmp_path / "clip.mkv", seconds=3, fps=fps)
    load = Load((clip,), sources=1, paced=True, seconds=14.0, backend="fake", lanes=1, max_batch=1, processes=0)
    record = tmp_path / "frames.jsonl"
    found, detector = run(load, 0.025, record)
    assert found.loop == "open"
    first = min(row.captured_at - round(row.seq * 1e9 / fps) for row in read(record))  # the one that came soonest
    truth = [done - due for _, due, done in open_loop(detector.served, first, fps)]
    compare(found, truth, {"p50": 50, "p90": 90, "p99.9": 99.9, "max": 100})
    lost = round(_STALL_S * fps) - 1
    assert found.dropped["superseded"] == pytest.approx(14.0 * fps / (_EVERY + lost) * lost, rel=0.35)
    assert found.asked_fps == fps


def test_a_lane_that_is_5_percent_slower_is_found(clip: Path) -> None:
    load = Load((clip,), sources=1, seconds=5.0, backend="fake", lanes=1, max_batch=1)

    class Slow(FakeDetector):
        service = 0.02

        def __init__(self, options: Options) -> None:
            super().__init__(options, self.service)

    class Slower(Slow):
        service = 0.021

    def report(kind: type[Slow]) -> Report:
        runs = [[run_bench(load, open_detector=lambda _, options: kind(options))] for _ in range(5)]
        return Report("run", environment_of(load), [Case(settings_of(load), runs)])

    old = report(Slow)
    results = {change.metric: change.result for change in compare_reports(old, report(Slower))}
    assert results["fps"] == "worse"  # a frame more or less in the window is 0.4 % of its rate
    assert "better" not in (results["cpu"], results["rss"])
