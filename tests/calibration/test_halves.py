"""Two halves of the same photos do not contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.calibration.halves import BUDGET, all_tallies


@pytest.mark.needs("data")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_halves_do_not_contradict_each_other(data: Path) -> None:
    """480 halves of each file. Without intervals, more than a fifth of those that pass fail on the other half."""
    rows = all_tallies(data, 240, BUDGET)
    accepted = sum(row.accepted for row in rows.values())
    contradicted = sum(row.contradicted for row in rows.values())
    int8 = [row for name, row in rows.items() if not name.endswith("fp16")]
    assert accepted > 480
    assert contradicted <= 0.05 * accepted
    assert sum(row.contradicted for row in int8) <= 0.05 * sum(row.accepted for row in int8)
    assert sum(row.failed for row in int8) > 0.2 * sum(row.passed for row in int8)
    assert all(row.accepted > 0.9 * 480 for name, row in rows.items() if name.endswith("fp16"))
