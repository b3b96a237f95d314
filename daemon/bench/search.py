"""Searches: a grid of settings, or the most live sources that meet constraints, found by trying.

Each try is a run in a process of its own, with nothing left of the one before.
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
    """Of the values of some fields of a load; the first field changes fastest."""
    names = [*over][::-1]
    rows = product(*(over[name] for name in names))
    return [_settled(replace(load, **dict(zip(names, row)))) for row in rows]


def grid(
    load: Load,
    over: Mapping[str, Sequence[Any]],
    file: Path,
    *,
    repeats: int = 1,
    on_case: Callable[[Case], None] = lambda _: None,
    measure: Measure = runs_of,
) -> Report:
    """Measure what the file does not have yet, and write it after each.

    A combination that fails, for lack of memory say, is noted and does not end the search.

    Raises:
        LookoutError: the file is of something else, or cannot be written.
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
    """With the cases that the file has already."""
    if not file.exists():
        return report
    earlier = read(file)
    if (earlier.kind, earlier.constraints) != ("search", None) or _ground(earlier) != _ground(report):
        raise LookoutError(
            f"{file} is of another recording, model, machine, version or search: take another --out, or remove it"
        )
    kept = [case for case in earlier.cases if case.failed is None and len(case.repeats) >= repeats]
    return replace(report, cases=kept)


def _ground(report: Report) -> tuple[object, ...]:
    """What figures depend on that no setting says."""
    on = report.environment
    return on.files, on.packages, on.gpu


def knee(cases: Sequence[Case]) -> Case | None:
    """The smallest batch whose throughput is within 5 % of the best among cases that differ in nothing else."""
    known = [case for case in cases if case.value("fps") is not None]
    best = max((case.value("fps") or 0.0 for case in known), default=0.0)
    return min((case for case in known if (case.value("fps") or 0.0) >= _KNEE * best), key=batch_of, default=None)


def batch_of(case: Case) -> int:
    """That lanes take at most."""
    return int(case.load["batch"] or case.load["max_batch"])


def _settled(load: Load) -> Load:
    """An engine is built for so many at once; only a larger batch needs another one."""
    return replace(load, max_batch=load.batch) if load.batch and load.batch > load.max_batch else load


def most_sources(
    load: Load,
    constraints: Constraints,
    step: int,
    *,
    on_case: Callable[[Case], None] = lambda _: None,
    measure: Measure = runs_of,
) -> Report:
    """Find the most sources that meet the constraints, to within `step`, beginning with the load's own number.

    The answer is tried for `confirm_s`, and so are smaller ones, a step less each, until one holds.

    Raises:
        LookoutError: a run failed.
    """
    report = Report("search", environment_of(load), [], constraints=constraints)

    def holds(sources: int, seconds: float = load.seconds) -> bool:
        tried = replace(load, sources=sources, paced=True, seconds=seconds)
        runs = measure(tried)
        report.cases.append(Case(settings_of(tried), [runs], kept=constraints.met(runs[0])))
        on_case(report.cases[-1])
        return bool(report.cases[-1].kept)

    found = largest(load.sources, step, holds)
    if constraints.confirm_s > load.seconds:
        while found > 0 and not holds(found, constraints.confirm_s):
            found -= step
    return report


def held(report: Report) -> int:
    """The most sources that met the constraints for as long as they were to, 0 if none did."""
    least = report.constraints.confirm_s if report.constraints else 0.0
    return max((int(case.load["sources"]) for case in report.cases
                if case.kept and case.load["seconds"] >= least), default=0)  # fmt: skip


def largest(start: int, step: int, holds: Callable[[int], bool]) -> int:
    """The largest number that holds, to within a step; what holds for one is taken to hold for all below."""
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
