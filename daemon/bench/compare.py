"""Comparison of two reports: better, worse, or the same as far as the repeats can tell.

Latencies are compared for paced sources only: without pace they tell how many frames wait, not how long one takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from statistics import median
from typing import Literal

from daemon.bench.result import METRICS, Case, Report
from daemon.errors import LookoutError

Result = Literal["better", "worse", "same", "unknown"]
_ALPHA = 0.05
_DRIFT = 3.0
"""Factor of the noise for a significant difference. Repeats are made within minutes, in which a machine varies less
than between reports; the factor allows for a variation as large as the noise itself."""
_COMPARED = ("fps", "p50", "p99", "cpu", "rss", "joules")
_QUEUE_METRICS = ("p50", "p99")  # of the queue's length, without pace
MIN_REPEATS = 5  # for significance of six metrics
_MAX_REPEATS = 8  # of each side that are compared: 12,870 ways to split them


@dataclass(frozen=True)
class Change:
    """One metric of one case.

    Attributes:
        model: the name of one of several; None for all together.
        old, new: medians of the repeats.
        ratio: new over old; None if the old is 0.
        chance: probability of a difference as large by chance, by a rank test.
        noise: range of the repeats over their median, without the farthest repeat; the noisier side's.
    """

    case: dict[str, object]
    model: str | None
    metric: str
    old: float
    new: float
    ratio: float | None
    chance: float
    noise: float
    result: Result


def compare_reports(old: Report, new: Report, minimum: float = 0.02) -> list[Change]:
    """Compare each metric of each case that both reports have: of all models together, and of each of several.

    A metric differs if a rank test gives a probability under 0.05, divided by the number of these metrics, and if the
    difference is over three times the noise and over `minimum` of the old value. With fewer than five repeats:
    "unknown".

    Raises:
        LookoutError: no case in common.
    """
    pairs = [(case, other) for case in old.cases for other in new.cases if _is_same_case(case, other)]
    if not pairs:
        raise LookoutError("nothing to compare: no case is in both files")
    changes = []
    for case, other in pairs:
        for model in (None, *case.models):
            changes += _changes(case, other, model, minimum)
    return changes


def _changes(case: Case, other: Case, model: str | None, minimum: float) -> list[Change]:
    names = [name for name in _COMPARED if case.load["paced"] or name not in _QUEUE_METRICS]
    both = {name: (case.values(name, model), other.values(name, model)) for name in names}
    measured = {name: sides for name, sides in both.items() if all(sides)}
    level = _ALPHA / max(1, len(measured))
    return [_change(case, model, name, sides, level, minimum) for name, sides in measured.items()]


def too_few(old: Report, new: Report) -> str | None:
    """Why there are too few repeats; None if there are enough."""
    repeats = min(len(case.repeats) for report in (old, new) for case in report.cases)
    if repeats >= MIN_REPEATS:
        return None
    return f"{repeats} repeats of a case: at least {MIN_REPEATS} of each are needed to tell"


def chance_of(old: Sequence[float], new: Sequence[float]) -> float:
    """Two-sided Mann-Whitney probability of the rank sum, by counting all splits."""
    everything = [*old, *new]
    ranks = [
        sum(other < value for other in everything) + (sum(other == value for other in everything) + 1) / 2
        for value in everything
    ]
    expected = len(old) * (len(everything) + 1) / 2
    seen = abs(sum(ranks[: len(old)]) - expected) - 1e-9
    ways = [abs(sum(picked) - expected) >= seen for picked in combinations(ranks, len(old))]
    return sum(ways) / len(ways)


def _change(
    case: Case, model: str | None, name: str, sides: Sequence[Sequence[float]], level: float, minimum: float
) -> Change:
    old, new = (side[:_MAX_REPEATS] for side in sides)
    before, after = median(old), median(new)
    ratio = after / before if before else None
    chance = chance_of(old, new)
    noise = max(_noise(old), _noise(new))
    result: Result = "same"
    if 2 / comb(len(old) + len(new), len(old)) > level:  # the lowest possible chance
        result = "unknown"
    elif chance <= level and abs(after - before) > max(minimum, _DRIFT * noise) * abs(before):
        result = "better" if (after > before) == (METRICS[name].sign > 0) else "worse"
    return Change(case.load, model, name, before, after, ratio, round(chance, 4), round(noise, 4), result)


def _is_same_case(case: Case, other: Case) -> bool:
    return case.copies == other.copies and bool(case.repeats) and bool(other.repeats) and case.load == other.load


def _noise(values: Sequence[float]) -> float:
    """The range over the median, without the farthest repeat, in which something else may have happened."""
    middle = median(values)
    near = sorted(values, key=lambda value: abs(value - middle))[: max(2, len(values) - 1)]
    return (max(near) - min(near)) / abs(middle) if middle else 0.0
