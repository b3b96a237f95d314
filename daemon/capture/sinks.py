"""What a capture speaks to: in the daemon itself, or what stands for it in a capture process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import msgspec

from daemon.messages import State, VideoFormat
from daemon.pipeline.board import Cause, FrameBoard
from daemon.pipeline.frames import Frame
from daemon.pipeline.ledger import Ledger


class Quota(msgspec.Struct, frozen=True):
    """The share of the detector and of the GPU's decoder that a source gets; by default as much as it asks for.

    Attributes:
        fps: frames a second that may be detected, None for all.
        skip_ratio: share of its pictures that the decoder has no time for, 0 to 1.
        reason: why it is not all, for its status; None if it is.
    """

    fps: float | None = None
    skip_ratio: float = 0.0
    reason: str | None = None


UNLIMITED = Quota()

OnQuota = Callable[[Quota], None]
"""Tells a source its quota; called from any thread, and returns at once."""

ADMITTED: Future[None] = Future()
"""The answer to a source that may give frames."""
ADMITTED.set_result(None)


class Board(Protocol):
    """Where frames go: `daemon.pipeline.board.FrameBoard`, or what stands for it in a capture process."""

    @property
    def live(self) -> bool: ...
    def listen(self, source: str, wake: Callable[[], None]) -> None: ...
    def put(self, frame: Frame, *, give_up: Cause | None = None, hold_ns: int = 0) -> bool: ...
    def is_settled(self, source: str) -> bool: ...


class FrameCounters(Protocol):
    """Where a frame's fate is noted: `daemon.pipeline.ledger.Ledger`, or what stands for it."""

    def captured(self, source: str) -> None: ...
    def dropped(self, source: str, seq: int, cause: str) -> None: ...


class Admits(Protocol):
    """Gives each source its quota: `daemon.control.admission.Admission`, or what stands for it."""

    def admit(self, source: str, fps: float | None, on_quota: OnQuota, format: VideoFormat) -> Future[None]:
        """Done when the source is let in, or with a SourceError if it is not; returns at once."""
        ...

    def release(self, source: str) -> None: ...


class Announce(Protocol):
    """Where a change of state goes."""

    def __call__(
        self,
        source: str,
        session: str | None,
        state: State,
        reason: str | None,
        retry_in_s: float | None,
        format: VideoFormat | None,
    ) -> None: ...


@dataclass(frozen=True)
class CaptureSinks:
    """Where a capture's frames, their fates and its states go.

    Attributes:
        announce: told of each change of state.
    """

    board: Board
    ledger: FrameCounters
    announce: Announce
    admission: Admits


class _Detached:
    """Takes the place of all four when another capture serves the source: what still comes is ignored."""

    live = True

    def __call__(self, *_: object, **__: object) -> None:
        """Announce."""

    def listen(self, source: str, wake: Callable[[], None]) -> None: ...
    def put(self, frame: Frame, *, give_up: Cause | None = None, hold_ns: int = 0) -> bool:  # noqa: ARG002
        return True

    def is_settled(self, source: str) -> bool:  # noqa: ARG002
        return True

    def captured(self, source: str) -> None: ...
    def dropped(self, source: str, seq: int, cause: str) -> None: ...
    def admit(self, source: str, fps: float | None, on_quota: OnQuota, format: VideoFormat) -> Future[None]:  # noqa: ARG002
        return ADMITTED

    def release(self, source: str) -> None: ...


_NOBODY = _Detached()
DETACHED = CaptureSinks(_NOBODY, _NOBODY, _NOBODY, _NOBODY)


@dataclass(frozen=True)
class DaemonSinks(CaptureSinks):
    """The daemon's own, for all sources.

    Attributes:
        forget: told of a source that is removed, whose last state is the past.
    """

    board: FrameBoard
    ledger: Ledger
    forget: Callable[[str], None]
