"""The reports of `lookout bench`, each made once by its command on the CPU, read and looked at."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from daemon.bench.recording import read as read_frames
from daemon.bench.result import Report, read
from daemon.cli import invoke
from tests.support.daemon import PATIENCE_S

# The reports are made once.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_LOAD = ["--lanes", "1", "--max-batch", "4", "--seconds", "1", "--warm-up", "0", "--backend", "cpu"]
_AT_MOST = 2 * (8 + 1) + 4  # frames on their way: of two sources those that wait and one in hand, and a batch
_SWEEP = ["--sources", "2", "--paced", *_LOAD, "--batches", "1,4", "--repeats", "1"]
_PLOTS = {
    "replay": {"latency", "stages", "timeline"},
    "sweep": {"knee", "tradeoff"},
    "capacity": {"capacity"},
    "peers": {"peers"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all four."""
    folder = tmp_path_factory.mktemp("reports")
    out = ["--out", str(folder)]
    record = ["--frames-out", str(folder / "frames.parquet")]
    replay = ["--sources", "2", *_LOAD, "--seconds", "2", "--repeats", "1"]
    assert invoke(["bench", "replay", *replay, *record, *out]) == 0
    assert invoke(["bench", "sweep", *_SWEEP, *out]) == 0
    assert invoke(["bench", "capacity", "--sources", "2", *_LOAD, "--p99", "0.001", "--step", "2", *out]) == 0
    peers = ["--repeats", "1", "--ultralytics-python", "/nowhere/python"]
    assert invoke(["bench", "peers", "--sources", "2", *_LOAD, *peers, *out]) == 0
    return folder


