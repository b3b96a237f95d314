"""The port of what runs captures: threads of this process, or capture processes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from daemon.config.sources import SourceConfig
from daemon.system.stop_token import StopToken
from lookout.messages import State, VideoFormat


class HostedCapture(Protocol):
    """A source's capture, wherever it runs. Any thread may call it.

    Attributes:
        failure: why a recording was not played to its end.
        format: while it is connected.
        end: set when the capture has ended.
    """

    config: SourceConfig
    failure: str | None
    format: VideoFormat | None
    end: StopToken

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def ended(self) -> bool: ...

    def count_from(self, seq: int) -> None:
        """Set the number of the first frame; before the start."""
        ...

    def request_end(self) -> None:
        """The source is removed: its last frames are still sent."""
        ...

    def retry(self) -> None:
        """Connect at once, if the source is down."""
        ...

    def leave_behind(self, *, stopping: bool) -> None:
        """End it, although its library does not.

        Args:
            stopping: the daemon ends, so nobody needs to be told.
        """
        ...

    def cancel(self) -> None:
        """End it before it has begun."""
        ...


CaptureT = TypeVar("CaptureT", bound=HostedCapture)


class CaptureHost(Protocol[CaptureT]):
    """Runs captures. The caller holds a lock, but for `report_stalled`, `join` and the properties.

    Attributes:
        memory: bytes of the GPU that are reserved for decoders.
        pids: of its processes.
        threads: those that have not ended.
    """

    @property
    def memory(self) -> int: ...
    @property
    def pids(self) -> list[int]: ...
    @property
    def threads(self) -> Sequence[threading.Thread]: ...

    def make(self, source: SourceConfig) -> CaptureT:
        """A capture that has not begun, and needs no closing.

        Raises:
            LookoutError: it cannot be made.
        """
        ...

    def begin(self, captures: Sequence[CaptureT]) -> None:
        """Begin captures; those of the first call share what they can.

        Raises:
            SourceError: the system has no thread for the first ones.
        """
        ...

    def has_begun(self, capture: CaptureT) -> bool: ...

    def report_stalled(self, captures: Sequence[CaptureT], after_s: float) -> Sequence[CaptureT]:
        """Report captures that have stalled; without the lock.

        Returns:
            Those whose library blocks for much longer.
        """
        ...

    def replace(self, blocked: Sequence[CaptureT]) -> Mapping[CaptureT, CaptureT]:
        """Every second: replace captures whose library blocks, and begin those that could not.

        Returns:
            By the old ones, those that have taken their place.
        """
        ...

    def request_stop(self) -> None:
        """Ask all captures that have begun to end. None begins after that."""
        ...

    def join(self, captures: Sequence[CaptureT], seconds: float) -> None:
        """Wait until all have ended; leave behind those that do not in time."""
        ...

    def close(self) -> None:
        """Release decoders and memory, once nobody uses their pictures."""
        ...
