"""Reports of `lookout bench`, each made once on the CPU and checked."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from daemon.bench.latency import RANKS
from daemon.bench.load import Load
from daemon.bench.pages import save
from daemon.bench.recording import read as read_frames
from daemon.bench.result import Report, read
from daemon.cli import invoke
from daemon.commands.report import number
from daemon.sources.synthetic_clip import synthetic_clip
from tests.peers.__main__ import in_turns, sides_of
from tests.support.daemon import PATIENCE_S
from tests.support.streets import labelled_streets

# The reports are made once.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
_LOAD = ["--lanes", "1", "--max-batch", "4", "--seconds", "1", "--warm-up", "0", "--backend", "cpu", "--threads", "1"]
_GRID = ["--sources", "2", "--paced", *_LOAD, "--over", "batch=1,4", "--repeats", "1"]
_MOST = ["--most", "sources", "--sources", "2", *_LOAD, "--max-p99", "0.001", "--step", "2", "--confirm", "0"]
_PLOTS = {
    "run": {"latency", "stages", "timeline"},
    "grid/search": {"knee", "tradeoff"},
    "most/search": {"most"},
    "peers/run": {"peers"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the four reports."""
    folder = tmp_path_factory.mktemp("reports")
    out = ["--out", str(folder)]
    record = ["--frames-out", str(folder / "frames.parquet"), "--json", str(folder / "figures.json")]
    load = ["--sources", "2", *_LOAD, "--seconds", "2", "--repeats", "1", "--device", "1"]
    images, truth = labelled_streets(tmp_path_factory.mktemp("photos"), 4)
    labelled = ["--images", str(images), "--annotations", str(truth)]
    assert invoke(["bench", "run", *load, *labelled, *record, *out]) == 0
    assert invoke(["bench", "search", *_GRID, "--out", str(folder / "grid")]) == 0
    assert invoke(["bench", "search", *_MOST, "--out", str(folder / "most")]) == 0
    small = Load((synthetic_clip(),), 2, seconds=1.0, warm_up=0.0, backend="cpu", threads=1, lanes=1, max_batch=4)
    sides = sides_of(small, ultralytics=Path("/nowhere/python"))
    save(in_turns(small, sides, 1), folder / "peers")
    return folder


