"""The thread of one classifier: takes looks from the queue and classifies them in batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from daemon.classification.looks import Look, LookQueue
from daemon.system.runtime import Runtime
from detectors.port import DetectorError, Lane, SecondDetector

log = structlog.get_logger(__name__)
_IDLE_S = 0.5
OnLook = Callable[[Look, str, float], None]


class Classifier(threading.Thread):
    """Owns one lane of a classifier's model.

    A classifier that fails looks at nothing more. Detection goes on without it.

    Args:
        name: of the classifier.
        on_look: called with each look, the strongest label and its confidence.
        on_failure: called with the part and the reason.

    Attributes:
        queue: takes the looks.
        cutter: copies parts of pictures for it.
    """

    def __init__(
        self,
        name: str,
        detector: SecondDetector,
        room: int,
        on_look: OnLook,
        on_failure: Callable[[str, str], None],
        runtime: Runtime,
    ) -> None:
        super().__init__(name=f"classifier-{name}", daemon=True)
        self.of = name
        self.queue, self.cutter = LookQueue(room), detector.cutter(room)
        self._detector, self._runtime = detector, runtime
        self._on_look, self._on_failure = on_look, on_failure

    def stop(self) -> None:
        """Drop the looks that are not done, and end after the batch under way."""
        self.queue.close("shutdown")

    def run(self) -> None:
        lane: Lane | None = None
        try:
            with self._runtime.watchdog.pulse(self.name, vital=False) as pulse:
                lane = self._detector.lane()
                while not self.queue.is_closed:
                    pulse.rest()
                    looks = self.queue.take(self._detector.info.max_batch, _IDLE_S)
                    pulse.beat()
                    self.cutter.release_done()
                    if looks:
                        self.run_once(lane, looks)
        except Exception as error:  # noqa: BLE001 - libraries raise many kinds
            self.fail(error)
        finally:
            if lane:
                with suppress(DetectorError):
                    lane.close()

    def run_once(self, lane: Lane, looks: Sequence[Look]) -> None:
        """Classify one batch."""
        images = [look.image for look in looks]
        present = [(look, image) for look, image in zip(looks, images) if image is not None]  # others were dropped
        if not present:
            return
        results, _ = lane.detect([image for _, image in present])
        labels = self._detector.info.labels
        for (look, _), found in zip(present, results):
            if self.queue.finish(look):
                best, sure = (int(found.class_id[0]), float(found.confidence[0])) if len(found) else (0, 0.0)
                self._on_look(look, labels[best], sure)

    def fail(self, error: Exception) -> None:
        """Look at nothing more."""
        if self.queue.is_closed:
            return  # it was told to stop meanwhile
        reason = f"{error}" or type(error).__name__
        log.error("a classifier has failed: attributes go on without it", classifier=self.of, reason=reason)
        self.queue.close("failed", reason)
        self._on_failure(self.name, f"{reason}; restart to try again")

    def close(self) -> None:
        """Close the model, after the thread has ended."""
        self.cutter.close()
        self._detector.close()
