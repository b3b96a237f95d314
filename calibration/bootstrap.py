"""A paired bootstrap of a measured accuracy loss, and the ruling that follows from its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration.matches import Matches

Ruling = Literal["accepted", "refused", "undecided"]
MIN_UNITS = 8  # with fewer units the ruling is "undecided"
_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf(0.975)
_MIN_GAP = 0.02  # of the budget: a drop closer to it needs thousands of times as many units


@dataclass(frozen=True)
class Interval:
    """An accuracy loss against the float model, with its 95 % interval.

    Attributes:
        drop: the measured loss; below zero where the model gains.
        sd: the standard deviation of the drop over resamples.
        units: number of independent units that were resampled; `unit` names them, such as "photos".
    """

    drop: float
    low: float
    high: float
    sd: float
    units: int
    unit: str


def drop_of_ap(reference: Matches, other: Matches, seed: int, resamples: int = 1000) -> Interval:
    """The loss of COCO AP. Both models see the same resamples, so hard photos do not widen the interval.

    Args:
        reference, other: of the same photos.
    """
    units = int(reference.groups.max()) + 1
    weights = _weights(units, seed, resamples)[:, reference.groups]
    seen = np.ones(len(reference.groups), np.int64)
    drop = reference.ap(seen) - other.ap(seen)
    return _interval(drop, reference.aps(weights) - other.aps(weights), units, reference.unit)


def drop_of_share(
    reference: float, counts: NDArray[np.int64], seed: int, unit: str = "groups", resamples: int = 1000
) -> Interval:
    """The loss of the share of matched boxes, resampled by groups.

    Args:
        reference: the share without loss; 1 for the float model compared with itself.
        counts: (groups, 3) int64, boxes matched, missed and new.

    Boxes of one scene are not independent. The interval is never narrower than Wilson's, which assumes that they are:
    a few boxes that all agree prove little.
    it would be if they were (Wilson's): a few boxes that all agree prove little.
    """
    weights = _weights(len(counts), seed, resamples)
    sums = weights @ counts
    total = sums.sum(axis=1)
    shares = np.divide(sums[:, 0], total, out=np.full(resamples, np.nan), where=total > 0)
    matched, boxes = int(counts[:, 0].sum()), int(counts.sum())
    found = _interval(reference - matched / boxes, reference - shares, len(counts), unit)
    lowest, highest = _wilson(matched, boxes)
    low, high = min(found.low, reference - highest), max(found.high, reference - lowest)
    return Interval(found.drop, _rounded(low), _rounded(high), found.sd, found.units, unit)


def drop_of_hits(
    reference: NDArray[np.bool_],
    other: NDArray[np.bool_],
    groups: Sequence[str],
    seed: int,
    unit: str,
    resamples: int = 1000,
) -> Interval:
    """The loss of the share of right pictures, resampled by groups.

    Args:
        reference, other: (n,) whether each model is right about each picture.
        groups: (n,) the scene of each picture.

    The interval is never narrower than Wilson's of the pictures that only one model is right about: where no picture
    differs, a few pictures prove little.
    """
    names, places = np.unique(list(groups), return_inverse=True)
    lost, count = np.zeros(len(names)), np.zeros(len(names))
    np.add.at(lost, places, reference.astype(np.float64) - other)
    np.add.at(count, places, 1.0)
    weights = _weights(len(names), seed, resamples)
    total = len(reference)
    drop = float(lost.sum()) / total
    found = _interval(drop, (weights @ lost) / (weights @ count), len(names), unit)
    only_reference, only_other = int((reference & ~other).sum()), int((other & ~reference).sum())
    low = min(found.low, drop - (_wilson(only_other, total)[1] - only_other / total))
    high = max(found.high, drop + (_wilson(only_reference, total)[1] - only_reference / total))
    return Interval(found.drop, _rounded(low), _rounded(high), found.sd, found.units, unit)


def ruling_of(found: Interval, budget: float) -> Ruling:
    """Accepted if the whole interval is within the budget, refused if it is above, else undecided."""
    if found.units < MIN_UNITS or found.low <= budget < found.high:
        return "undecided"
    return "accepted" if found.high <= budget else "refused"


def more(found: Interval, budget: float) -> int | None:
    """An estimate of how many more units would decide; None if the loss is too close to the budget.

    The interval narrows with the square root of the number of units.
    """
    if ruling_of(found, budget) != "undecided":
        return 0
    reach = found.high - found.drop if found.drop < budget else found.drop - found.low
    gap = abs(found.drop - budget)
    if gap <= _MIN_GAP * budget:
        return None
    needed = max(MIN_UNITS, ceil(found.units * (reach / gap) ** 2))
    return max(1, needed - found.units)


def _interval(drop: float, drops: NDArray[np.float64], units: int, unit: str) -> Interval:
    """Percentiles of the resamples, widened by Student's t for few units."""
    known = drops[~np.isnan(drops)]
    tail = _NORMAL.cdf(-_student(units - 1) * sqrt(units / max(1, units - 1)))
    low, high = np.quantile(known, (tail, 1 - tail))
    sd = known.std(ddof=1)
    return Interval(_rounded(drop), _rounded(low), _rounded(high), _rounded(sd), units, unit)


def _rounded(value: float) -> float:
    """Rounded to four digits, as shown and compared; never -0."""
    return round(float(value), 4) + 0.0


def _weights(units: int, seed: int, resamples: int) -> NDArray[np.int64]:
    """How often each unit is drawn."""
    chance = np.random.default_rng(seed)
    return chance.multinomial(units, np.full(units, 1 / units), size=resamples)


def _student(degrees: int) -> float:
    """The 97.5 % point of Student's t, by Cornish and Fisher's expansion; exact to 0.01 from 4 degrees of freedom."""
    z, v = _Z, max(1, degrees)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def _wilson(hits: int, tries: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, part = hits / tries, _Z**2 / tries
    middle, reach = share + part / 2, _Z * sqrt(share * (1 - share) / tries + part / (4 * tries))
    return (middle - reach) / (1 + part), (middle + reach) / (1 + part)
