"""Each pair of `stop` and any verb but `start`; see matrix.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lifetimes.matrix import begin_or_end, pairs_with

pytestmark = pytest.mark.slow


@pytest.mark.share(3)
@pytest.mark.parametrize(("first", "second"), pairs_with("stop", without=["start"]))
def test_it_ends_well(tmp_path: Path, first: str, second: str) -> None:
    begin_or_end(tmp_path, first, second)
