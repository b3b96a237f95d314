"""Whether a disk takes what is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from daemon.clock import Clock

_HANGS_NS = 2_000_000_000  # a write that takes longer: the disk takes nothing


class DiskState:
    """One thread writes, any thread asks.

    Attributes:
        failure: why the last write failed; None if it did not.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: int | None = None
        self._damage: Exception | None = None
        self.failure: str | None = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._since = self._clock.monotonic_ns()
        try:
            yield
        finally:
            self._since = None

    def fail(self, reason: str) -> None:
        self.failure = reason

    def note_damage(self, error: Exception) -> None:
        """A reader has found it."""
        self._damage = error

    def raise_damage(self) -> None:
        """Once: in the thread that writes."""
        damage, self._damage = self._damage, None
        if damage is not None:
            raise damage

    def recover(self) -> bool:
        """It takes something; whether it did not before."""
        failed, self.failure = self.failure is not None, None
        return failed

    @property
    def hangs(self) -> bool:
        since = self._since
        return since is not None and self._clock.monotonic_ns() - since > _HANGS_NS

    @property
    def is_failing(self) -> bool:
        """It takes nothing now, or does not answer."""
        return self.failure is not None or self.hangs

    @property
    def words(self) -> str | None:
        """Why it takes nothing; None if it does."""
        return self.failure or ("the disk does not answer" if self.hangs else None)
