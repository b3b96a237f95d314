"""The cost of a frame in a capture process, as `python -m tests.bench capture` measures it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.capture_cost import CaptureOptions, capture_cost

pytestmark = pytest.mark.needs("ffmpeg", "g++", "nvcuvid")


def test_frames_come_through_and_cost_something(clip: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    found = capture_cost(CaptureOptions(clip, sources=2, frames=20, rounds=2, profile=profile))
    assert (found.sources, len(found.us)) == (2, 2)
    assert min(found.us) <= found.middle <= max(found.us)
    assert profile.exists()
