"""Comparison of reports: when two results are the same, and when they differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.bench.compare import chance_of, compare_reports
from daemon.bench.pages import page_of
from daemon.bench.result import Report, read, write
from daemon.bench.search import batch_of, knee
from daemon.cli import invoke
from daemon.errors import LookoutError
from tests.support.daemon import ROOT
from tests.support.figures import ON, case_of, report

# Reports of schema lookout.bench/1, made on an H200; each list is cut to its first members.
OLD_REPORTS = ROOT / "tests/support/reports"
_METRICS = ("fps", "p50", "p99", "cpu", "rss", "joules")


def noisy(rng: np.random.Generator, factor: float = 1.0) -> dict[str, list[float]]:
    return {name: (100 * factor * (1 + 0.03 * rng.standard_normal(5))).tolist() for name in _METRICS}


def results(old: Report, new: Report) -> dict[str, str]:
    return {change.metric: change.result for change in compare_reports(old, new)}


def test_equal_reports_are_the_same_in_19_of_20() -> None:
    """Six metrics with a noise of 3 %, none of which may count as better or worse."""
    rng = np.random.default_rng(5)
    same = [
        all(change.result == "same" for change in compare_reports(report(noisy(rng)), report(noisy(rng))))
        for _ in range(400)
    ]
    assert sum(same) / len(same) >= 0.95


def test_drift_between_reports_is_tolerated() -> None:
    """A drift of all figures as large as the spread of repeats; ten times as much is found."""
    rng = np.random.default_rng(7)

    def drifting(factor: float = 1.0) -> Report:
        level = factor * (1 + 0.03 * rng.standard_normal())
        speeds = level * (1 + 0.03 * rng.standard_normal(5))
        return report({name: (100 * speeds * (1 + 0.003 * rng.standard_normal(5))).tolist() for name in _METRICS})

    def is_same(old: Report, new: Report) -> bool:
        return all(change.result == "same" for change in compare_reports(old, new))

    assert sum(is_same(drifting(), drifting()) for _ in range(400)) >= 0.95 * 400
    assert sum(is_same(drifting(), drifting(1.3)) for _ in range(100)) <= 5


def test_a_difference_beyond_the_noise_has_a_sign() -> None:
    old = {"fps": [100, 101, 99, 100.5, 99.5], "p99": [10, 10.1, 9.9, 10, 10.2]}
    new = {"fps": [95, 95.5, 94.5, 95.2, 94.8], "p99": [9, 9.1, 8.9, 9, 9.2]}
    assert results(report(old), report(new)) == {
        "fps": "worse",
        "p99": "better",
        "p50": "same",
        "cpu": "same",
        "rss": "same",
    }


def test_one_odd_repeat_does_not_hide_a_difference() -> None:
    """Measured values of a lane that was made 5 % slower."""
    old = {"p50": [173.1, 174.6, 174.8, 173.9, 174.7]}
    new = {"p50": [183.7, 182.4, 193.5, 183.3, 182.9]}
    assert results(report(old), report(new))["p50"] == "worse"


def test_a_small_difference_is_the_same() -> None:
    old, new = {"fps": [100.0, 100.1, 100.2, 100.3, 100.4]}, {"fps": [101.0, 101.1, 101.2, 101.3, 101.4]}
    assert compare_reports(report(old), report(new))[0].result == "same"
    assert compare_reports(report(old), report(new), minimum=0.005)[0].result == "better"


@pytest.mark.parametrize(("count", "result"), [(3, "unknown"), (4, "unknown"), (5, "worse")])
def test_few_repeats_cannot_tell(count: int, result: str) -> None:
    old, new = [100.0, 101, 102, 103, 104][:count], [50.0, 51, 52, 53, 54][:count]
    assert compare_reports(report({"fps": old}), report({"fps": new}))[0].result == result


def test_latency_of_a_closed_loop_is_not_compared() -> None:
    """It tells how many frames wait, not how fast the machine is."""
    old = {"fps": [100, 101, 99, 100.5, 99.5], "p99": [10, 10.1, 9.9, 10, 10.2]}
    new = {"fps": [100, 101, 99, 100.5, 99.5], "p99": [20, 20.1, 19.9, 20, 20.2]}
    assert results(report(old), report(new))["p99"] == "worse"
    found = results(report(old, paced=False), report(new, paced=False))
    assert found == {"fps": "same", "cpu": "same", "rss": "same"}


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (0.9, 1), (1.1, 0)])
def test_a_regression_is_an_exit_code(
    factor: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metric is named on the terminal."""
    rates = [100.0, 101, 99, 100.5, 99.5]
    write(tmp_path / "old.json", report({"fps": rates}))
    write(tmp_path / "new.json", report({"fps": [factor * rate for rate in rates]}))
    assert invoke(["bench", "compare", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == code
    printed = capsys.readouterr().out
    assert ("worse" in printed, "better" in printed) == (factor < 1, factor > 1)


def test_unsteady_runs_give_a_remark() -> None:
    """With the number of unsteady runs."""
    case = case_of({"fps": [100.0] * 5})
    assert Report("run", ON, [case]).remarks == []
    runs = [run for (run,) in case.repeats]
    early = [replace(runs[0], warm_up=replace(runs[0].warm_up, steady=False)), *runs[1:]]
    drifting = [replace(run, steady=number < 2) for number, run in enumerate(runs)]
    for changed, words in (
        (early, "throughput and p99 were not steady at the start of 1 of 5 runs"),
        (drifting, "throughput or p99 was not steady during 3 of 5 runs"),
    ):
        found = Report("run", ON, [replace(case, repeats=[[run] for run in changed])])
        assert found.remarks == [f"1 sources, 2 lanes, batches up to 32: {words}"]
        assert page_of(found).remarks == found.remarks


def test_other_settings_are_not_compared() -> None:
    """Nor sources that start together with sources at random offsets."""
    old, new = (Report("run", ON, [case_of({"fps": [100.0]}, phase=phase)]) for phase in (0.0, 2.0))
    with pytest.raises(LookoutError, match="nothing to compare"):
        compare_reports(old, new)


def test_missing_settings_of_old_reports_have_their_defaults(tmp_path: Path) -> None:
    """Otherwise no new report could be compared with an old one."""
    written = json.loads((OLD_REPORTS / "replay.json").read_text())
    written["cases"][0]["load"].pop("admission", None)
    (tmp_path / "old.json").write_text(json.dumps(written))
    (case,) = read(tmp_path / "old.json").cases
    assert case.load["admission"] == "off"
    assert (case.load["sources"], case.load["clips"]) == (28, ["Retail02_short.mp4"])
    assert case.load["phase"] == 0  # all sources began at their clip's first picture


@pytest.mark.parametrize(
    ("name", "kind", "peers"),
    [
        ("replay", "run", 0),
        ("copies", "run", 0),
        ("peers", "run", 4),
        ("sweep", "search", 0),
    ],
)
def test_reports_of_version_1_are_read(name: str, kind: str, peers: int) -> None:
    found = read(OLD_REPORTS / f"{name}.json")
    assert (found.kind, len(found.peers), found.schema) == (kind, peers, "lookout.bench/2")
    assert all(case.value("fps") for case in found.cases)
    assert page_of(found).tables[0].rows


def test_a_source_search_of_version_1_is_read(tmp_path: Path) -> None:
    written = json.loads((OLD_REPORTS / "sweep.json").read_text())
    written |= {"kind": "capacity", "promise": {"dropped_percent": 0.1, "p50_ms": 15.0, "p99_ms": 40.0}}
    (tmp_path / "old.json").write_text(json.dumps(written))
    found = read(tmp_path / "old.json")
    assert found.kind == "search"
    assert found.constraints is not None
    assert (found.constraints.p99_ms, found.constraints.confirm_s) == (40.0, 0.0)


def test_chance_agrees_with_mann_whitney() -> None:
    """Two of 252 splits of ten are complete orders; ties share their ranks."""
    assert chance_of([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert chance_of([1, 1, 1], [1, 1, 1]) == 1.0
    assert chance_of([1, 4], [2, 3]) == 1.0


def test_the_knee_is_the_smallest_batch_near_the_best() -> None:
    rates = {1: 100.0, 2: 180.0, 4: 290.0, 8: 300.0, 16: 298.0}
    found = knee([case_of({"fps": [fps]}, batch=batch, max_batch=16) for batch, fps in rates.items()])
    assert found is not None
    assert batch_of(found) == 4


def test_percentiles_show_the_share_of_unpublished_frames() -> None:
    """One cell has both."""
    whole, lossy = (
        page_of(Report("run", ON, [case_of({"p50": [8.8], "p99": [14.0], "dropped": [share]})]))
        for share in (0.0, 0.229)
    )
    assert ("latency p99", "14", "ms") in whole.tiles
    assert ("latency p99", "14 of published; 22.9 % never published", "ms") in lossy.tiles
    cells = {row[0]: row[2] for row in lossy.tables[0].rows}
    assert cells["latency p50"] == "8.8 of published; 22.9 % never published"
    assert cells["throughput"] == "100"
