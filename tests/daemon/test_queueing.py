"""More frames than the detector can do: how old they get, who gets how many, and what benchmarks make of it.

Everything happens on a clock that is moved by hand, see `tests.support.simulation`, so that figures are exact.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from daemon.config.sources import SyntheticConfig
from daemon.control.admission import Admission
from daemon.sources.port import DecodeBudget, Picture
from daemon.sources.synthetic import SyntheticReader, SyntheticSource
from tests.support.simulation import Simulation


def _streets(*rates: float) -> list[SyntheticConfig]:
    return [SyntheticConfig(id=f"cam-{n}", seed=n, width=32, height=32, fps=fps) for n, fps in enumerate(rates)]


@pytest.mark.parametrize("max_batch", [8, 3])
def test_latency_is_bounded_and_equal_sources_get_equal_shares(max_batch: int) -> None:
    """Eight sources at 30 frames/s on a detector that does 75 or 28: no frame is looked at that is older than the time
    between two of them, however many there are too many; of what is left out every source bears its part."""
    service = 0.107
    with Simulation(_streets(*[30.0] * 8), lambda _: service, max_batch=max_batch) as simulation:
        simulation.run(20)
        counts = simulation.ledger.counts().values()
        latency = simulation.rowset(simulation.window(), paced=True).latency()
    assert 1000 * service < latency["max"] <= 1000 * (service + 1 / 30) + 0.001
    assert sum(count.published for count in counts) == max_batch * len(simulation.served)
    assert sum(count.dropped.superseded for count in counts) > 20 * (240 - 75)
    assert sum(count.dropped.stale for count in counts) == 0
    shares = [count.published for count in counts]
    assert max(shares) - min(shares) <= 1
    assert max(count.in_flight for count in counts) <= 1


def test_a_slow_source_loses_nothing_to_quick_ones() -> None:
    """What asks for less than its share has all it asks for."""
    with Simulation(_streets(30, 30, 2), lambda _: 0.1, max_batch=3) as simulation:
        simulation.run(20)
        quick, other, slow = simulation.ledger.counts().values()
    assert (slow.captured, slow.published) == (41, 41 - slow.in_flight)
    assert slow.dropped.superseded == 0
    assert abs(quick.published - other.published) <= 1
    assert quick.dropped.superseded > 300


def test_degrade_drops_by_rate_and_shares_equally() -> None:
    """Eight sources of 30 frames/s on a detector that does 80: each gets its eighth of nine tenths of that by rate
    limit, before frames are converted; hardly any is superseded, and each source says so."""
    admission = Admission("degrade", capacity=80)
    with Simulation(_streets(*[30.0] * 8), lambda _: 0.1, admission=admission) as simulation:
        simulation.run(20)
        counts = simulation.ledger.counts().values()
    assert Counter(count.published for count in counts) == {9 * 20: 8}
    assert all(count.dropped.rate_limit == pytest.approx(21 * 20, abs=1) for count in counts)
    assert sum(count.dropped.superseded for count in counts) <= 8
    assert set(simulation.reasons.values()) == {"limited to 9.0 frames/s: the detector does 80 in all"}
    assert len(simulation.reasons) == 8


class _Bursts(SyntheticSource):
    """Three pictures at once, as a camera with B-frames sends them, each at its own time by its own clock."""

    def open(self, budget: DecodeBudget | None = None) -> SyntheticReader:
        config = self._config

        class Reader(SyntheticReader):
            def read(self) -> Picture | None:
                number = self._number
                picture = super().read()
                begin = number // 3 * 3e9 / config.fps
                return picture and msgspec.structs.replace(picture, pts=round(begin + number % 3 * 1e6), in_burst=True)

        return Reader(config)


@pytest.mark.parametrize(("service", "lost"), [(0.010, 0.0), (0.020, 0.0), (0.2, 0.5)])
def test_pictures_that_come_in_bursts_are_not_lost_while_the_lane_is_idle(service: float, lost: float) -> None:
    """10 frames/s, which a lane that needs 20 ms for one is a fifth full of; one that cannot do all drops as ever."""
    with Simulation(_streets(10.0), lambda _: service, max_batch=1, make=_Bursts) as simulation:
        simulation.run(30)
        counts = simulation.ledger.counts()
    (row,) = counts.values()
    assert row.dropped.superseded / row.captured == pytest.approx(lost, abs=0.02 if lost else 0)
