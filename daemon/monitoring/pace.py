"""Tells the host when the frames of this daemon are later than usual, so that others open decoders more slowly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median

import numpy as np

from daemon.pipeline.ledger import Rows

_MIN_FRAMES = 100  # for a p99
_SETTLED = 10  # arrivals of rows, about a second each, after which a source counts
_USUAL = 60  # arrivals whose p99s are usual
_LEAST_USUAL = 5
_LATER = 1.5
_SLACK_NS = 5_000_000


class PaceSetter:
    """Observes the ledger's rows, which come about once a second.

    A source that has just connected is late by itself, so it does not count yet.

    Args:
        tell: called when frames are late.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._seen: dict[int, int] = {}  # arrivals with rows of each account
        self._usual: deque[float] = deque(maxlen=_USUAL)

    def __call__(self, rows: Rows) -> None:
        accounts = np.unique(rows["source"]).tolist()
        for account in accounts:
            self._seen[account] = self._seen.get(account, 0) + 1
        settled = [account for account in accounts if self._seen[account] > _SETTLED]
        chosen = rows[(rows["dropped"] == 0) & np.isin(rows["source"], settled)]
        if len(chosen) < _MIN_FRAMES:
            return
        p99 = float(np.percentile(chosen["total"] + chosen["behind"], 99))
        if len(self._usual) >= _LEAST_USUAL and p99 > _LATER * median(self._usual) + _SLACK_NS:
            self._tell()
        else:
            self._usual.append(p99)
