"""In the daemon's process: what it knows of a source that another process captures."""

from __future__ import annotations

import itertools

from daemon.config import AvConfig, SourceConfig
from daemon.messages import State, VideoFormat
from daemon.system.stop import Stop

_numbers = itertools.count()


class RemoteCapture:
    """What the daemon knows of a source that another process captures; see `daemon.capture.capture.Capture`.

    Attributes:
        number: no other capture ever has it; messages name it.
        insists: on the GPU's decoder.
        end: set when nothing more comes of it.
        leaving: it was asked to end.
        broken: why it ends when its last frame's message is on its way; None if it goes on.
    """

    def __init__(self, config: SourceConfig, *, once: bool) -> None:
        self.number = next(_numbers)
        self.id, self.config, self.once = config.id, config, once
        self.wants_gpu = config.wants_gpu
        self.insists = isinstance(config, AvConfig) and config.decode == "nvdec"
        self.state: State = "connecting"
        self.failure: str | None = None
        self.format: VideoFormat | None = None
        self.first = self.seq = 0  # of the next frame
        self.end = Stop()
        self.leaving = False
        self.broken: str | None = None

    @property
    def ended(self) -> bool:
        """Nothing more comes of it."""
        return self.end.is_set

    @property
    def goes_on(self) -> bool:
        """Where its process dies, another is to read it."""
        return self.broken is None and not self.leaving

    def cancel(self) -> None:
        """It has not begun, and will not."""
        self.state = "ended"
        self.end.set()
