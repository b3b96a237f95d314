"""Sources that break and come back among others, with the tool that GPUs are tried with."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.bench.load import Load
from tests.gpu.churn import churn

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.slow]


def test_churn_breaks_what_it_should_and_finds_it_back(clip: Path) -> None:
    load = Load((clip,), sources=3, paced=True, seconds=1.0, warm_up=0, backend="fake", lanes=1, max_batch=4)
    result = churn(load, 20, 1)
    assert result.victims == 1
    assert result.settled.drops >= 2  # as many as were asked for; one more may be on its way when it is told to stop
    assert result.ended.drops >= 20
    assert result.ended.threads <= result.settled.threads
    assert result.ended.open_files <= result.settled.open_files
    assert result.churning_fps > 0
