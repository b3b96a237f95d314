"""Each pair of SIGTERM and any verb but `start` and `stop`; see matrix.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lifetimes.matrix import AT_ONCE, begin_or_end, pairs_with
from tests.support.daemon import ROOT

pytestmark = pytest.mark.slow
_PAIRS = [pair for pair in pairs_with("SIGTERM", without=["start", "stop"]) if pair != AT_ONCE]


@pytest.mark.share(3)
@pytest.mark.parametrize(("first", "second"), _PAIRS)
def test_it_ends_well(tmp_path: Path, first: str, second: str) -> None:
    begin_or_end(tmp_path, first, second)


def test_a_second_sigterm_ends_the_process_at_once(tmp_path: Path) -> None:
    """Even if a lane is blocked in the detector, and the first signal waits for it."""
    code = "import sys, pathlib; from tests.lifetimes.matrix import begin_or_end; "
    code += f"begin_or_end(pathlib.Path(sys.argv[1]), *{AT_ONCE!r})"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=False, timeout=100)
    assert done.returncode == 143
