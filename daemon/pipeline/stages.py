"""Steps between a lane's detections and the outbox, and the first of them: each source's own labels and confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from daemon.config import SourceConfig
from daemon.errors import ConfigError
from daemon.pipeline.frames import FrameInfo
from detectors.detections import Detections

_MAX_REMOVED = 1000  # sources whose filter is kept: a frame of each may still be in a lane


class Stage(Protocol):
    """Changes what was detected, a whole batch at a time.

    Lanes call it, several at once. A source has one batch in flight, so state of one source needs no lock; it outlives
    a model that is replaced.
    """

    def __call__(self, frames: Sequence[FrameInfo], found: Sequence[Detections]) -> Sequence[Detections]:
        """Return as many results as there are frames, in their order. Frames of one source come in order of `seq`."""
        ...


@dataclass(frozen=True)
class Defaults:
    """Applies to a source that sets nothing of its own.

    Attributes:
        confidence: weaker boxes are left out.
        floor: the detector gives none that are weaker.
        max_detections: boxes a picture, the strongest.
    """

    confidence: float
    floor: float
    max_detections: int


@dataclass(frozen=True)
class BoxFilter:
    """One source's threshold and labels. NMS is class-wise and greedy by confidence, so a filter after it gives what
    one before it would, as long as the detector's own limit of boxes is not reached.

    Attributes:
        confidence: weaker boxes are left out, None where the detector gives none.
        classes: (c,) bool, which class ids to keep, or None for all.
        max_detections: boxes that are kept, the strongest.
    """

    confidence: float | None
    classes: npt.NDArray[np.bool_] | None
    max_detections: int

    def __call__(self, detections: Detections) -> Detections:
        kept = detections
        if self.classes is not None:
            kept = kept[self.classes[kept.class_id]]
        if self.confidence is not None:
            kept = kept[kept.confidence >= self.confidence]
        return kept if len(kept.confidence) <= self.max_detections else kept[: self.max_detections]


def filter_of(source: SourceConfig, labels: tuple[str, ...], defaults: Defaults) -> BoxFilter:
    """A source's filter for a model with these labels.

    Raises:
        ConfigError: the model does not have one of the source's labels.
    """
    classes = None
    if source.labels is not None:
        unknown = sorted(set(source.labels) - set(labels))
        if unknown:
            raise ConfigError(
                f"sources, id {source.id}: the model has no label {unknown[0]!r}; it has {', '.join(labels)}"
            )
        classes = np.array([label in source.labels for label in labels])
    confidence = defaults.confidence if source.confidence is None else source.confidence
    return BoxFilter(confidence if confidence > defaults.floor else None, classes, defaults.max_detections)


class FilterStage:
    """Implements `Stage`: every source's `BoxFilter`, for one model. A source without one keeps all boxes.

    Filters change from any thread, while lanes use them.
    """

    def __init__(self, filters: Mapping[str, BoxFilter]) -> None:
        self._filters = dict(filters)
        self._removed: dict[str, BoxFilter] = {}  # the longest removed first

    def __call__(self, frames: Sequence[FrameInfo], found: Sequence[Detections]) -> Sequence[Detections]:
        filters, removed = self._filters, self._removed
        return [
            own(seen) if (own := filters.get(frame.source) or removed.get(frame.source)) else seen
            for frame, seen in zip(frames, found)
        ]

    def update(self, filters: Mapping[str, BoxFilter]) -> None:
        """Use these from here on."""
        self._filters.update(filters)

    def forget(self, source: str) -> None:
        """A source is removed; its last frame may still be in a lane, and is filtered all the same."""
        if source in self._filters:
            self._removed.pop(source, None)  # if it was removed before, that was not the last time
            self._removed[source] = self._filters[source]
            del self._filters[source]
            while len(self._removed) > _MAX_REMOVED:
                del self._removed[next(iter(self._removed))]
