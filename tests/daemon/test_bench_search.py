"""Searches over loads with known figures: the most sources, confirmation, and resumed grids."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.bench.load import Load
from daemon.bench.pages import page_of
from daemon.bench.result import Constraints
from daemon.bench.run import Run
from daemon.bench.search import combinations, grid, largest, max_met, most_sources
from daemon.errors import LookoutError
from tests.support.figures import run_of


@given(limit=st.integers(0, 2000), start=st.integers(1, 2000), step=st.integers(1, 20))
def test_the_largest_number_is_found_within_a_step(limit: int, start: int, step: int) -> None:
    tried: list[int] = []

    def holds(number: int) -> bool:
        tried.append(number)
        return number <= limit

    found = largest(start, step, holds)
    assert found <= limit < found + step
    assert len(tried) == len(set(tried))
    assert 0 not in tried


@pytest.mark.parametrize(("limit", "tries"), [(152, 10), (0, 9)])
def test_the_search_takes_few_tries(limit: int, tries: int) -> None:
    count = 0

    def holds(number: int) -> bool:
        nonlocal count
        count += 1
        return number <= limit

    largest(150, 2, holds)
    assert count <= tries


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """A clip of any content."""
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"frames")
    return path


class Machine:
    """Serves 156 sources for 12 s and 150 for two minutes, like a GPU whose decoder was 99.6 % busy.

    Attributes:
        tried: sources and seconds of each run.
    """

    def __init__(self, longest: int = 150) -> None:
        self._longest = longest
        self.tried: list[tuple[int, float]] = []

    def __call__(self, load: Load) -> list[Run]:
        self.tried.append((load.sources, load.seconds))
        assert load.paced
        lost = load.sources > (156 if load.seconds <= 12 else self._longest)
        figures = {"p50": 5.0, "p99": 12.0, "dropped": 0.0054 if lost else 0.0}
        return [run_of(figures, load.sources)]


def test_a_result_that_fails_confirmation_is_stepped_down(clip: Path) -> None:
    machine = Machine()
    report = most_sources(
        Load((clip,), sources=153, seconds=12.0), Constraints(confirm_s=120.0), step=3, measure=machine
    )
    assert machine.tried[-3:] == [(156, 120.0), (153, 120.0), (150, 120.0)]
    assert max(sources for sources, seconds in machine.tried if seconds == 12.0) > 156
    assert max_met(report) == 150
    assert page_of(report).tiles[0][1] == "150"
    rows = {(row[0], row[1]): row[2] for row in page_of(report).tables[0].rows}
    assert (rows["156", "12"], rows["156", "120"], rows["150", "120"]) == ("holds", "does not hold", "holds")


def test_an_unconfirmed_result_is_zero(clip: Path) -> None:
    machine = Machine(longest=0)
    report = most_sources(Load((clip,), sources=9, seconds=12.0), Constraints(confirm_s=120.0), step=3, measure=machine)
    assert machine.tried[-1] == (3, 120.0)
    assert max_met(report) == 0


def test_without_confirmation_the_best_run_counts(clip: Path) -> None:
    machine = Machine()
    report = most_sources(Load((clip,), sources=153, seconds=12.0), Constraints(), step=3, measure=machine)
    assert max_met(report) == 156
    assert {seconds for _, seconds in machine.tried} == {12.0}


@pytest.mark.parametrize(
    ("figures", "met"),
    [
        ({"p50": 15.0, "p99": 40.0, "dropped": 0.001}, True),
        ({"p50": 15.1, "p99": 40.0}, False),
        ({"p50": 15.0, "p99": 40.1}, False),
        ({"p50": 15.0, "p99": 40.0, "dropped": 0.0011}, False),
    ],
)
def test_constraints_are_met_or_not(figures: dict[str, float], met: bool) -> None:
    assert Constraints().met(run_of(figures)) is met


def test_a_larger_batch_needs_another_engine() -> None:
    found = combinations(Load((), max_batch=8), {"batch": [4, 16], "lanes": [1, 2]})
    assert [(load.batch, load.lanes, load.max_batch) for load in found] == [
        (4, 1, 8), (16, 1, 16), (4, 2, 8), (16, 2, 16),
    ]  # fmt: skip


def test_a_grid_is_resumed(clip: Path, tmp_path: Path) -> None:
    """Failed cases are tried again; a file of another model, clip or search is not changed."""
    file, tried = tmp_path / "search.json", list[int]()

    def measure(load: Load) -> list[Run]:
        tried.append(load.lanes)
        if load.lanes == 2 and len(tried) == 2:
            raise LookoutError("no memory")
        return [run_of({"fps": 100.0 * load.lanes}, load.sources)]

    load = Load((clip,), sources=2)
    first = grid(load, {"lanes": [1, 2]}, file, measure=measure)
    assert [case.failed for case in first.cases] == [None, "no memory"]
    second = grid(load, {"lanes": [1, 2, 4]}, file, measure=measure)
    assert tried == [1, 2, 2, 4]
    assert [case.value("fps") for case in second.cases] == [100, 200, 400]
    clip.write_bytes(b"others")
    with pytest.raises(LookoutError, match="is of another recording"):
        grid(load, {"lanes": [1]}, file, measure=measure)
    assert tried == [1, 2, 2, 4]
