"""The death of the rules' process beside each verb but those of the other files; see matrix.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lifetimes.matrix import begin_or_end, pairs_with

pytestmark = pytest.mark.slow
_PAIRS = pairs_with("rules die", without=["start", "stop", "SIGTERM"])


@pytest.mark.share(3)
@pytest.mark.parametrize(("first", "second"), _PAIRS)
def test_it_ends_well(tmp_path: Path, first: str, second: str) -> None:
    begin_or_end(tmp_path, first, second)
