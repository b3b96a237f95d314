"""Videos of what each source's model has seen, for `lookout run --save-video`.

A lane never waits for a disk or an encoder: what these cannot take is left out, and counted.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import av
import structlog

from daemon.analytics.source_time import SourceClock
from daemon.lifecycle import ThreadPart
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse
from daemon.viewing.picture import SeenPicture, seen
from daemon.viewing.video_file import TICKS_S, VideoFile
from detectors.detections import Detections
from detectors.port import DetectorError, Lane

log = structlog.get_logger(__name__)
_WAITING = 16  # pictures of all sources
_IDLE_S = 0.2
_JUMP_TICKS = TICKS_S // 30  # a jump of a source's time counts as a frame


class _Video:
    """The file of one source, and what is missing in it."""

    def __init__(self, path: Path) -> None:
        self.file = VideoFile(path)
        self._clock = SourceClock()
        self._jumps = 0
        self._first = self._last = -1  # seq
        self.failure: str | None = None

    @property
    def left_out(self) -> int:
        """Captured frames between the first and the last one that are not in it."""
        return self._last - self._first + 1 - self.file.frames if self._first >= 0 else 0

    def add(self, picture: SeenPicture) -> None:
        """After a failure it is left out.

        Raises:
            OSError, DetectorError: it cannot be added.
        """
        info = picture.info
        self.note(info)
        if self.failure:
            return
        if self._clock.advance(info) is None:
            self._jumps += _JUMP_TICKS
        drawn = picture.drawn()
        self.file.add(drawn, self._clock.now * TICKS_S // 1_000_000_000 + self._jumps)

    def note(self, info: FrameInfo) -> None:
        """A frame that the file has soon, or that is left out."""
        self._first = info.seq if self._first < 0 else self._first
        self._last = info.seq

    def fail(self, error: Exception) -> None:
        """Nothing more is written; the first reason counts."""
        self.failure = self.failure or getattr(error, "strerror", None) or str(error)


class SavedVideos(ThreadPart):
    """Implements `daemon.pipeline.lane.Observer`.

    Args:
        paths: of the files, which exist and are empty, by source. Other sources are not saved.

    Attributes:
        is_waiting: it wants pictures.
    """

    def __init__(self, paths: Mapping[str, Path], runtime: Runtime) -> None:
        super().__init__("save-video", runtime, is_vital=False)
        self._videos = {source: _Video(path) for source, path in paths.items()}
        self._pictures = queue.Queue[SeenPicture](_WAITING)
        self._too_slow = Counter[str]()
        self._counting = threading.Lock()
        self.is_waiting = True

    def on_result(self, frame: Frame, found: Detections, lane: Lane, labels: tuple[str, ...]) -> None:
        """Called by lanes."""
        if frame.info.source not in self._videos or not self.is_waiting:
            return
        try:
            if self._pictures.full():
                raise queue.Full  # before the pixels are copied
            self._pictures.put_nowait(seen(frame, found, lane, labels))
        except (queue.Full, DetectorError):
            with self._counting:
                self._too_slow[frame.info.source] += 1

    def work(self, pulse: Pulse) -> None:
        while not (self.ending.is_set and self._pictures.empty()):
            pulse.rest()
            with suppress(queue.Empty):
                self._add(self._pictures.get(timeout=_IDLE_S))  # nothing holds it longer: its memory is lent
                pulse.beat()

    def run_once(self) -> None:
        """Write the pictures that wait."""
        with suppress(queue.Empty):
            while True:
                self._add(self._pictures.get_nowait())

    def close(self) -> None:
        """End the files, and say what is in each."""
        self.is_waiting = False
        with suppress(queue.Empty):
            while True:  # after a failure of the thread
                info = self._pictures.get_nowait().info
                self._videos[info.source].note(info)
        for source, video in self._videos.items():
            try:
                video.file.close()
            except (OSError, ValueError, av.error.FFmpegError) as error:
                video.fail(error)
            facts = {"file": str(video.file.path), "frames": video.file.frames, "left_out": video.left_out}
            facts["too_slow"] = self._too_slow[source]  # of those left out
            if video.failure:
                log.error("a video is not whole", source=source, reason=video.failure, **facts)
            elif video.file.frames:
                log.info("video saved", source=source, seconds=round(video.file.last / TICKS_S, 2), **facts)
            else:
                log.warning("no video: no frame was looked at", source=source, file=facts["file"])

    def on_error(self, error: Exception) -> None:  # noqa: ARG002
        log.exception("videos have failed: all else goes on without")

    def _add(self, picture: SeenPicture) -> None:
        video = self._videos[picture.info.source]
        try:
            video.add(picture)
        except (OSError, ValueError, av.error.FFmpegError, DetectorError) as error:
            video.fail(error)
            file = str(video.file.path)
            log.error("a video cannot be written", source=picture.info.source, file=file, reason=video.failure)
