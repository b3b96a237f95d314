"""Two reports: whether the new one is better, worse, or the same as far as the repeats can tell.

Latencies are compared where sources are paced. Elsewhere they say how many frames wait, and not how long one takes.
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

Verdict = Literal["better", "worse", "same", "unknown"]
_ALPHA = 0.05
_DRIFT = 3.0
"""Times the noise that a difference must be. The repeats of a report are made within a minute or two, in which a
machine changes less than from one report to the next: this bears a change as large as the noise itself."""
_COMPARED = ("fps", "p50", "p99", "cpu", "rss", "joules")
_OF_THE_QUEUE = ("p50", "p99")  # in a closed loop
_FEWEST = 5  # repeats by which six metrics can be told apart
_MOST = 8  # repeats of each side that are looked at: there are 12,870 ways to part them


@dataclass(frozen=True)
class Change:
    """One metric of one case.

    Attributes:
        old, new: medians of the repeats.
        ratio: new over old; None if the old is 0.
        chance: that two results of one and the same thing differ by as much, as far as their order tells.
        noise: from the least to the most of the repeats but the one that is farthest from their median, over that; of
            the side that has more.
    """

    case: dict[str, object]
    metric: str
    old: float
    new: float
    ratio: float | None
    chance: float
    noise: float
    verdict: Verdict


def compare_reports(old: Report, new: Report, least: float = 0.02) -> list[Change]:
    """Metric by metric, for every case that both have.

    A metric differs if ranks say that chance would bring it about in fewer than one of twenty comparisons, all metrics
    taken together, and if it differs by more than three times the noise, and by more than `least` of the old. With too
    few repeats, fewer than five of each for six metrics, there is no telling: "unknown".

    Raises:
        LookoutError: they have no case in common.
    """
    pairs = [(case, other) for case in old.cases for other in new.cases if _alike(case, other)]
    if not pairs:
        raise LookoutError("nothing to compare: no configuration is in both files")
    changes = []
    for case, other in pairs:
        names = [name for name in _COMPARED if case.load["paced"] or name not in _OF_THE_QUEUE]
        both = {name: (case.values(name), other.values(name)) for name in names}
        measured = {name: sides for name, sides in both.items() if all(sides)}
        changes += [_change(case, name, *sides, len(measured), least) for name, sides in measured.items()]
    return changes


def too_few(old: Report, new: Report) -> str | None:
    """Why there is no telling, None if there may be."""
    fewest = min(len(case.repeats) for report in (old, new) for case in report.cases)
    return f"{fewest} repeats of a case: at least {_FEWEST} of each are needed to tell" if fewest < _FEWEST else None


def chance_of(old: Sequence[float], new: Sequence[float]) -> float:
    """Two-sided, of the rank sum being as far from its mean (Mann and Whitney), by counting all ways to part them."""
    everything = [*old, *new]
    ranks = [
        sum(other < value for other in everything) + (sum(other == value for other in everything) + 1) / 2
        for value in everything
    ]
    expected = len(old) * (len(everything) + 1) / 2
    seen = abs(sum(ranks[: len(old)]) - expected) - 1e-9
    ways = [abs(sum(picked) - expected) >= seen for picked in combinations(ranks, len(old))]
    return sum(ways) / len(ways)


def _change(case: Case, name: str, old: Sequence[float], new: Sequence[float], metrics: int, least: float) -> Change:
    old, new = old[:_MOST], new[:_MOST]
    before, after = median(old), median(new)
    ratio = after / before if before else None
    chance = chance_of(old, new)
    level, noise = _ALPHA / metrics, max(_noise(old), _noise(new))
    verdict: Verdict = "same"
    if 2 / comb(len(old) + len(new), len(old)) > level:  # the least that chance can be
        verdict = "unknown"
    elif chance <= level and abs(after - before) > max(least, _DRIFT * noise) * abs(before):
        verdict = "better" if (after > before) == (METRICS[name].sign > 0) else "worse"
    return Change(case.load, name, before, after, ratio, round(chance, 4), round(noise, 4), verdict)


def _alike(case: Case, other: Case) -> bool:
    return case.copies == other.copies and bool(case.repeats) and bool(other.repeats) and case.load == other.load


def _noise(values: Sequence[float]) -> float:
    """One repeat in which something else happened must not hide what all others tell."""
    middle = median(values)
    near = sorted(values, key=lambda value: abs(value - middle))[: max(2, len(values) - 1)]
    return (max(near) - min(near)) / abs(middle) if middle else 0.0
