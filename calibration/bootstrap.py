"""How far a measured loss of accuracy can be trusted: a paired bootstrap, and the ruling that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration.matches import Matches

Ruling = Literal["accepted", "refused", "undecided"]
FEWEST = 8  # units; fewer decide nothing
_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf(0.975)
_NEAR = 0.02  # of the budget: a drop as near to it takes thousands of times as many


@dataclass(frozen=True)
class Interval:
    """A loss against the float model, and the bounds within which the true loss lies, at 95 %.

    Attributes:
        drop: the loss that was seen; below zero where the model gains.
        sd: the standard deviation of the drop over resamples.
        units: how many independent units were resampled; `unit` names them, such as "photos".
    """

    drop: float
    low: float
    high: float
    sd: float
    units: int
    unit: str


def drop_of_ap(reference: Matches, other: Matches, seed: int, resamples: int = 1000) -> Interval:
    """The loss of COCO AP. Both models see the same resamples: what makes a photo hard is no difference between them.

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
    """The loss of the share of boxes that two models have in common, resampled by groups.

    Args:
        reference: the share without loss, 1 for the float model beside itself.
        counts: (groups, 3) boxes that are matched, missed and new.

    Boxes of one frame, and frames of one scene, are not independent of each other. The interval is never narrower than
    it would be if they were (Wilson's): a few boxes that all agree prove little.
    """
    weights = _weights(len(counts), seed, resamples)
    sums = weights @ counts
    total = sums.sum(axis=1)
    shares = np.divide(sums[:, 0], total, out=np.full(resamples, np.nan), where=total > 0)
    matched, boxes = int(counts[:, 0].sum()), int(counts.sum())
    found = _interval(reference - matched / boxes, reference - shares, len(counts), unit)
    least, most = _wilson(matched, boxes)
    low, high = min(found.low, reference - most), max(found.high, reference - least)
    return Interval(found.drop, _rounded(low), _rounded(high), found.sd, found.units, unit)


def rule(found: Interval, budget: float) -> Ruling:
    """Accepted if the loss is surely within the budget, refused if it is surely over it."""
    if found.units < FEWEST or found.low <= budget < found.high:
        return "undecided"
    return "accepted" if found.high <= budget else "refused"


def more(found: Interval, budget: float) -> int | None:
    """About how many more units would decide; None where the loss is so near the budget that no number would.

    An interval narrows with the square root of the units.
    """
    if rule(found, budget) != "undecided":
        return 0
    reach = found.high - found.drop if found.drop < budget else found.drop - found.low
    gap = abs(found.drop - budget)
    if gap <= _NEAR * budget:
        return None
    needed = max(FEWEST, ceil(found.units * (reach / gap) ** 2))
    return max(1, needed - found.units)


def _interval(drop: float, drops: NDArray[np.float64], units: int, unit: str) -> Interval:
    """Percentiles of the resamples, as much further apart as Student's t asks for where units are few."""
    known = drops[~np.isnan(drops)]
    tail = _NORMAL.cdf(-_student(units - 1) * sqrt(units / max(1, units - 1)))
    low, high = np.quantile(known, (tail, 1 - tail))
    sd = known.std(ddof=1)
    return Interval(_rounded(drop), _rounded(low), _rounded(high), _rounded(sd), units, unit)


def _rounded(value: float) -> float:
    """To four digits, as it is shown and ruled on; never -0."""
    return round(float(value), 4) + 0.0


def _weights(units: int, seed: int, resamples: int) -> NDArray[np.int64]:
    """How often each unit is drawn."""
    chance = np.random.default_rng(seed)
    return chance.multinomial(units, np.full(units, 1 / units), size=resamples)


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's t, by Cornish and Fisher's expansion; exact to 0.01 from 4 degrees of freedom."""
    z, v = _Z, max(1, freedom)
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
