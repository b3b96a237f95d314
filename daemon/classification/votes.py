"""Votes of one classifier on one track: when a look is due, and what the looks agree on."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from daemon.config.model import ClassifierConfig
from lookout.messages import Attribute


@dataclass(frozen=True)
class VotingRules:
    """See `classifiers` in docs/classifiers.md.

    Attributes:
        attempts: looks at a track before it settles or waits, and number of latest looks that have a vote.
        needed: votes for one value that settle it.
        threshold: least confidence of a vote.
        area_growth: a look is due again when the box has grown by this share since the last one; None for never.
        every_ns: likewise after this source time; None for never.
    """

    attempts: int
    needed: int
    threshold: float
    area_growth: float | None
    every_ns: int | None


def rules_of(config: ClassifierConfig) -> VotingRules:
    """The rules of a classifier."""
    return VotingRules(
        attempts=config.attempts,
        needed=max(1, math.ceil(config.agree * config.attempts - 1e-9)),  # 0.6 times 5 is 3, and not 4
        threshold=config.threshold,
        area_growth=config.area_growth,
        every_ns=None if config.every_s is None else round(config.every_s * 1e9),
    )


class AttributeVotes:
    """The votes on one track.

    A lane asks for looks, and the classifier's thread adds their results. Only one look is pending at a time.

    Attributes:
        is_pending: a look has been asked for, and has neither a result nor been dropped.
    """

    __slots__ = ("_area", "_before", "_confidence", "_looks", "_rules", "_time_ns", "_value", "_votes", "_window",
                 "is_pending", "is_settled")  # fmt: skip

    def __init__(self, rules: VotingRules) -> None:
        self._rules = rules
        self.is_pending = self.is_settled = False
        self._looks = 0
        self._area, self._time_ns = 0.0, 0  # of the last look
        self._before = self._area, self._time_ns
        self._window: deque[tuple[str | None, float]] = deque(maxlen=rules.attempts)
        self._value: str | None = None
        self._confidence: float | None = None
        self._votes = 0

    def is_due(self, area: float, now_ns: int) -> bool:
        """Whether to look now.

        Args:
            area: of the box, pixels.
            now_ns: source time.
        """
        if self.is_pending:
            return False
        rules = self._rules
        if not self.is_settled and self._looks < rules.attempts:
            return True
        if rules.area_growth is not None and area >= self._area * (1 + rules.area_growth):
            return True
        return rules.every_ns is not None and now_ns - self._time_ns >= rules.every_ns

    def request(self, area: float, now_ns: int) -> None:
        """A look is asked for, at a box of this area."""
        self._before = self._area, self._time_ns
        self._area, self._time_ns, self.is_pending = area, now_ns, True

    def cancel(self) -> None:
        """The look was dropped; it is due again."""
        self._area, self._time_ns = self._before
        self.is_pending = False

    def add(self, value: str, confidence: float, seq: int) -> Attribute:
        """Add the result of the look; returns what is known now.

        A settled value changes only when enough votes agree on another one. So nothing blinks.

        Args:
            seq: of the frame that the look was at.
        """
        rules = self._rules
        self._looks += 1
        self._window.append((value if confidence >= rules.threshold else None, confidence))
        leader, votes = self._leader()
        if votes >= rules.needed:
            self.is_settled = True
            self._value = leader
        elif not self.is_settled:
            self._value = leader
        mine = [sure for vote, sure in self._window if vote is not None and vote == self._value]
        if mine:
            self._confidence, self._votes = sum(mine) / len(mine), len(mine)
        self.is_pending = False
        rounded = None if self._value is None or self._confidence is None else round(self._confidence, 4)
        return Attribute(self._value, rounded, self._votes, self.is_settled, seq)

    def _leader(self) -> tuple[str | None, int]:
        """The value with the most votes: of equal ones the present value, or else the latest."""
        counts: dict[str, int] = {}
        for value, _ in self._window:
            if value is not None:
                counts[value] = counts.pop(value, 0) + 1  # the latest is last
        best = max(counts.values(), default=0)
        if self._value is not None and counts.get(self._value, 0) == best > 0:
            return self._value, best
        return next((value for value in reversed(counts) if counts[value] == best), None), best
