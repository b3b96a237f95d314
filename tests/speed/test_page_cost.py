"""What viewers of the page cost, as docs/dashboard.md promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.page_cost import PageCostOptions, page_costs

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.speed]


def test_sixteen_live_cameras_cost_the_page_a_quarter_of_a_core(long_clip: Path) -> None:
    idle, one, _, live, crowd = page_costs(PageCostOptions(long_clip, sources=16, rounds=3))
    assert live.page <= 25
    assert live.more <= 5  # 2 %, and what a busy machine adds
    assert idle.page <= 3
    assert crowd.page - one.page <= 25  # fifty viewers of one camera have one muxer
