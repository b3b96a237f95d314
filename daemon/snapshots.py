"""The next picture of a source, with or without what was found in it, for who asks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

from daemon.errors import LookoutError
from daemon.frames import Frame
from detectors.detections import Detections
from detectors.port import DetectorError, Lane

_QUALITY = 85
_BOX = (66, 200, 255)


@dataclass
class _Wish:
    """Somebody waits."""

    done: threading.Event = field(default_factory=threading.Event)
    picture: npt.NDArray[np.uint8] | None = None
    found: Detections | None = None
    labels: tuple[str, ...] = ()


class Snapshots:
    """Asked from any thread, filled by lanes; costs a frame nothing as long as nobody asks."""

    def __init__(self) -> None:
        self._wishes: dict[str, _Wish] = {}
        self._lock = threading.Lock()

    def look(self, frame: Frame, found: Detections, lane: Lane) -> None:
        """Called by lanes for each frame."""
        if not self._wishes:
            return
        with self._lock:
            wish = self._wishes.pop(frame.info.source, None)
        if wish:
            try:
                wish.picture = lane.fetch(frame.image).bgr
                wish.found = found
            except DetectorError:
                """Whoever waits is told that there was none."""
            wish.done.set()

    def take(self, source: str, timeout_s: float, labels: tuple[str, ...] | None) -> bytes:
        """A JPEG of the source's next frame.

        Args:
            labels: of the model, to draw boxes with; None for none.

        Raises:
            LookoutError: none came in time.
        """
        with self._lock:
            wish = self._wishes.setdefault(source, _Wish())
        wish.done.wait(timeout_s)
        with self._lock:
            if self._wishes.get(source) is wish:
                del self._wishes[source]
        if wish.picture is None or wish.found is None:
            raise LookoutError(f"no frame of {source} in {timeout_s:g} s: is it up?")
        picture = wish.picture if labels is None else _draw(wish.picture, wish.found, labels)
        encoded: bytes = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()
        return encoded


def _draw(picture: npt.NDArray[np.uint8], found: Detections, labels: tuple[str, ...]) -> npt.NDArray[np.uint8]:
    drawn = np.array(picture)
    thick = max(1, round(picture.shape[1] / 640))
    rows = zip(found.xyxy.round().astype(int).tolist(), found.confidence.tolist(), found.class_id.tolist())
    for (x0, y0, x1, y1), confidence, class_id in rows:
        cv2.rectangle(drawn, (x0, y0), (x1, y1), _BOX, thick)
        text = f"{labels[class_id] if class_id < len(labels) else class_id} {confidence:.2f}"
        cv2.putText(drawn, text, (x0, max(12, y0 - 4)), cv2.FONT_HERSHEY_SIMPLEX, 0.45 * thick, _BOX, thick)
    return drawn
