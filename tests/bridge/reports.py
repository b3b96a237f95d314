"""Accounts of a bridge, as they may be."""

from __future__ import annotations

from typing import Any

from daemon.bridge.report import BridgeReport, FeedReport, FigureAccount, SpoolReport, TargetReport


def target(name: str, state: str = "up", **more: Any) -> TargetReport:
    """Of a target that was told all of 10 records."""
    values: dict[str, Any] = {
        "type": "mqtt", "since": 1_700_000_000_000_000_000, "reason": None, "retry_in_s": None, "received": 10,
        "delivered": 10, "filtered": 0, "thinned": 0, "dropped": {}, "spooled": 0, "repeated": 0, "oldest_s": 0.0,
        "figures": FigureAccount(), **more,
    }  # fmt: skip
    return TargetReport(name=name, state=state, **values)  # type: ignore[arg-type]


def report(*targets: TargetReport, feed: str = "up", failure: str | None = None) -> BridgeReport:
    """Of a bridge with one daemon."""
    why = None if feed == "up" else "nothing answers"
    row = FeedReport(daemon="hall", state=feed, reason=why, events=12, filled=2, lost=1, clips=0, notices=0)  # type: ignore[arg-type]
    spool = SpoolReport(records=3, bytes=4096, limit_bytes=1 << 28, failure=failure)
    return BridgeReport(id="b1", at=1_700_000_000_000_000_000, targets=[*targets], feeds=[row], spool=spool)
