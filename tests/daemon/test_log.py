"""A camera that comes and goes does not fill the disk with it."""

from __future__ import annotations

import pytest
import structlog

from daemon.log import RateLimiter
from tests.support.clock import ManualClock


def test_lines_of_one_kind_are_held_back_and_counted(clock: ManualClock) -> None:
    limiter = RateLimiter(clock, most=3, window_s=60)

    def passes(event: str, source: str | None = "door") -> dict[str, object] | None:
        line = {"event": event, **({"source": source} if source else {})}
        try:
            return dict(limiter(None, "warning", line))
        except structlog.DropEvent:
            return None

    assert [passes("source down") is not None for _ in range(5)] == [True, True, True, False, False]
    # Others are not concerned: another kind, another source, and what is of no source.
    assert passes("source up")
    assert passes("source down", "yard")
    assert all(passes("metrics", None) for _ in range(10))
    clock.advance(61)
    assert passes("source down") == {"event": "source down", "source": "door", "held_back": 2}
    assert passes("source down") == {"event": "source down", "source": "door"}


@pytest.mark.parametrize("level", ["debug"])
def test_who_asks_for_every_frame_gets_every_frame(clock: ManualClock, level: str) -> None:
    limiter = RateLimiter(clock, most=1)
    assert all(limiter(None, level, {"event": "frame", "source": "door"}) for _ in range(10))