@pytest.fixture
def report(made: Path, kind: str) -> Report:
    return read(made / f"{kind}.json")


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("kind", list(_PLOTS))
def test_the_page_is_self_contained(made: Path, kind: str) -> None:
    page = made / f"{kind}.html"
    text = page.read_text()
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#)", text)
    for name in _PLOTS[kind]:
        assert f'id="plot-{name}"' in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    shot = page.with_suffix(".png")
    look = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,1500"]
    subprocess.run([*look, f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True, timeout=PATIENCE_S)
    picture = cv2.imread(str(shot))
    assert picture is not None
    # Cards span the page and plots have colours.
    white = (picture == 255).all(axis=2)
    assert white.any(axis=0).sum() > 1000
    blue = np.abs(picture.astype(int) - (0xC5, 0x67, 0x27)).max(axis=2) < 40
    assert blue.sum() > 100 or kind == "most/search"


@pytest.mark.parametrize("kind", list(_PLOTS))
def test_a_report_has_its_environment(report: Report, kind: str) -> None:
    on = report.environment
    assert {name: len(digest) for name, digest in on.files.items()} == {"bench-street.mp4": 64, "demo.onnx": 64}
    assert {"numpy", "onnxruntime", "av"} <= set(on.packages)
    assert any("fewer than 5 repeats" in remark for remark in report.remarks), kind


@pytest.mark.parametrize("kind", ["run"])
def test_a_run_has_all_cpu_figures(report: Report) -> None:
    assert report.accuracy is not None
    assert (report.accuracy.ap50 > 0.9, report.accuracy.images) == (True, 4)
    for run in (run for repeat in report.cases[0].repeats for run in repeat):
        assert run.unaccounted == 0
        assert run.received_share == 1
        assert run.usage.cpu_ms_per_frame > run.usage.bench_cpu_ms_per_frame
        assert run.usage.context_switches_per_s > 0
        assert len(run.timeline) == int(run.seconds)
        assert 0 < sum(second.fps for second in run.timeline) <= sum(run.histogram.counts)
        assert run.start_up.first_detections_s >= run.start_up.daemon_s + run.start_up.lanes_s
        assert run.usage.energy_j is None


@pytest.mark.parametrize("paced", ["--paced", "--lossless"])
def test_percentiles_and_counts_agree_with_recorded_frames(tmp_path: Path, paced: str) -> None:
    """Of all frames, read back and sorted, and of the subscriber's receive times."""
    frames, figures = tmp_path / "frames.jsonl", tmp_path / "figures.json"
    files = ["--frames-out", str(frames), "--json", str(figures)]
    whole = ["--until-end", "--sources", "2", "--repeats", "1", paced]
    assert invoke(["bench", "run", *whole, *_LOAD, *files]) == 0
    (run,) = read(figures).cases[0].repeats[0]
    rows = [*read_frames(frames)]
    totals = np.array([row.latency.total / 1e6 for row in rows if row.latency])
    assert (run.captured, run.published) == (len(rows), len(totals))
    assert run.captured == 2 * 8 * 15  # of the drawn street
    assert sum(run.histogram.counts) == len(totals)
    found = run.stages_ms["captured to sent"]
    for name, rank in RANKS.items():
        assert found[name] == pytest.approx(np.percentile(totals, rank), abs=0.001), name
    if paced == "--lossless":  # else it counts from when frames were due
        counts, _ = np.histogram(totals, run.histogram.edges_ms)
        assert np.abs(counts - run.histogram.counts).sum() <= 2  # edges are written with five digits
    for row in run.by_source.values():
        assert row.p99_ms is None or row.p99_ms <= run.latency_ms["max"]


@pytest.mark.parametrize("kind", ["grid/search"])
def test_a_grid_is_resumed(report: Report, made: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Cases in the file are not measured again; a file of another search is not changed."""
    assert [case.load["batch"] for case in report.cases] == [1, 4]
    again = ["bench", "search", *_GRID, "--out", str(made / "grid")]
    assert invoke(again) == 0
    assert read(made / f"{kind}.json").cases == report.cases
    assert invoke([*again[:-1], str(made / "most")]) == 2
    assert "is of another recording" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["peers/run"])
def test_peers_have_notes(report: Report) -> None:
    found = {peer.name: peer for peer in report.peers}
    assert found["OpenCV + onnxruntime"].fps[0] > 0
    assert "in batches of 2" in found["OpenCV + onnxruntime"].note
    assert "not run" in found["limits"].note
    assert "not run: /nowhere/python: No such file" in found["ultralytics-engine"].note
    assert "not run: not asked for: see --roboflow-python" in found["roboflow"].note


def test_copies_are_summed(tmp_path: Path) -> None:
    """Two concurrent daemons: a run of each, with every frame of both."""
    share = ["--copies", "2", "--paced", "--repeats", "1", "--json", str(tmp_path / "both.json")]
    assert invoke(["bench", "run", "--sources", "2", *_LOAD, *share]) == 0
    both = read(tmp_path / "both.json").cases[0]
    assert [len(runs) for runs in both.repeats] == [2]
    assert both.value("fps") == pytest.approx(sum(run.fps for run in both.repeats[0]))
    assert all(run.fps > 0 and run.unaccounted == 0 and run.received_share == 1 for run in both.repeats[0])
    # Each divided the energy of the one GPU, 60 J, by its own frames: 10 and 20.
    measured = [replace(run, joules_per_frame=joules) for run, joules in zip(both.repeats[0], (6.0, 3.0))]
    assert replace(both, repeats=[measured]).value("joules") == pytest.approx(60 / 30)


def test_a_report_can_be_rendered_again(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its medians are printed."""
    assert invoke(["bench", "report", str(made / "run.json"), "--out", str(tmp_path)]) == 0
    case = read(made / "run.json").cases[0]
    printed = capsys.readouterr().out
    for name in ("fps", "p50", "p99", "cpu", "rss"):
        assert f" {number(case.value(name))} " in printed, name
    for suffix in ("json", "md", "html"):
        assert (tmp_path / f"run.{suffix}").read_bytes() == (made / f"run.{suffix}").read_bytes()
    assert (made / "figures.json").read_bytes() == (made / "run.json").read_bytes()


def test_recordings_are_compared(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = made / "frames.parquet"
    assert any(True for _ in read_frames(frames))
    assert invoke(["bench", "compare", str(frames), str(frames)]) == 0
    assert "100.0000% of the boxes agree" in capsys.readouterr().out
    other = tmp_path / "other.jsonl"
    live = ["--sources", "1", "--paced", "--repeats", "1", *_LOAD]
    assert invoke(["bench", "run", *live, "--frames-out", str(other)]) == 0
    assert invoke(["bench", "compare", str(frames), str(other)]) == 0
    moved = re.sub(r'"box":\[([\d.]+)', lambda found: f'"box":[{float(found[1]) + 40}', other.read_text())
    other.write_text(moved)
    assert invoke(["bench", "compare", str(frames), str(other)]) == 1
    assert "clip-0" in capsys.readouterr().out


def test_compare_needs_enough_repeats_to_tell(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "compare", str(made / "run.json"), str(made / "run.json")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "unknown" in said
    assert "1 repeats of a case: at least 5 of each are needed to tell" in said
    assert "p99" not in said  # of a closed loop
    assert invoke(["bench", "compare", str(made / "run.json"), str(made / "grid/search.json")]) == 2
    assert "nothing to compare" in capsys.readouterr().err
    assert invoke(["bench", "compare", str(made / "run.json"), str(made / "frames.parquet")]) == 2
    assert "give two reports" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "gone.json"], "gone.json cannot be read: No such file"),
        (["run", "gone.mp4"], "cannot open gone.mp4: No such file"),
        (["run", "/dev/null"], "/dev/null is a pipe or a device, and not a file"),
        (["run", "rtsp://camera.invalid/1", "--until-end", "--paced"], "is live and has no end: use --paced"),
        (["run", "--json", "gone/figures.json"], "gone/figures.json cannot be written: the folder gone does not exist"),
        (["run", "--frames-out", "gone/frames.jsonl"], "gone/frames.jsonl cannot be written: the folder gone"),
        (
            ["run", "--out", "/dev/null/report"],
            "/dev/null/report cannot be written: /dev/null is something else, and not a folder",
        ),
        (["run", "--frames-out", "frames.csv"], "must end in .jsonl or .parquet"),
        (["run", "--images", "photos"], "--images and --annotations go together"),
        (["run", "--snapshots", "folder"], "--snapshots needs --analytics"),
        (["run", "--sources", "1", "--repeats", "2", "--model", "gone.onnx"], "gone.onnx cannot be read"),
        (["search", "--sources", "2"], "give either --over, such as --over batch=1,2,4, or --most sources"),
        (["search", "--over", "batch=1,x"], "'x' is not a valid integer range"),
        (["search", "--over", "batch=0"], "0 is not in the range 1<=x<=256"),
        (["search", "--over", "precision=int3"], "'int3' is not one of 'auto', 'fp32', 'fp16', 'int8', 'fp8'"),
        (["search", "--over", "colour=red"], "'colour' is not a setting: choose from batch, lanes, sources"),
        (["compare", "gone.jsonl", "gone.jsonl"], "gone.jsonl cannot be read"),
        (["compare", "gone.json", "gone.jsonl"], "give two reports (.json), or two recordings"),
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


def test_a_broken_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "run.json"
    broken.write_text('{"kind": "run"}')
    assert invoke(["bench", "compare", str(broken), str(broken)]) == 2
    assert "is not a file of lookout bench" in capsys.readouterr().err
