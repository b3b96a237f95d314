"""Claims of several workers in memory, with leases that a test lets end by its clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count

from daemon.batch.store import BatchView, ClaimsLostError, ModelFacts, Outcome, StoreAwayError, StoreError
from daemon.clock import Clock


class MemoryBatch:
    """What the workers of a batch share.

    Attributes:
        is_away: every call fails.
    """

    def __init__(self, clock: Clock, lease_s: float = 15.0) -> None:
        self.clock, self.lease_ns = clock, round(lease_s * 1e9)
        self.outcomes: dict[int, Outcome] = {}
        self.attempts: Counter[int] = Counter()
        self.claims: dict[int, MemoryClipStore] = {}
        self.workers: list[MemoryClipStore] = []
        self.facts: Mapping[str, ModelFacts] | None = None
        self.is_away = False
        self.numbers = count()

    def expire(self) -> None:
        """Leases that were not renewed end, and with them their claims."""
        self.claims = {clip: by for clip, by in self.claims.items() if by.is_alive}


class MemoryClipStore:
    """Implements `ClipStore`. A lease lasts from the last call of `renew` on."""

    def __init__(self, batch: MemoryBatch) -> None:
        self._batch, self.worker = batch, f"worker-{next(batch.numbers)}"
        self._mine: dict[int, int] = {}
        self._is_lost = False
        batch.workers.append(self)
        self.renew()

    def renew(self) -> None:
        self._until = self._batch.clock.monotonic_ns() + self._batch.lease_ns

    @property
    def is_alive(self) -> bool:
        if self._batch.clock.monotonic_ns() >= self._until:
            self._is_lost = True
        return not self._is_lost

    def agree(self, facts: Mapping[str, ModelFacts]) -> None:
        self._check()
        self._batch.facts = self._batch.facts or facts
        if self._batch.facts != facts:
            raise StoreError(f"the batch runs with {self._batch.facts}")

    def view(self) -> BatchView:
        batch = self._check()
        outcomes = {clip: outcome for clip, outcome in batch.outcomes.items() if outcome.state != "open"}
        claimed = {clip: by.worker for clip, by in batch.claims.items()}
        alive = sum(worker.is_alive for worker in batch.workers)
        return BatchView(outcomes, claimed, dict(batch.attempts), max(1, alive))

    def claim(self, clips: Sequence[int]) -> dict[int, int]:
        batch = self._check()
        if not self.is_alive:
            for clip, attempt in self._mine.items():
                batch.attempts[clip] -= batch.attempts[clip] == attempt
            self._mine.clear()
            self._is_lost = False
            batch.claims = {clip: by for clip, by in batch.claims.items() if by is not self}
            self.renew()
        view = self.view()
        for clip in (free := [clip for clip in clips if clip not in batch.claims and clip not in view.outcomes]):
            batch.attempts[clip] += 1
            batch.claims[clip] = self
            self._mine[clip] = batch.attempts[clip]
        return {clip: self._mine[clip] for clip in free}

    def holds(self, clip: int) -> bool:
        return clip in self._mine and self.is_alive

    def finish(self, clip: int, outcome: Outcome) -> None:
        batch = self._check()
        self._mine.pop(clip, None)
        if batch.claims.get(clip) is not self:
            raise ClaimsLostError("another worker has it")
        del batch.claims[clip]
        batch.outcomes[clip] = outcome

    def retry(self, clip: int) -> None:
        if self._check().claims.get(clip) is self:
            del self._batch.claims[clip]
        self._mine.pop(clip, None)

    def release(self, clips: Sequence[int]) -> None:
        for clip in clips:
            if self._check().claims.get(clip) is self:
                self._batch.attempts[clip] -= 1
            self.retry(clip)

    def reopen(self, clips: Sequence[int]) -> None:
        for clip in clips:
            if clip not in self._check().claims:
                self._batch.outcomes[clip] = Outcome(state="open")
                self._batch.attempts[clip] = 0

    def close(self) -> None:
        self._is_lost = True
        self._batch.expire()

    def _check(self) -> MemoryBatch:
        if self._batch.is_away:
            raise StoreAwayError("the coordinator does not answer")
        self._batch.expire()
        return self._batch
