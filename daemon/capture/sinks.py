"""What a capture speaks to: in the daemon itself, or what stands for it in a capture process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from daemon.control.admission import LET_IN, Admission, Limit
from daemon.messages import State, VideoFormat
from daemon.pipeline.board import Cause, FrameBoard
from daemon.pipeline.frames import Frame
from daemon.pipeline.ledger import Ledger


class Board(Protocol):
    """Where frames go: `daemon.pipeline.board.FrameBoard`, or what stands for it in a capture process."""

    @property
    def live(self) -> bool: ...
    def listen(self, source: str, wake: Callable[[], None]) -> None: ...
    def put(self, frame: Frame, *, give_up: Cause | None = None, hold_ns: int = 0) -> bool: ...
    def is_settled(self, source: str) -> bool: ...


class Accounts(Protocol):
    """Where a frame's fate is noted: `daemon.pipeline.ledger.Ledger`, or what stands for it."""

    def captured(self, source: str) -> None: ...
    def dropped(self, source: str, seq: int, cause: str) -> None: ...


class Admits(Protocol):
    """Gives each source its share of the detector: `daemon.control.admission.Admission`, or what stands for it."""

    def enter(self, source: str, fps: float | None, limit: Limit, format: VideoFormat) -> Future[None]:
        """Done when the source is let in, or with a SourceError if it is not; returns at once."""
        ...

    def leave(self, source: str) -> None: ...


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


class Nobody:
    """In the place of all that a source speaks to, once it is another's turn to do so under its name."""

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
    def enter(self, source: str, fps: float | None, limit: Limit, format: VideoFormat) -> Future[None]:  # noqa: ARG002
        return LET_IN

    def leave(self, source: str) -> None: ...


@dataclass(frozen=True)
class CaptureSinks:
    """Where frames, their fates and states of all sources go, in the daemon's process.

    Attributes:
        forget: told of a source that is removed, whose last state is the past.
        on_failure: told why sources cannot be captured any more.
    """

    board: FrameBoard
    ledger: Ledger
    announce: Announce
    forget: Callable[[str], None]
    admission: Admission
    on_failure: Callable[[str], None]
