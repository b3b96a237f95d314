"""The accounts of a bridge, for its figures, the page and its log."""

from __future__ import annotations

from typing import Literal

import msgspec

LinkState = Literal["connecting", "up", "away", "gone", "off"]


class FigureAccount(msgspec.Struct, frozen=True):
    """Detections of one target: received = sent + thinned + failed."""

    received: int = 0
    sent: int = 0
    thinned: int = 0
    failed: int = 0


class TargetReport(msgspec.Struct, frozen=True, kw_only=True):
    """A target: received = delivered + filtered + thinned + sum of dropped + spooled, at every moment, since its name
    was first used.

    Attributes:
        state: `away` is tried again; `gone` and `off` are not: the server wants nothing more, or it cannot be used.
        since: UTC ns.
        filtered: that `when` or the format leaves out.
        thinned: within `cooldown_s` of another.
        dropped: by cause: stale, refused, spool_full, disk.
        repeated: sent again because they were not confirmed; such a one counts once above.
        oldest_s: age of the oldest record that waits; 0 if none does.
    """

    name: str
    type: str
    state: LinkState
    since: int
    reason: str | None
    retry_in_s: float | None
    received: int
    delivered: int
    filtered: int
    thinned: int
    dropped: dict[str, int]
    spooled: int
    repeated: int
    oldest_s: float
    figures: FigureAccount


class FeedReport(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one daemon.

    Attributes:
        events: that came, with those of the journal.
        filled: of them, that came from the journal.
        lost: that nobody has any more; null counts are counted as one.
    """

    daemon: str
    state: LinkState
    reason: str | None
    events: int
    filled: int
    lost: int
    clips: int
    notices: int


class SpoolReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        records: that some target still needs.
        failure: why nothing can be written; null if it can.
    """

    records: int
    bytes: int
    limit_bytes: int
    failure: str | None


class BridgeReport(msgspec.Struct, frozen=True, kw_only=True):
    schema: Literal["lookout.bridge/1"] = "lookout.bridge/1"
    id: str
    at: int
    targets: list[TargetReport]
    feeds: list[FeedReport]
    spool: SpoolReport
