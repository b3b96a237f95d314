"""The port of a coordinator: a proven service (etcd, Kubernetes) whose order of writes decides who owns a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from daemon.errors import LookoutError
from daemon.fleet.records import FleetView, MemberRecord, SourceRecord, StreamFormat, Want
from daemon.system.stop_token import StopToken


class CoordinatorError(LookoutError):
    """The coordinator refuses: wrong user, no space left, wrong certificate. Trying again does not help by itself."""


class CoordinatorAwayError(CoordinatorError):
    """The coordinator cannot be reached, or does not answer in time. A write may have been done nevertheless."""


class NameTakenError(CoordinatorError):
    """A living member has the name: another process, or one that has just died and whose lease has not ended yet."""


class LeaseLostError(CoordinatorError):
    """The lease of this membership has ended: all that was claimed under it may have another owner."""


class Renewal(Protocol):
    """Keeps one lease alive. Small and picklable, because a process of its own does it."""

    def renew(self) -> float:
        """Renew the lease; returns the seconds that it lasts, counted from when the request was sent.

        Raises:
            LeaseLostError, CoordinatorAwayError, CoordinatorError.
        """

    def revoke(self) -> None:
        """End the lease now, and with it all that was claimed under it. Does not raise."""

    def close(self) -> None: ...


class Membership(Protocol):
    """A member's lease, and what it may do under it. Every call has a time limit; any thread may call.

    All methods raise LeaseLostError, CoordinatorAwayError or CoordinatorError.
    """

    @property
    def member(self) -> str: ...

    @property
    def renewal(self) -> Renewal: ...

    def update(self, record: MemberRecord) -> None:
        """Replace the member's record."""

    def claim(self, sources: Sequence[str]) -> dict[str, int]:
        """Claim sources that are wanted here and have no owner; returns the epoch of each that is this member's now,
        by an earlier claim as well."""

    def release(self, sources: Sequence[str]) -> None:
        """Give up sources; one that is not owned is passed over."""

    def refuse(self, reasons: Mapping[str, str | None]) -> None:
        """Say why this member cannot have sources; None takes it back."""

    def saw(self, pictures: Mapping[str, StreamFormat]) -> None:
        """Record the videos of owned sources for the next owner and the placer."""

    def lead(self) -> bool:
        """Become the placer if there is none; returns whether this member is the placer now."""

    def place(self, wants: Mapping[str, Want], basis: FleetView) -> int:
        """As placer, write where sources are wanted. A source whose want or record has changed since `basis`, or
        that an operator has removed, is left as it is. Returns the number written; 0 if not the placer any more."""

    def hold_down(self, member: str, seconds: float) -> None:
        """As placer, count a loss of a member, and hold it down for so long."""

    def leave(self) -> None:
        """Give up everything and end the lease. Does not count as a loss."""


class Coordinator(Protocol):
    """A connection. Every call has a time limit and raises CoordinatorAwayError or CoordinatorError."""

    def view(self) -> FleetView:
        """All records."""

    def follow(self, stop: StopToken) -> Iterator[FleetView]:
        """All records now, and again after changes (several at once where they come fast), until `stop`. Raises
        CoordinatorAwayError if the connection breaks; call it again. Lists anew by itself after a compaction."""

    def join(self, member: str, record: MemberRecord, ttl_s: float) -> Membership:
        """Take a lease and write the member's record under it.

        Raises:
            NameTakenError: a living member has this name.
        """

    # For operators; each is idempotent.

    def put_sources(self, sources: Mapping[str, SourceRecord], *, replace: bool) -> list[str]:
        """Write sources; returns the ids that were there already, which are left as they are unless `replace`."""

    def remove_sources(self, sources: Sequence[str]) -> list[str]:
        """Remove sources; returns the ids that were there. Their owners stop them."""

    def drain(self, member: str, reason: str) -> None: ...

    def undrain(self, member: str) -> None: ...

    def move(self, sources: Sequence[str], member: str, *, pinned: bool = True) -> None:
        """Move sources to a member, and pin them there unless told otherwise.

        Raises:
            CoordinatorError: the member, or a source, is not in the fleet.
        """

    def close(self) -> None: ...
