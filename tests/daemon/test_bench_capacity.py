"""How the largest number that holds is looked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.bench.capacity import largest


@given(limit=st.integers(0, 2000), start=st.integers(1, 2000), step=st.integers(1, 20))
def test_it_is_found_to_within_a_step(limit: int, start: int, step: int) -> None:
    tried: list[int] = []

    def holds(number: int) -> bool:
        tried.append(number)
        return number <= limit

    found = largest(start, step, holds)
    assert found <= limit < found + step
    assert len(tried) == len(set(tried))
    assert 0 not in tried


@pytest.mark.parametrize(("limit", "tries"), [(152, 10), (0, 9)])
def test_it_takes_few_tries(limit: int, tries: int) -> None:
    count = 0

    def holds(number: int) -> bool:
        nonlocal count
        count += 1
        return number <= limit

    largest(150, 2, holds)
    assert count <= tries
