"""Fencing at the reader: messages of an owner that another owner has followed are left out, and counted."""

from __future__ import annotations

import threading
from collections import Counter

from lookout.messages import Owner


class Epochs:
    """The highest epoch of each source of each fleet. It is sure even against a daemon that was paused between its own
    check and the network: what such a daemon sends late has a lower epoch. Any thread may ask.

    Attributes:
        fenced: messages that were left out, by source.
    """

    def __init__(self) -> None:
        self.fenced: Counter[str] = Counter()
        self._highest: dict[tuple[str, str], int] = {}  # by fleet and source
        self._lock = threading.Lock()

    def admits(self, source: str, owner: Owner | None) -> bool:
        """Whether a message is of the newest owner that is known. Messages without an owner are."""
        if owner is None:
            return True
        key = owner.fleet, source
        with self._lock:
            highest = self._highest.get(key, owner.epoch)
            if owner.epoch < highest:
                self.fenced[source] += 1
                return False
            self._highest[key] = owner.epoch
            return True
