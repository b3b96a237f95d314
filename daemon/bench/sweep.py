"""`lookout bench sweep`: every combination of some settings; what was measured before an interruption is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from daemon.bench.apart import streams_of
from daemon.bench.load import Load
from daemon.bench.result import Case, Report, environment_of, load_of, read, write
from daemon.errors import LookoutError
from detectors.port import Precision

_KNEE = 0.95


@dataclass(frozen=True)
class Grid:
    """Values to combine; an empty one leaves the load's own."""

    batch: Sequence[int] = ()
    lanes: Sequence[int] = ()
    precision: Sequence[Precision] = ()
    sources: Sequence[int] = ()

    def loads(self, load: Load) -> list[Load]:
        """The combinations, of which the first setting changes fastest."""
        names = [name for name, values in reversed(asdict(self).items()) if values]
        rows = product(*(getattr(self, name) for name in names))
        return [_settled(replace(load, **dict(zip(names, row)))) for row in rows]


def sweep(
    load: Load,
    grid: Grid,
    file: Path,
    *,
    repeats: int = 1,
    on_case: Callable[[Case], None] = lambda _: None,
) -> Report:
    """Measure what the file does not have yet, and write it after each.

    One that fails, for lack of memory say, is noted and does not end the sweep.

    Raises:
        LookoutError: the file is of something else, or cannot be written.
    """
    environment = environment_of(load)
    cases: list[Case] = []
    if file.exists():
        earlier = read(file)
        now = (environment.files, environment.packages, environment.gpu)
        if (
            earlier.kind != "sweep"
            or (earlier.environment.files, earlier.environment.packages, earlier.environment.gpu) != now
        ):
            raise LookoutError(
                f"{file} is of another recording, model, machine or version: take another --out, or remove it"
            )
        cases = [case for case in earlier.cases if case.failed is None and len(case.repeats) >= repeats]
    known = [case.load for case in cases]
    for tried in grid.loads(load):
        written = load_of(tried)
        if written in known:
            on_case(cases[known.index(written)])
            continue
        try:
            case = Case(written, [streams_of(tried) for _ in range(repeats)])
        except LookoutError as error:
            case = Case(written, failed=str(error))
        cases.append(case)
        write(file, Report("sweep", environment, cases))
        on_case(case)
    return Report("sweep", environment, cases)


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
