"""Snapshots: the next frame of a source as a JPEG, with or without its boxes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial

from daemon.errors import LookoutError, StoppingError
from daemon.pipeline.drawing import jpeg, with_boxes
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.system.stop_token import StopToken
from detectors.detections import Detections
from detectors.port import DetectorError, Fetch, HostImage, Lane


@dataclass(eq=False)
class _Request:
    """A request for a source's next frame.

    Attributes:
        labels: of the model that found the boxes; the model may change before they are drawn.
    """

    done: StopToken = field(default_factory=StopToken)
    info: FrameInfo | None = None
    fetch: Fetch | None = None
    found: Detections | None = None
    labels: tuple[str, ...] = ()


class Snapshots:
    """Called from any thread, filled by lanes; costs nothing for a frame without a request."""

    def __init__(self) -> None:
        self._requests: dict[str, list[_Request]] = {}
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def is_waiting(self) -> bool:
        """Whether there is a request."""
        return bool(self._requests)

    def stop(self) -> None:
        """Refuse all requests from now on: the daemon is stopping."""
        with self._lock:
            self._stopped = True
            waiting, self._requests = self._requests, {}
        for request in (request for requests in waiting.values() for request in requests):
            request.done.set()

    def on_result(self, frame: Frame, found: Detections, lane: Lane, labels: tuple[str, ...]) -> None:
        """Called by lanes."""
        with self._lock:
            requests = self._requests.pop(frame.info.source, [])
        if not requests:
            return
        try:
            fetch = lane.fetch(frame.image)
        except DetectorError as error:
            fetch = partial(_fail, error)
        for request in requests:
            request.info, request.fetch, request.found, request.labels = frame.info, fetch, found, labels
            request.done.set()

    def jpeg(self, source: str, timeout_s: float, *, boxes: bool) -> tuple[bytes, FrameInfo]:
        """A JPEG of the source's next frame, and which frame it is.

        Args:
            boxes: draw the detections.

        Raises:
            StoppingError: the daemon is stopping.
            LookoutError: no frame came in time, or it cannot be read.
        """
        request = _Request()
        with self._lock:
            if self._stopped:
                raise StoppingError
            self._requests.setdefault(source, []).append(request)
        if not request.done.wait(timeout_s):
            self._withdraw(source, request)
        if request.fetch is None or request.found is None or request.info is None:
            if self._stopped:
                raise StoppingError
            raise LookoutError(f"no frame of {source} in {timeout_s:g} s: is it up?")
        try:
            picture = request.fetch().bgr
        except DetectorError as error:
            raise LookoutError(f"the frame of {source} cannot be read: {error}") from error
        drawn = with_boxes(picture, request.found, request.labels) if boxes else picture
        return jpeg(drawn), request.info

    def _withdraw(self, source: str, request: _Request) -> None:
        with self._lock:
            requests = self._requests.get(source, [])
            if request in requests:
                requests.remove(request)
            if not requests:
                self._requests.pop(source, None)


def _fail(error: DetectorError) -> HostImage:
    raise error
