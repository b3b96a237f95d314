"""A bar on a terminal, lines elsewhere: with rate and time left, by the clock."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from daemon.progress import duration, progress
from tests.support.clock import ManualClock


def test_a_line_comes_every_ten_seconds(clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is no terminal. What is done before ten seconds is silent; the rate is that since the beginning."""
    with progress("evaluate", "pictures", clock) as shown:
        for done in range(0, 2000, 10):
            shown.tell(done, 5000)
            clock.advance(0.25)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "evaluate: 400 of 5,000 pictures, 40.0 a second, 1:55 left",
        "evaluate: 800 of 5,000 pictures, 40.0 a second, 1:45 left",
        "evaluate: 1,200 of 5,000 pictures, 40.0 a second, 1:35 left",
        "evaluate: 1,600 of 5,000 pictures, 40.0 a second, 1:25 left",
    ]


def test_a_terminal_has_a_bar(clock: ManualClock) -> None:
    """Names of strangers mean nothing to it."""
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=120)
    with progress("\x1b[31m[red]clip", "frames", clock, console) as shown:
        shown.tell(0, 100)
        clock.advance(10)
        shown.tell(20, 100)
        shown.note("a note")
    text = terminal.getvalue()
    assert "20 of 100 frames, 2.0 a second, 0:40 left" in text
    assert "a note" in text
    assert "\x1b[31m" not in text
    assert "[red]clip" in text


def test_a_terminal_has_lines_where_a_bar_would_be_measured(
    clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=120)
    with progress("bench run", "s", clock, console, is_plain=True) as shown:
        for done in range(0, 20, 6):
            shown.tell(done, 60)
            clock.advance(6)
    assert terminal.getvalue() == ""
    assert capsys.readouterr().err == "bench run: 12 of 60 s, 0:48 left\n"


@pytest.mark.parametrize(
    ("unit", "done", "total", "words"),
    [
        ("s", 30, 120, "30 of 120 s, 1:30 left"),
        ("frames", 60, 0, "60 frames, 2.0 a second"),
        ("frames", 0, 0, "working"),
    ],
)
def test_words(clock: ManualClock, unit: str, done: float, total: float, words: str) -> None:
    with progress("it", unit, clock) as shown:
        shown.tell(0, total)
        clock.advance(30)
        shown.tell(done, total)
        assert shown.words == words


def test_an_interrupt_is_one_line(clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with progress("rebuild", "files", clock) as shown:
            shown.tell(3, 10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert capsys.readouterr().err == "lookout: rebuild: stopped: 3 of 10 files\n"


def test_durations() -> None:
    assert [duration(seconds) for seconds in (0, 59.6, 3600, 86_399)] == ["0:00", "1:00", "1:00:00", "23:59:59"]
