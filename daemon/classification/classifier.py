"""The thread of one classifier: takes looks from the queue and classifies them in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from daemon.classification.crops import Crop, CropQueue
from daemon.lifecycle import ThreadPart
from daemon.system.runtime import Runtime
from daemon.system.watchdog import Pulse
from detectors.port import DetectorError, DetectorUnavailableError, SecondDetector, SecondLane

log = structlog.get_logger(__name__)
_IDLE_S = 0.5
_GATHER_S = 0.005  # pause after a batch that was not full, so that this thread and lanes wake less often
OnResult = Callable[[Crop, str, float], None]


class Classifier(ThreadPart):
    """Owns a classifier's model, and one lane of it.

    A classifier that fails looks at nothing more. Detection goes on without it. Told to stop, it drops the looks that
    are not done, and ends after the batch under way.

    Args:
        name: of the classifier.
        on_result: called with each look, the strongest label and its confidence.
        on_failure: called with the part and the reason.

    Attributes:
        queue: takes the looks.
        cutter: copies parts of pictures for it.
        model: facts about its model.
    """

    def __init__(
        self,
        name: str,
        detector: SecondDetector,
        room: int,
        on_result: OnResult,
        on_failure: Callable[[str, str], None],
        runtime: Runtime,
    ) -> None:
        super().__init__(f"classifier-{name}", runtime, is_vital=False)
        self.of = name
        self.queue, self.cutter = CropQueue(room), detector.cutter(room)
        self._detector = detector
        self.model = detector.info
        self._on_result, self._on_failure = on_result, on_failure

    def request_stop(self) -> None:
        self.queue.close("shutdown")
        super().request_stop()

    def work(self, pulse: Pulse) -> None:
        lane = self._detector.lane()
        try:
            while not self.queue.is_closed:
                pulse.rest()
                crops = self.queue.get(self._detector.info.max_batch, _IDLE_S)
                pulse.beat()
                self.cutter.release_done()
                if crops:
                    self.run_once(lane, crops)
                    if len(crops) < self._detector.info.max_batch:
                        self._clock.wait(self.ending, _GATHER_S)
        finally:
            with suppress(DetectorError):  # on a poisoned device the release fails, too
                lane.close()

    def on_error(self, error: Exception) -> None:
        self.fail(error)

    def run_once(self, lane: SecondLane, crops: Sequence[Crop]) -> None:
        """Classify one batch."""
        images = [crop.image for crop in crops]
        present = [(crop, image) for crop, image in zip(crops, images) if image is not None]  # others were dropped
        if not present:
            return
        try:
            results, _ = lane.detect([image for _, image in present])
        except DetectorUnavailableError:
            self.queue.give_up(crop for crop, _ in present)
            return
        labels = self._detector.info.labels
        for (crop, _), found in zip(present, results):
            if self.queue.complete(crop):
                best, sure = (int(found.class_id[0]), float(found.confidence[0])) if len(found) else (0, 0.0)
                self._on_result(crop, labels[best], sure)

    def fail(self, error: Exception) -> None:
        """Look at nothing more."""
        if self.queue.is_closed:
            return  # it was told to stop meanwhile
        reason = f"{error}" or type(error).__name__
        log.error("a classifier has failed: attributes go on without it", classifier=self.of, reason=reason)
        self.queue.close("failed", reason)
        self._on_failure(self.name, f"{reason}; restart to try again")

    def close(self) -> None:
        """Close the model. The thread does it at its end, so that none is closed under its lane."""
        try:
            with suppress(DetectorError):
                self.cutter.close()
                self._detector.close()
        except Exception:
            log.exception("a classifier cannot be closed", classifier=self.of)