@pytest.fixture
def report(made: Path, kind: str) -> Report:
    return read(made / f"{kind}.json")


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("kind", list(_PLOTS))
def test_the_page_needs_nothing_else_and_can_be_looked_at(made: Path, kind: str) -> None:
    page = made / f"{kind}.html"
    text = page.read_text()
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)", text)
    for name in _PLOTS[kind]:
        assert f'id="plot-{name}"' in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    shot = made / f"{kind}.png"
    look = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,1500"]
    subprocess.run([*look, f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True, timeout=PATIENCE_S)
    picture = cv2.imread(str(shot))
    assert picture is not None
    # Cards reach across the page and plots have colours: it is drawn, not a heap of text.
    white = (picture == 255).all(axis=2)
    assert white.any(axis=0).sum() > 1000
    blue = np.abs(picture.astype(int) - (0xC5, 0x67, 0x27)).max(axis=2) < 40
    assert blue.sum() > 100 or kind == "capacity"


@pytest.mark.parametrize("kind", list(_PLOTS))
def test_it_says_what_it_was_measured_with(report: Report, kind: str) -> None:
    on = report.environment
    assert {name: len(digest) for name, digest in on.files.items()} == {"bench-street.mp4": 64, "demo.onnx": 64}
    assert {"numpy", "onnxruntime", "av"} <= set(on.packages)
    assert any("fewer than 5 repeats" in remark for remark in report.remarks), kind


@pytest.mark.parametrize("kind", ["replay"])
def test_a_replay_has_every_figure_that_a_cpu_can_give(report: Report) -> None:
    for run in (run for repeat in report.cases[0].repeats for run in repeat):
        assert run.unaccounted == 0
        assert run.received_share == 1
        seen = sum(run.histogram.counts)
        assert seen == pytest.approx(run.published, abs=_AT_MOST)  # some were captured before the window
        ranks = ("p50", "p90", "p95", "p99", "p99.9", "max")
        assert [run.latency_ms[rank] for rank in ranks] == sorted(run.latency_ms[rank] for rank in ranks)
        assert run.usage.cpu_ms_per_frame > run.usage.bench_cpu_ms_per_frame
        assert run.usage.context_switches_per_s > 0
        assert len(run.timeline) == int(run.seconds)
        assert 0 < sum(second.fps for second in run.timeline) <= seen
        assert run.start_up.first_detections_s >= run.start_up.daemon_s + run.start_up.lanes_s
        assert run.usage.energy_j is None


@pytest.mark.parametrize("kind", ["sweep"])
def test_a_sweep_goes_on_where_it_was(
    report: Report, made: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in the file is not measured again; a file of something else is not touched."""
    assert [case.load["batch"] for case in report.cases] == [1, 4]
    again = ["bench", "sweep", *_SWEEP, "--out", str(made)]
    assert invoke(again) == 0
    assert read(made / f"{kind}.json").cases == report.cases
    (made / "other").mkdir()
    (made / "other" / "sweep.json").write_bytes((made / "peers.json").read_bytes())
    assert invoke([*again[:-1], str(made / "other")]) == 2
    assert "is of another recording" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["peers"])
def test_peers_that_cannot_run_say_why(report: Report) -> None:
    found = {peer.name: peer for peer in report.peers}
    assert found["OpenCV + onnxruntime"].fps[0] > 0
    assert "not run" in found["limits"].note
    assert "not run: /nowhere/python: No such file" in found["Ultralytics predict"].note


def test_copies_are_summed(tmp_path: Path) -> None:
    """Two daemons at once: a run of each, every frame of both."""
    share = ["--copies", "2", "--paced", "--repeats", "1", "--out", str(tmp_path)]
    assert invoke(["bench", "replay", "--sources", "2", *_LOAD, *share]) == 0
    both = read(tmp_path / "replay.json").cases[0]
    assert [len(runs) for runs in both.repeats] == [2]
    assert both.value("fps") == pytest.approx(sum(run.fps for run in both.repeats[0]))
    assert all(run.fps > 0 and run.unaccounted == 0 and run.received_share == 1 for run in both.repeats[0])
    # Each has divided the energy of the one GPU, 60 J say, by its own frames: 10 and 20.
    measured = [replace(run, joules_per_frame=joules) for run, joules in zip(both.repeats[0], (6.0, 3.0))]
    assert replace(both, repeats=[measured]).value("joules") == pytest.approx(60 / 30)


def test_a_report_can_be_made_again(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And its figures are on the terminal."""
    assert invoke(["bench", "report", str(made / "replay.json"), "--out", str(tmp_path)]) == 0
    (fps,) = read(made / "replay.json").cases[0].values("fps")
    assert f"{fps:,.1f}" in capsys.readouterr().out
    for suffix in ("json", "md", "html"):
        assert (tmp_path / f"replay.{suffix}").read_bytes() == (made / f"replay.{suffix}").read_bytes()


def test_a_recording_agrees_with_itself_and_not_with_another(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = made / "frames.parquet"
    assert any(True for _ in read_frames(frames))
    assert invoke(["bench", "verify", str(frames), str(frames)]) == 0
    assert "100.0000% of the boxes agree" in capsys.readouterr().out
    other = tmp_path / "other.jsonl"
    assert invoke(["bench", "streams", "--sources", "1", "--paced", *_LOAD, "--frames-out", str(other)]) == 0
    assert invoke(["bench", "verify", str(frames), str(other)]) == 0
    moved = re.sub(r'"box":\[([\d.]+)', lambda found: f'"box":[{float(found[1]) + 40}', other.read_text())
    other.write_text(moved)
    assert invoke(["bench", "verify", str(frames), str(other)]) == 1
    assert "clip-0" in capsys.readouterr().out


def test_compare_needs_enough_repeats_to_tell(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "compare", str(made / "replay.json"), str(made / "replay.json")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "unknown" in said
    assert "1 repeats of a case: at least 5 of each are needed to tell" in said
    assert invoke(["bench", "compare", str(made / "replay.json"), str(made / "sweep.json")]) == 2
    assert "nothing to compare" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "gone.json"], "gone.json cannot be read: No such file"),
        (["replay", "gone.mp4"], "cannot open gone.mp4: No such file"),
        (["streams", "/dev/null"], "cannot open /dev/null"),
        (["churn", "--sources", "5", "--victims", "5"], "--sources must be more than --victims 5"),
        (["streams", "--json", "gone/figures.json"], "gone/figures.json cannot be written: there is no folder gone"),
        (["streams", "--frames-out", "gone/frames.jsonl"], "gone/frames.jsonl cannot be written: there is no folder"),
        (["capacity", "--out", "/dev/null/report"], "/dev/null/report cannot be written: /dev/null is no folder"),
        (["replay", "--frames-out", "frames.csv"], "must end in .jsonl or .parquet"),
        (["replay", "--images", "photos"], "--images and --annotations go together"),
        (["sweep", "--batches", "1,x"], "'1,x' is not a list like 1,2,4"),
        (["sweep", "--precisions", "int3"], "unknown int3; known are auto, fp32, fp16, int8, fp8"),
        (["verify", "gone.jsonl", "gone.jsonl"], "gone.jsonl cannot be read"),
        (["replay", "--sources", "1", "--model", "gone.onnx"], "gone.onnx cannot be read"),
    ],
)
def test_bad_input_gets_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["bench", *arguments]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert "Traceback" not in printed
    assert len([line for line in printed.splitlines() if line.startswith("lookout:")]) == 1


def test_a_broken_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "replay.json"
    broken.write_text('{"kind": "replay"}')
    assert invoke(["bench", "compare", str(broken), str(broken)]) == 2
    assert "is not a file of lookout bench" in capsys.readouterr().err
