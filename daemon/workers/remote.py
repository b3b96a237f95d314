"""In the daemon's process: what it knows of sources that others capture, and where what they say goes."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.admission import Admission
from daemon.board import FrameBoard
from daemon.capture_port import Announce
from daemon.config import AvConfig, SourceConfig
from daemon.messages import State, VideoFormat
from daemon.metrics import Ledger


class RemoteCapture:
    """What the daemon knows of a source that another process captures; see `daemon.capture.Capture`.

    Attributes:
        insists: on the GPU's decoder.
    """

    def __init__(self, config: SourceConfig, *, once: bool, seq: int = 0) -> None:
        self.id, self.config, self.once = config.id, config, once
        self.asks_gpu = config.asks_gpu
        self.insists = isinstance(config, AvConfig) and config.decode == "nvdec"
        self.state: State = "connecting"
        self.failure: str | None = None
        self.format: VideoFormat | None = None
        self.first = self.seq = seq  # of the next frame
        self.ended = False
        self.leaving = False  # it was asked to end

    def disown(self) -> None:
        """The process that captures is ended instead."""


@dataclass(frozen=True)
class Surroundings:
    """What frames and states go into."""

    board: FrameBoard
    ledger: Ledger
    announce: Announce
    admission: Admission
