"""Benchmarks with several models: figures of each and of all, in reports and comparisons."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.bench.compare import compare_reports
from daemon.bench.latency import RANKS
from daemon.bench.load import Load, config_of
from daemon.bench.pages import page_of
from daemon.bench.recording import read as read_frames
from daemon.bench.repeats import runs_of
from daemon.bench.result import Constraints, Report, read, settings_of, write
from daemon.bench.run import ModelFigures, Run, run
from daemon.cli import invoke
from detectors.fake.detector import FakeDetector
from tests.support.daemon import DEMO_MODEL, ROOT
from tests.support.figures import ON, case_of, run_of

_HEAD = ROOT / "tests" / "data" / "heads" / "yolov8.onnx"
_MODELS = {"people": Path("p.onnx"), "plates": Path("q.onnx")}


@pytest.mark.needs("ffmpeg")
@pytest.mark.slow
def test_figures_of_each_model_add_up(tmp_path: Path, clip: Path) -> None:
    """Every frame has a row of each model. Percentiles of a model are those of its rows."""
    record = tmp_path / "frames.jsonl"
    load = Load((clip,), sources=2, models=_MODELS, until_end=True, backend="fake", lanes=1, max_batch=2)
    found = run(load, frames_out=record, open_detector=lambda _, options: FakeDetector(options, 0.001))
    rows = [*read_frames(record)]
    assert Counter((row.source, row.model) for row in rows) == {
        (source, model): 45 for source in ("clip-0", "clip-1") for model in _MODELS
    }
    assert (found.captured, found.published, found.unaccounted, found.received_share, found.up) == (180, 180, 0, 1.0, 2)
    # Both are rounded, and a fast machine takes little more than 50 ms.
    assert {id: row.fps * found.seconds for id, row in found.by_source.items()} == pytest.approx(
        {"clip-0": 90, "clip-1": 90}, rel=0.02
    )
    assert {name: (row.captured, row.published) for name, row in found.models.items()} == dict.fromkeys(
        _MODELS, (90, 90)
    )
    for name, figures in found.models.items():
        totals = [row.latency.total / 1e6 for row in rows if row.latency and row.model == name]
        assert {rank: figures.latency_ms[rank] for rank in RANKS} == pytest.approx(
            {rank: np.percentile(totals, at) for rank, at in RANKS.items()}, abs=0.001
        )


def test_tracks_are_of_the_first_model() -> None:
    config = config_of(Load((Path("1.mkv"),), sources=1, models=_MODELS, analytics=True))
    assert [config.for_model(name).active[0].rules != [] for name in _MODELS] == [True, False]


def _run_with(**fps: float) -> Run:
    whole = run_of({"fps": sum(fps.values())})
    latency = {**whole.latency_ms, "p99": 50.0}
    models = {
        name: ModelFigures(f"{name}.onnx 0", "cpu", "fp32", 1000, 1000, value, 0.0, {}, latency)
        for name, value in fps.items()
    }
    return replace(whole, models=models)


def _report(speed: float) -> Report:
    case = case_of({"fps": [1.0]})
    repeats = [[_run_with(people=100 + n / 10, plates=speed * (100 + n / 10))] for n in range(5)]
    load = settings_of(Load((Path("clip.mp4"),), sources=1, paced=True, models=_MODELS))
    return Report("run", ON, [replace(case, load=load, repeats=repeats)])


def test_a_comparison_names_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is slower than before is found though the other one is not."""
    before, after = _report(1.0), _report(0.5)
    found = {change.model: change.result for change in compare_reports(before, after) if change.metric == "fps"}
    assert found == {None: "worse", "people": "same", "plates": "worse"}
    for name, report in (("old", before), ("new", after)):
        write(tmp_path / f"{name}.json", report)
    assert read(tmp_path / "new.json") == after
    assert invoke(["bench", "compare", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == 1
    assert {"all", "people", "plates"} <= set(capsys.readouterr().out.split())
    (table,) = [table for table in page_of(after).tables if table.title == "Models"]
    assert [row[:3] for row in table.rows] == [
        ("people", "people.onnx 0 on cpu (fp32)", "100.2"),
        ("plates", "plates.onnx 0 on cpu (fp32)", "50.1"),
    ]


def test_each_model_must_meet_the_limits() -> None:
    assert not Constraints().met(_run_with(people=100.0, plates=100.0))
    assert Constraints(p99_ms=60.0).met(_run_with(people=100.0, plates=100.0))


@pytest.mark.needs("ffmpeg")
def test_what_cannot_be_is_one_line(clip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = ["--model", str(DEMO_MODEL), "--model", f"small={_HEAD}"]
    for options, words in (
        (
            ["--model", str(DEMO_MODEL)] * 2,
            f"two models are named demo: give one another name, --model NAME={DEMO_MODEL}",
        ),
        ([*two, "--limits"], "--limits and --images measure one model: give one --model"),
        (["--model", "small=absent.onnx"], "absent.onnx"),
        ([word for n in range(9) for word in ("--model", f"m{n}={_HEAD}")], "--model: 9 models; at most 8 can look"),
    ):
        code = invoke(["bench", "run", str(clip), "--repeats", "1", *options])
        said = capsys.readouterr().err
        assert (code, said.count("\n"), words in said) == (2, 1, True), said


@pytest.mark.needs("ffmpeg")
@pytest.mark.long
def test_each_repeat_has_the_models(clip: Path) -> None:
    """Also one in a process of its own."""
    models = {"street": DEMO_MODEL, "small": _HEAD}
    load = Load((clip,), 1, models=models, seconds=0.5, warm_up=0, backend="cpu", threads=1, lanes=1, max_batch=2)
    (found,) = runs_of(load)
    assert [*found.models] == ["street", "small"]
    assert all(row.published for row in found.models.values())
