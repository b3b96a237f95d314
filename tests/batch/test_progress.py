"""How far a batch is, as a person sees it: within a clip as well."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from daemon.batch.clips import Clip
from daemon.batch.progress import LineProgress, Playing, TerminalProgress
from daemon.batch.store import BatchView, Outcome
from tests.support.clock import ManualClock

ONE = [Clip(0, "night.mkv", Path("night.mkv"), 1000)]
TWO = [*ONE, Clip(1, "day.mkv", Path("day.mkv"), 3000)]
NOTHING = BatchView()


def test_a_long_clip_has_frames_a_rate_and_time_left(clock: ManualClock) -> None:
    """Lines come every ten seconds, and none where nothing has changed."""
    terminal = io.StringIO()
    progress = LineProgress(ONE, Console(file=terminal, width=200), clock)
    progress.show(NOTHING, [Playing(0, "night.mkv")])
    for second in range(1, 31):
        clock.advance(1)
        progress.show(NOTHING, [Playing(0, "night.mkv", second / 100, 25 * second)])
    for _ in range(30):
        clock.advance(1)
        progress.show(NOTHING, [Playing(0, "night.mkv", 0.3, 750)])
    lines = terminal.getvalue().splitlines()
    assert lines[0] == "0/1 clips: 0 frames, 1 playing here"
    assert lines[1].startswith("0/1 clips: 250 frames, 27.8 frames a second, 1:30 left")
    assert lines[2].startswith("0/1 clips: 500 frames, 26.3 frames a second, 1:20 left")
    assert len(lines) == 4


def test_a_clip_that_plays_counts_by_its_share(clock: ManualClock) -> None:
    terminal = io.StringIO()
    progress = TerminalProgress(TWO, Console(file=terminal, force_terminal=True, width=160), clock)
    progress.show(NOTHING, [Playing(1, "day.mkv")])
    clock.advance(30)
    progress.show(BatchView(outcomes={0: Outcome(state="done")}), [Playing(1, "day.mkv", 1 / 3, 900)])
    progress.note("it is noted")
    progress.close()
    text = terminal.getvalue()
    assert "1/2 clips" in text
    assert "0:30 left" in text  # half of 4,000 bytes in 30 s
    assert "it is noted" in text


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_clip_of_unknown_length_has_no_time_left(clock: ManualClock, share: float) -> None:
    terminal = io.StringIO()
    progress = LineProgress(ONE, Console(file=terminal, width=200), clock)
    progress.show(NOTHING, [Playing(0, "night.mkv", share)])
    clock.advance(10)
    progress.show(NOTHING, [Playing(0, "night.mkv", share, 100)])
    assert "left" not in terminal.getvalue()
