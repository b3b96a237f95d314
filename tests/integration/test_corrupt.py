"""Corrupt recordings: the daemon lives, nothing hangs, and the neighbours do not notice.

LOOKOUT_MUTANTS=1000 tries as many; each is made from its number, so that what fails can be made again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.mutants import mutant, originals, play

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.slow, pytest.mark.timeout(1800)]
_COUNT = int(os.environ.get("LOOKOUT_MUTANTS", "20"))
_AT_ONCE = 20


@pytest.mark.parametrize("processes", [0, 2])
def test_mutated_recordings_hurt_nobody(tmp_path: Path, processes: int) -> None:
    made = originals(tmp_path)
    model: dict[str, object] = {"path": "none", "backend": "fake"}
    for first in range(0, _COUNT, _AT_ONCE):
        paths = [mutant(number, made, tmp_path) for number in range(first, min(first + _AT_ONCE, _COUNT))]
        assert play(paths, tmp_path, model, processes) == []
