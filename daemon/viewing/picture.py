"""A picture with its boxes, as a lane hands it over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daemon.pipeline.drawing import Picture, with_boxes
from daemon.pipeline.frames import Frame, FrameInfo
from detectors.detections import Detections
from detectors.port import Fetch, Lane


@dataclass(frozen=True)
class SeenPicture:
    """A frame that waits to be drawn. Its pixels are fetched by then."""

    info: FrameInfo
    fetch: Fetch
    found: Detections
    labels: tuple[str, ...]

    def drawn(self) -> Picture:
        """A copy with boxes.

        Raises:
            DetectorError: the pixels cannot be read.
        """
        return with_boxes(np.asarray(self.fetch().bgr), self.found, self.labels)


def seen(frame: Frame, found: Detections, lane: Lane, labels: tuple[str, ...]) -> SeenPicture:
    """Called in the lane, which only asks for a copy of the pixels.

    Raises:
        DetectorError: they cannot be fetched.
    """
    return SeenPicture(frame.info, lane.fetch(frame.image), found, labels)
