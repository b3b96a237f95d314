"""A camera that comes and goes does not fill the disk with it, and a full disk stops no camera."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import structlog

from daemon.config.root import LogConfig
from daemon.log import RateLimiter, as_of_now, logging, set_level
from tests.support.clock import ManualClock


@dataclass(frozen=True)
class _Order:
    log: LogConfig


def test_a_process_that_is_started_later_has_the_level_of_then(tmp_path: Path) -> None:
    """Its order is older than the change; orders without a log are left alone."""
    order = _Order(LogConfig(file=tmp_path / "log", format="json"))
    with logging(order.log):
        assert as_of_now(order) is order
        set_level(LogConfig(level="debug"))
        assert as_of_now(order) == _Order(LogConfig(level="debug", file=tmp_path / "log", format="json"))
        assert as_of_now("text") == "text"
        structlog.get_logger().debug("now")
    assert '"now"' in (tmp_path / "log").read_text()
    with logging(order.log):
        assert as_of_now(order) is order


def test_lines_of_one_kind_are_held_back_and_counted(clock: ManualClock) -> None:
    limiter = RateLimiter(clock, limit=3, window_s=60)

    def passes(event: str, source: str | None = "door", method: str = "warning") -> dict[str, object] | None:
        line = {"event": event, **({"source": source} if source else {})}
        try:
            return dict(limiter(None, method, line))
        except structlog.DropEvent:
            return None

    assert [passes("source down") is not None for _ in range(5)] == [True, True, True, False, False]
    # Others are not concerned: another kind, another source, and what is of no source.
    assert passes("source up")
    assert passes("source down", "yard")
    assert all(passes("metrics", None, "info") for _ in range(10))
    assert [passes("http is in trouble", None) is not None for _ in range(4)] == [True, True, True, False]
    # Who has changed what is never held back.
    assert all(limiter(None, "info", {"event": "source changed", "source": "door", "by": "me"}) for _ in range(100))
    clock.advance(61)
    assert passes("source down") == {"event": "source down", "source": "door", "held_back": 2}
    assert passes("source down") is None


def test_a_camera_that_is_down_for_days_is_a_line_an_hour(clock: ManualClock) -> None:
    """Of one that fails every four seconds; when it has been quiet for long it has its ten lines a minute again."""
    limiter, passed = RateLimiter(clock), list[int]()

    def fail() -> None:
        try:
            limiter(None, "warning", {"event": "source down", "source": "door"})
        except structlog.DropEvent:
            return
        passed.append(clock.monotonic_ns() // 1_000_000_000)

    for _ in range(2 * 24 * 900):
        fail()
        clock.advance(4)
    assert len(passed) < 10 + 7 + 48
    assert max(late - early for early, late in pairwise(passed)) <= 3604
    clock.advance(3 * 3600)
    before = len(passed)
    for _ in range(10):
        fail()
    assert len(passed) == before + 10


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    """As logrotate does; and it is not for everybody's eyes."""
    path = tmp_path / "lookout.log"
    with logging(LogConfig(format="json", file=path)):
        structlog.get_logger().info("first")
        path.rename(tmp_path / "lookout.log.1")
        structlog.get_logger().info("second")
    structlog.reset_defaults()
    assert "first" in (tmp_path / "lookout.log.1").read_text()
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["second"]
    assert path.stat().st_mode & 0o007 == 0


def test_nothing_that_a_terminal_obeys_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "lookout.log"
    with logging(LogConfig(format="console", file=path)):
        structlog.get_logger().warning("source down", source="door", reason="\x1b]0;pwn\x07\x1b[31m\r\nforged line")
    structlog.reset_defaults()
    assert len(path.read_text().splitlines()) == 1
    assert not set(path.read_text()) & set("\x1b\x07\r")


@pytest.mark.parametrize("level", ["debug"])
def test_who_asks_for_every_frame_gets_every_frame(clock: ManualClock, level: str) -> None:
    limiter = RateLimiter(clock, limit=1)
    assert all(limiter(None, level, {"event": "frame", "source": "door"}) for _ in range(10))


@pytest.mark.parametrize("who", ["by", "token"])
def test_what_users_do_is_never_held_back(clock: ManualClock, who: str) -> None:
    """Nobody hides the end of a lock behind ten others."""
    limiter = RateLimiter(clock, limit=1)
    line = {"event": "a lock was removed", "source": "door", who: "guard"}
    assert all(limiter(None, "info", dict(line)) == line for _ in range(50))


def test_a_standard_error_without_room_stops_nobody(tmp_path: Path) -> None:
    """A capture thread that logs must not die of it; what was lost is counted where there is room again."""
    path = tmp_path / "log"
    path.touch()
    before = os.dup(2)
    try:
        with logging(LogConfig(format="json")):
            for target in ("/dev/full", "/dev/full", str(path)):
                file = os.open(target, os.O_WRONLY)
                os.dup2(file, 2)
                os.close(file)
                structlog.get_logger().warning("source down", source="door")
    finally:
        os.dup2(before, 2)
        os.close(before)
        structlog.reset_defaults()
    lost, line = path.read_text().splitlines()
    assert lost == "2 log lines could not be written here"
    assert json.loads(line)["event"] == "source down"


def test_a_standard_error_that_nobody_reads_stops_nobody() -> None:
    """A terminal that is held, a container runtime that blocks: lines are lost, and counted when it is read again."""
    before = os.dup(2)
    reading, writing = os.pipe()
    written = 0
    try:
        with logging(LogConfig(format="json")):
            os.dup2(writing, 2)
            for written in range(1, 1500):
                structlog.get_logger().info("metrics", filler="x" * 5000 if written % 100 == 0 else "")
            heard = os.read(reading, 1 << 20)
            structlog.get_logger().info("last")
            heard += os.read(reading, 1 << 20)
    finally:
        os.dup2(before, 2)
        for file in (before, reading, writing):
            os.close(file)
        structlog.reset_defaults()
    lines = heard.decode().splitlines()
    (lost,) = [int(line.split()[0]) for line in lines if "could not be written here" in line]
    assert 0 < lost < written
    assert '"last"' in lines[-1]
