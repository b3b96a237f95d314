"""Searches: a grid of settings, or the largest number of live sources that meets constraints.

Each try is a run in a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from daemon.bench.load import Load
from daemon.bench.repeats import runs_of
from daemon.bench.result import Case, Constraints, Report, environment_of, read, settings_of, write
from daemon.bench.run import Run
from daemon.errors import LookoutError

SETTINGS = ("batch", "lanes", "sources", "precision", "processes", "decode", "threads")
_KNEE = 0.95
Measure = Callable[[Load], list[Run]]


def combinations(load: Load, over: Mapping[str, Sequence[Any]]) -> list[Load]:
    """All combinations of values of some fields of a load; the first field changes fastest."""
    names = [*over][::-1]
    rows = product(*(over[name] for name in names))
    return [_with_engine_batch(replace(load, **dict(zip(names, row)))) for row in rows]


def grid(
    load: Load,
    over: Mapping[str, Sequence[Any]],
    file: Path,
    *,
    repeats: int = 1,
    on_case: Callable[[Case], None] = lambda _: None,
    measure: Measure = runs_of,
) -> Report:
    """Measure the cases that the file lacks, and write it after each.

    A failed case, such as one out of memory, is noted and does not end the search.

    Raises:
        LookoutError: the file belongs to another search, or cannot be written.
    """
    report = _earlier(file, Report("search", environment_of(load), []), repeats)
    for tried in combinations(load, over):
        case = next((case for case in report.cases if case.load == settings_of(tried)), None)
        if case is None:
            try:
                case = Case(settings_of(tried), [measure(tried) for _ in range(repeats)])
            except LookoutError as error:
                case = Case(settings_of(tried), failed=str(error))
            report.cases.append(case)
            write(file, report)
        on_case(case)
    return report


def _earlier(file: Path, report: Report, repeats: int) -> Report:
    """The report with the file's earlier cases."""
    if not file.exists():
        return report
    earlier = read(file)
    if (earlier.kind, earlier.constraints) != ("search", None) or _conditions(earlier) != _conditions(report):
        raise LookoutError(
            f"{file} is of another recording, model, machine, version or search: use another --out, or remove it"
        )
    kept = [case for case in earlier.cases if case.failed is None and len(case.repeats) >= repeats]
    return replace(report, cases=kept)


def _conditions(report: Report) -> tuple[object, ...]:
    """Conditions that figures depend on beside settings."""
    on = report.environment
    return on.files, on.packages, on.gpu


def knee(cases: Sequence[Case]) -> Case | None:
    """The smallest batch with a throughput within 5 % of the best among cases that differ only in it."""
    known = [case for case in cases if case.value("fps") is not None]
    best = max((case.value("fps") or 0.0 for case in known), default=0.0)
    return min((case for case in known if (case.value("fps") or 0.0) >= _KNEE * best), key=batch_of, default=None)


def batch_of(case: Case) -> int:
    """The largest batch that lanes use."""
    return int(case.load["batch"] or case.load["max_batch"])


def _with_engine_batch(load: Load) -> Load:
    """The load, with an engine large enough for its batch."""
    return replace(load, max_batch=load.batch) if load.batch and load.batch > load.max_batch else load


def most_sources(
    load: Load,
    constraints: Constraints,
    step: int,
    *,
    on_case: Callable[[Report], None] = lambda _: None,
    measure: Measure = runs_of,
) -> Report:
    """Find the largest number of sources that meets the constraints, within `step`, starting from the load's number.

    The result is confirmed for `confirm_s`; if that fails, smaller numbers are tried, a step less each.

    Args:
        on_case: gets the report with each further case.

    Raises:
        LookoutError: a run failed.
    """
    report = Report("search", environment_of(load), [], constraints=constraints)

    def holds(sources: int, seconds: float = load.seconds) -> bool:
        tried = replace(load, sources=sources, paced=True, seconds=seconds)
        runs = measure(tried)
        report.cases.append(Case(settings_of(tried), [runs], kept=constraints.met(runs[0])))
        on_case(report)
        return bool(report.cases[-1].kept)

    found = largest(load.sources, step, holds)
    if constraints.confirm_s > load.seconds:
        while found > 0 and not holds(found, constraints.confirm_s):
            found -= step
    return report


def max_met(report: Report) -> int:
    """The largest number of sources that met the constraints for the whole confirmation; 0 if none did."""
    seconds = report.constraints.confirm_s if report.constraints else 0.0
    return max((int(case.load["sources"]) for case in report.cases
                if case.kept and case.load["seconds"] >= seconds), default=0)  # fmt: skip


def largest(start: int, step: int, holds: Callable[[int], bool]) -> int:
    """The largest number that passes, within a step; smaller numbers are assumed to pass too."""
    good, bad, number, stride = 0, 0, start, step
    while not bad or bad - good > step:
        if holds(number):
            good = number
        else:
            bad = number
        if good and bad:
            number = (good + bad) // 2
        else:
            number = max(1, number + stride if good else number - stride)
            stride *= 2
    return good
