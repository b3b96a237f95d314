"""The port of a store of claims: which worker plays which clip, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from daemon.errors import LookoutError
from lookout.messages import Model

MAX_ATTEMPTS = 3
State = Literal["done", "failed", "open"]


class StoreError(LookoutError):
    """The store refuses: another batch has this name, or there is no room. All work ends."""


class StoreAwayError(StoreError):
    """The store cannot be reached now. A write may have been done nevertheless."""


class ClaimsLostError(StoreError):
    """The claims of this worker have ended: others may have its clips. `claim` begins anew."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a clip.

    Attributes:
        state: "open" after an operator has asked for another try.
        reason: why it failed.
        folder: id of the folder that has its result.
        where: host and path of that folder, for people.
    """

    state: State
    reason: str | None = None
    folder: str | None = None
    where: str | None = None


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a model computes results: the same for all workers of a batch, because bits differ otherwise."""

    digest: str
    precision: str
    backend: str

    @classmethod
    def of(cls, model: Model) -> ModelFacts:
        return cls(digest=model.digest, precision=model.precision, backend=model.backend)


@dataclass(frozen=True)
class BatchView:
    """Attributes:
    outcomes: by clip; without those that are open.
    claimed: by clip, the worker.
    attempts: by clip, how often it was claimed.
    workers: that live now.
    """

    outcomes: Mapping[int, Outcome] = field(default_factory=dict)
    claimed: Mapping[int, str] = field(default_factory=dict)
    attempts: Mapping[int, int] = field(default_factory=dict)
    workers: int = 1


class ClipStore(Protocol):
    """The claims of one worker. Clips are named by their number. Every call has a time limit.

    All methods but `holds` and `close` raise StoreAwayError or StoreError.
    """

    def agree(self, facts: Mapping[str, ModelFacts]) -> None:
        """Compare with the other workers.

        Args:
            facts: by model.

        Raises:
            StoreError: they have other models, precisions or backends.
        """

    def view(self) -> BatchView:
        """The state of the batch now."""

    def claim(self, clips: Sequence[int]) -> dict[int, int]:
        """Claim these clips; returns those that were free, each with the number of this attempt, from 1."""

    def holds(self, clip: int) -> bool:
        """Whether this worker has a claim that nobody else can have yet. Asks nobody."""

    def finish(self, clip: int, outcome: Outcome) -> None:
        """Record the outcome of a claimed clip, and give up the claim.

        Raises:
            ClaimsLostError: another worker may have the clip; nothing is recorded.
        """

    def retry(self, clip: int) -> None:
        """Give up a claimed clip after a fault, for another attempt. A lost claim is passed over."""

    def release(self, clips: Sequence[int]) -> None:
        """Give up claimed clips that nothing is wrong with: this was no attempt. Lost claims are passed over."""

    def reopen(self, clips: Sequence[int]) -> None:
        """Forget the outcomes and attempts of clips."""

    def close(self) -> None:
        """Give up all claims. Does not raise; a second call does nothing."""
