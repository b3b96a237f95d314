"""The knowledge about a source that outlives its connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daemon.sources.frame_rate import FrameRate

if TYPE_CHECKING:
    from daemon.sources.hls import HlsFiles

_MAX_READ_NS = 300_000_000_000  # of what another connection has read


class HlsProgress:
    """How far a source was read, over its connections: a new one begins with segments that the last one has read."""

    def __init__(self) -> None:
        self._files: HlsFiles | None = None  # of the connection that was read last
        self._last: int | None = None  # time of its last picture, ns
        self._read_to: int | None = None  # pictures up to this time were read over another connection

    def is_new(self, time: int, files: HlsFiles) -> bool:
        """Whether a picture was not read before. Call it for each picture, in order.

        Args:
            time: its timestamp, ns.
            files: of its connection.
        """
        before = self._files
        if files is not before:
            again = (
                before is not None and not before.has_begun_anew and bool(set(before.segments) & set(files.segments))
            )
            self._files, self._read_to = files, self._last if again else None
        if self._read_to is not None and time <= self._read_to < time + _MAX_READ_NS:
            return False
        self._read_to, self._last = None, time
        return True


@dataclass
class SourceHistory:
    """Attributes:
    rate: as it was claimed or measured.
    hls: how far a live HLS source was read.
    """

    rate: FrameRate = field(default_factory=FrameRate)
    hls: HlsProgress = field(default_factory=HlsProgress)
