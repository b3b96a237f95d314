"""The knowledge about a source that outlives its connections."""

from __future__ import annotations

from dataclasses import dataclass, field

from daemon.sources.frame_rate import FrameRate
from daemon.sources.hls import HlsProgress


@dataclass
class SourceHistory:
    """Attributes:
    rate: as it was claimed or measured.
    hls: how far a live HLS source was read.
    """

    rate: FrameRate = field(default_factory=FrameRate)
    hls: HlsProgress = field(default_factory=HlsProgress)
