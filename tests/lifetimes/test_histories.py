"""Random histories; `python -m tests.lifetimes --count 2000` tries as many."""

from __future__ import annotations

import os

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.lifetimes.histories import History, profile

_COUNT = int(os.environ.get("LOOKOUT_HISTORIES", "6"))


@pytest.mark.slow(20)
@pytest.mark.timeout(1200)
def test_random_histories() -> None:
    run_state_machine_as_test(History, settings=profile(_COUNT, derandomize=True))
