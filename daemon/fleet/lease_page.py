"""A page of memory that a daemon and the keeper of its lease share: reading the lease costs the daemon next to nothing.

Each word has one writer, and is written whole. Times are nanoseconds of `daemon.clock.boottime_ns`.
"""

from __future__ import annotations

import mmap
from typing import Literal

LeaseState = Literal["renewed", "refused", "away", "lost"]
"""By the last try: `renewed`; `refused`, by a coordinator that answers; `away`, without an answer; `lost` for good."""

MARGIN_S = 0.25  # before the lease's end: between the fence and the network, and for clocks of different speed
SIZE = 4096
STATES: tuple[LeaseState, ...] = ("renewed", "refused", "away", "lost")
# Words of the keeper, and the beat, which is the daemon's. A new page is all zeros: nothing is sure.
_VALID_UNTIL, _STATE, _LOOKED, _TURNED, _RENEWALS, _LEAST_LEFT, _REASON_SIZE, _BEAT = range(8)
_REASON = 512  # offset of a text in bytes
_MAX_REASON = 1024


class LeasePage:
    """Maps a memory file of `SIZE` bytes. The mapping ends with the object, so that a late reader is safe."""

    def __init__(self, fd: int) -> None:
        self._bytes = memoryview(mmap.mmap(fd, SIZE))
        self._words = self._bytes.cast("q")

    @property
    def valid_until(self) -> int:
        """The lease holds until then, as far as was confirmed; 0 before the first renewal."""
        return self._words[_VALID_UNTIL]

    @property
    def state(self) -> LeaseState:
        return STATES[self._words[_STATE]]

    @property
    def looked(self) -> int:
        """When the keeper last vouched for the state. A keeper that was paused waits for an answer first."""
        return self._words[_LOOKED]

    @property
    def turned(self) -> int:
        """When the keeper last had a turn."""
        return self._words[_TURNED]

    @property
    def renewals(self) -> int:
        """Number of confirmed ones."""
        return self._words[_RENEWALS]

    @property
    def least_left(self) -> int:
        """Nanoseconds that the lease had left when a renewal was confirmed, at worst; negative: too late."""
        return self._words[_LEAST_LEFT]

    @property
    def reason(self) -> str:
        """Why the last try failed."""
        size = min(self._words[_REASON_SIZE], _MAX_REASON)
        return bytes(self._bytes[_REASON : _REASON + size]).decode(errors="replace")

    @property
    def beat(self) -> int:
        """When the daemon last said that it lives."""
        return self._words[_BEAT]

    def set_beat(self, now: int) -> None:
        self._words[_BEAT] = now

    def set_turned(self, now: int) -> None:
        self._words[_TURNED] = now

    def set_looked(self, now: int) -> None:
        self._words[_LOOKED] = now

    def set_renewed(self, valid_until: int, now: int) -> None:
        words = self._words
        left = words[_VALID_UNTIL] - now
        if words[_RENEWALS] and (words[_RENEWALS] == 1 or left < words[_LEAST_LEFT]):
            words[_LEAST_LEFT] = left
        words[_RENEWALS] += 1
        words[_VALID_UNTIL] = valid_until
        words[_STATE] = STATES.index("renewed")

    def set_failed(self, state: LeaseState, reason: str) -> None:
        """The text may be torn for a reader that comes at the same time."""
        text = reason.encode(errors="replace")[:_MAX_REASON]
        self._bytes[_REASON : _REASON + len(text)] = text
        self._words[_REASON_SIZE] = len(text)
        self._words[_STATE] = STATES.index(state)
