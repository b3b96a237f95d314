"""When two results are the same, and when they are not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.bench.compare import chance_of, compare
from daemon.bench.result import Case, Report, read
from daemon.bench.sweep import batch_of, knee
from tests.support.daemon import ROOT
from tests.support.figures import Given, report, with_figures

_METRICS = ("fps", "p50", "p99", "cpu", "rss", "joules")


def noisy(rng: np.random.Generator, factor: float = 1.0) -> dict[str, list[float]]:
    return {name: (100 * factor * (1 + 0.03 * rng.standard_normal(5))).tolist() for name in _METRICS}


def test_the_same_thing_is_the_same_in_19_of_20() -> None:
    """Six metrics with a noise of 3 %, of which none may be called better or worse."""
    rng = np.random.default_rng(5)
    same = [
        all(change.verdict == "same" for change in compare(report(noisy(rng)), report(noisy(rng)))) for _ in range(400)
    ]
    assert sum(same) / len(same) >= 0.95


def test_a_machine_that_changes_between_reports_is_borne() -> None:
    """By as much as its repeats spread, all figures together; what is ten times that is found all the same."""
    rng = np.random.default_rng(7)

    def drifting(factor: float = 1.0) -> Report:
        level = factor * (1 + 0.03 * rng.standard_normal())
        speeds = level * (1 + 0.03 * rng.standard_normal(5))
        return report({name: (100 * speeds * (1 + 0.003 * rng.standard_normal(5))).tolist() for name in _METRICS})

    def is_same(old: Report, new: Report) -> bool:
        return all(change.verdict == "same" for change in compare(old, new))

    assert sum(is_same(drifting(), drifting()) for _ in range(400)) >= 0.95 * 400
    assert sum(is_same(drifting(), drifting(1.3)) for _ in range(100)) <= 5


def test_a_difference_beyond_the_noise_is_told_by_its_sign() -> None:
    old = {"fps": [100, 101, 99, 100.5, 99.5], "p99": [10, 10.1, 9.9, 10, 10.2]}
    new = {"fps": [95, 95.5, 94.5, 95.2, 94.8], "p99": [9, 9.1, 8.9, 9, 9.2]}
    verdicts = {change.metric: change.verdict for change in compare(report(old), report(new))}
    assert verdicts == {"fps": "worse", "p99": "better"}


def test_one_odd_repeat_does_not_hide_a_difference() -> None:
    """As they were measured of a lane that was made 5 % slower."""
    old = {"p50": [173.1, 174.6, 174.8, 173.9, 174.7]}
    new = {"p50": [183.7, 182.4, 193.5, 183.3, 182.9]}
    assert compare(report(old), report(new))[0].verdict == "worse"


def test_a_difference_too_small_to_matter_is_none() -> None:
    old, new = {"fps": [100.0, 100.1, 100.2, 100.3, 100.4]}, {"fps": [101.0, 101.1, 101.2, 101.3, 101.4]}
    assert compare(report(old), report(new))[0].verdict == "same"
    assert compare(report(old), report(new), least=0.005)[0].verdict == "better"


@pytest.mark.parametrize(("count", "verdict"), [(3, "unknown"), (4, "worse"), (5, "worse")])
def test_few_repeats_cannot_tell(count: int, verdict: str) -> None:
    old, new = [100.0, 101, 102, 103, 104][:count], [50.0, 51, 52, 53, 54][:count]
    assert compare(report({"fps": old}), report({"fps": new}))[0].verdict == verdict


def test_a_report_from_before_a_setting_was_made_is_read_as_if_it_had_its_default(tmp_path: Path) -> None:
    """Otherwise no new report could be compared with it."""
    written = json.loads((ROOT / "docs/benchmarks/h200/full-28-hevc.json").read_text())
    written["cases"][0]["load"].pop("admission", None)
    (tmp_path / "old.json").write_text(json.dumps(written))
    (case,) = read(tmp_path / "old.json").cases
    assert case.load["admission"] == "off"
    assert case.load["sources"] == 28


def test_chance_is_that_of_mann_and_whitney() -> None:
    """Of 252 ways to part ten, two are complete orders; ties share their ranks."""
    assert chance_of([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert chance_of([1, 1, 1], [1, 1, 1]) == 1.0
    assert chance_of([1, 4], [2, 3]) == 1.0


def test_the_knee_is_the_smallest_batch_near_the_best() -> None:
    rates = {1: 100.0, 2: 180.0, 4: 290.0, 8: 300.0, 16: 298.0}
    cases = [
        replace(with_figures(Case({"batch": batch, "max_batch": 16}, repeats=[[]]), {"fps": [fps]}))
        for batch, fps in rates.items()
    ]
    found = knee([Given(case.load, case.repeats) for case in cases])
    assert found is not None
    assert batch_of(found) == 4
