"""In the daemon's process: a capture that runs in a capture process."""

from __future__ import annotations

import itertools
from typing import Protocol

from daemon.config.sources import AvConfig, SourceConfig
from daemon.system.stop_token import StopToken
from lookout.messages import State, VideoFormat

_numbers = itertools.count()


class Requests(Protocol):
    """The requests of a capture to its process: `daemon.capture.processes.pool.WorkerPool`. No method blocks."""

    def remove(self, capture: RemoteCapture) -> None: ...
    def retry(self, capture: RemoteCapture) -> None: ...
    def abandon(self, capture: RemoteCapture) -> None: ...


class RemoteCapture:
    """The daemon's view of a capture in another process. Implements `daemon.capture.host.HostedCapture`.

    Attributes:
        number: unique; messages refer to it.
        requires_gpu: `decode: nvdec`.
        end: set when the capture has ended.
        is_leaving: it was asked to end.
        broken: why it will end once its last frame is sent; None if it continues.
    """

    def __init__(self, config: SourceConfig, requests: Requests, *, plays_once: bool) -> None:
        self._requests = requests
        self.number = next(_numbers)
        self.id, self.config, self.plays_once = config.id, config, plays_once
        self.wants_gpu = config.wants_gpu
        self.requires_gpu = isinstance(config, AvConfig) and config.decode == "nvdec"
        self.state: State = "connecting"
        self.failure: str | None = None
        self.format: VideoFormat | None = None
        self.first_seq = self.seq = 0  # of the next frame
        self.end = StopToken()
        self.is_leaving = False
        self.broken: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the capture has ended."""
        return self.end.is_set

    @property
    def continues(self) -> bool:
        """Whether another process takes the source if this one dies."""
        return self.broken is None and not self.is_leaving

    def count_from(self, seq: int) -> None:
        self.first_seq = self.seq = seq

    def note_captured(self, seq: int) -> None:
        """A frame of this number has come, or was skipped."""
        self.seq = seq + 1

    def note_state(self, state: State, format: VideoFormat | None) -> None:
        """The state, as its process has it; None for the format that it had, while it is connected."""
        self.state = state
        if state not in ("up", "stalled"):
            self.format = None
        elif format:
            self.format = format

    def leave(self) -> None:
        """It was asked to end."""
        self.is_leaving = True

    def break_off(self, reason: str) -> None:
        """It ends once its last frame is sent."""
        self.broken = reason

    def finish(self, failure: str | None) -> None:
        """It has ended."""
        self.failure = failure
        self.end.set()

    def request_end(self) -> None:
        self._requests.remove(self)

    def retry(self) -> None:
        self._requests.retry(self)

    def leave_behind(self, *, stopping: bool) -> None:  # noqa: ARG002 - its process is killed
        self._requests.abandon(self)

    def cancel(self) -> None:
        self.state = "ended"
        self.end.set()
