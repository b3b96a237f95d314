"""When a trouble is told, and when it is over: one of them, by a monotonic clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from daemon.bridge.messages import Condition

_S: Final = 1_000_000_000
_HOUR_NS: Final = 3600 * _S
_HOLDS_S: Final = (5.0, 60.0, 240.0, 900.0)  # that it has to be well, by its notices within an hour


class KeptTrouble(msgspec.Struct, frozen=True):
    """A trouble that was told, as a restart of the bridge keeps it.

    Attributes:
        since: UTC ns; None if it is over, and only its notices are remembered.
        reason: of the notice.
        ages_s: of its notices within the last hour.
    """

    since: int | None
    reason: str | None
    ages_s: list[float] = []


class Trouble:
    """A trouble of one thing.

    It is told when it has lasted. Being well for less than 5 s does not interrupt it. That it is over is told when
    the thing has been well for 5 s, and for longer the more often it was told within an hour: 60 s, 240 s, 900 s. So
    what flaps stays down, and an hour has seven notices of it at most, each with its end.

    Attributes:
        since: UTC ns when it began; None while there is none.
        reason: in words.
        is_told: a notice of it went out, and none yet that it is over.
    """

    def __init__(self) -> None:
        self.since: int | None = None
        self.reason: str | None = None
        self.is_told = False
        self._begun_ns = 0
        self._well_ns: int | None = None
        self._notices_ns: list[int] = []

    @property
    def is_bad(self) -> bool:
        """Whether it goes on now, told or not."""
        return self.since is not None and self._well_ns is None

    def bad(self, now_ns: int, utc_ns: int, reason: str | None) -> None:
        """It is in trouble now.

        Args:
            utc_ns: since when, if it was not before.
            reason: None if it is not known now; the last one stays.
        """
        self._well_ns = None
        if self.since is None:
            self.since, self._begun_ns, self.reason = utc_ns, now_ns, None
        self.reason = reason or self.reason

    def well(self, now_ns: int) -> None:
        """It is well now."""
        if self.since is not None and self._well_ns is None:
            self._well_ns = now_ns

    def unknown(self) -> None:
        """Nobody knows how it is: what was not told begins anew, and what was told stays."""
        self._well_ns = None
        if not self.is_told:
            self.since = None

    def begin_again(self, now_ns: int) -> None:
        """A trouble that was not told has to last from now on."""
        self._begun_ns = now_ns

    def clear(self) -> None:
        """It is over."""
        self.since, self.is_told, self._well_ns = None, False, None

    def step(self, now_ns: int, down_s: float, least_s: float = 0.0) -> Condition | None:
        """The condition that is to be told now. After `up` its `since` and `reason` are still there, until `clear`.

        Args:
            down_s: that it has to last.
            least_s: that it has to be well, at least.
        """
        self._notices_ns = [at for at in self._notices_ns if now_ns - at < _HOUR_NS]
        if self.since is None:
            return None
        if self._well_ns is not None:
            if now_ns - self._well_ns < max(least_s, self._hold_s()) * _S:
                return None
            if self.is_told:
                return "up"
            self.clear()
        elif not self.is_told and now_ns - self._begun_ns >= down_s * _S:
            self.is_told = True
            self._notices_ns.append(now_ns)
            return "down"
        return None

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing of it has to be kept."""
        return self.since is None and not self._notices_ns

    def keep(self, now_ns: int) -> KeptTrouble | None:
        """For `restore`; None if a restart needs nothing of it."""
        # To the minute: what is kept changes as seldom.
        ages = [(now_ns - at) // _S // 60 * 60.0 for at in self._notices_ns if now_ns - at < _HOUR_NS]
        if not self.is_told and not ages:
            return None
        return KeptTrouble(self.since if self.is_told else None, self.reason if self.is_told else None, ages)

    def restore(self, kept: KeptTrouble, now_ns: int) -> None:
        """After a restart: what was told is not told again."""
        if kept.since is not None:
            self.since, self.reason, self.is_told = kept.since, kept.reason, True
        self._notices_ns = _limited([now_ns - round(age * _S) for age in kept.ages_s])

    def _hold_s(self) -> float:
        return _HOLDS_S[min(max(len(self._notices_ns) - 1, 0), len(_HOLDS_S) - 1)]


def _limited(times: Sequence[int]) -> list[int]:
    """The last ones: a file may hold anything."""
    return [*times][-100:]
