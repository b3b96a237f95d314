"""Stages between a lane's detections and the outbox, and the filter of each source's labels and confidence."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from daemon.errors import ConfigError
from detectors.detections import Detections, joined, no_tracks, selected

if TYPE_CHECKING:
    from daemon.config.root import Config
    from daemon.config.sources import SourceConfig
    from daemon.pipeline.frames import FrameInfo

_MAX_REMOVED = 1000  # removed sources whose filter is kept: a lane may still have a frame of each


class Stage(Protocol):
    """Changes the detections of a batch.

    Several lanes call it at once. A source has one batch in flight, so the state of a source needs no lock. A stage may
    keep its state when the model is replaced.
    """

    def __call__(self, frames: Sequence[FrameInfo], found: Sequence[Detections]) -> Sequence[Detections]:
        """Return one result for each frame, in order. Frames of one source come in order of `seq`, and boxes the
        strongest first."""
        ...


class Analytics(Protocol):
    """Makes the stages around the filter. Their state of sources outlives models."""

    def check(self, config: Config, labels: Mapping[str, tuple[str, ...]]) -> None:
        """Check a configuration against the labels of each model.

        Raises:
            ConfigError: a model does not have a label.
        """
        ...

    def prepare(self, config: Config) -> None:
        """Make ready for a checked configuration.

        Raises:
            LookoutError: it cannot be put into effect, for want of a process or the like.
        """
        ...

    def configure(self, config: Config) -> None:
        """Put a prepared configuration into effect, while lanes work."""
        ...

    def forget(self, source: str) -> None:
        """Remove a source. Its last frames may still be in a lane."""
        ...

    def before_filter(self, labels: tuple[str, ...], model: str) -> Sequence[Stage]:
        """The stages of a model of this name that need all of its boxes."""
        ...

    def after_filter(self, labels: tuple[str, ...], model: str) -> Sequence[Stage]:
        """The stages of a model that need the published boxes alone."""
        ...


class NoAnalytics:
    """Implements `Analytics` without stages."""

    def check(self, config: Config, labels: Mapping[str, tuple[str, ...]]) -> None:
        """Accepts all."""

    def prepare(self, config: Config) -> None:
        """Needs nothing."""

    def configure(self, config: Config) -> None:
        """Has no state."""

    def forget(self, source: str) -> None:
        """Has no state."""

    def before_filter(self, labels: tuple[str, ...], model: str) -> Sequence[Stage]:  # noqa: ARG002
        return []

    def after_filter(self, labels: tuple[str, ...], model: str) -> Sequence[Stage]:  # noqa: ARG002
        return []


@dataclass(frozen=True)
class Defaults:
    """The filter of a source without settings of its own.

    Attributes:
        confidence: weaker boxes are removed.
        floor: the detector's own threshold.
        max_detections: maximum number of boxes in a picture.
    """

    confidence: float
    floor: float
    max_detections: int


@dataclass(frozen=True)
class BoxFilter:
    """One source's threshold and labels. Weak boxes of confirmed tracks are kept.

    NMS is class-wise and greedy by confidence, so a filter after it equals one before it, unless the detector's own
    limit of boxes is reached.

    Attributes:
        confidence: weaker boxes are removed; None if the detector's own threshold is enough.
        classes: (c,) bool, the class ids to keep; None for all.
        max_detections: maximum number of boxes; the strongest are kept.
    """

    confidence: float | None
    classes: npt.NDArray[np.bool_] | None
    max_detections: int

    def __call__(self, detections: Detections) -> Detections:
        kept = self.of_labels(detections)
        if self.confidence is not None and self.has_weak(kept):
            (kept,) = without_weak([kept], [self.confidence])
        return self.limited(kept)

    def of_labels(self, detections: Detections) -> Detections:
        return detections if self.classes is None else detections[self.classes[detections.class_id]]

    def has_weak(self, detections: Detections) -> bool:
        """Whether boxes weaker than the threshold may have to be removed. The last one is the weakest."""
        if self.confidence is None or detections.threshold >= self.confidence:
            return False
        count = len(detections.confidence)
        return count > 0 and detections.confidence.item(count - 1) < self.confidence

    def limited(self, detections: Detections) -> Detections:
        return detections if len(detections.confidence) <= self.max_detections else detections[: self.max_detections]


_ALL = BoxFilter(None, None, sys.maxsize)


def without_weak(found: Sequence[Detections], thresholds: Sequence[float]) -> list[Detections]:
    """The boxes of each picture that reach its threshold, or are of a confirmed track.

    All at once: numpy gives the interpreter's lock up for each selection of rows, and a lane waits to get it back.
    """
    counts = [len(one.confidence) for one in found]
    kept = joined([one.confidence for one in found]) >= np.repeat(np.array(thresholds, np.float32), counts)
    kept |= joined([no_tracks(one).id if one.tracks is None else one.tracks.id for one in found]) > 0
    return selected(found, kept)


def filter_of(source: SourceConfig, labels: tuple[str, ...], defaults: Defaults) -> BoxFilter:
    """A source's filter for a model with these labels.

    Raises:
        ConfigError: the model does not have a label of the source, or, where several models look at it, none of them.
    """
    classes = None
    if source.labels is not None:
        unknown = sorted(set(source.labels) - set(labels))
        if unknown and (not source.has_several_models or len(unknown) == len(set(source.labels))):
            raise ConfigError(
                f"sources, id {source.id}: the model has no label {unknown[0]!r}; it has {', '.join(labels)}"
            )
        classes = np.array([label in source.labels for label in labels])
    confidence = defaults.confidence if source.confidence is None else source.confidence
    return BoxFilter(confidence if confidence > defaults.floor else None, classes, defaults.max_detections)


class FilterStage:
    """Implements `Stage` with a `BoxFilter` for each source, for one model. A source without a filter keeps all boxes.

    Any thread may change filters while lanes use them.
    """

    def __init__(self, filters: Mapping[str, BoxFilter]) -> None:
        self._filters = dict(filters)
        self._removed: dict[str, BoxFilter] = {}  # the longest removed first

    def __call__(self, frames: Sequence[FrameInfo], found: Sequence[Detections]) -> Sequence[Detections]:
        filters, removed = self._filters, self._removed
        owns = [filters.get(frame.source) or removed.get(frame.source, _ALL) for frame in frames]
        kept = [seen if own.classes is None else own.of_labels(seen) for own, seen in zip(owns, found)]
        weak = [place for place, (own, seen) in enumerate(zip(owns, kept)) if own.has_weak(seen)]
        if weak:
            thresholds = [owns[place].confidence or 0.0 for place in weak]
            for place, strong in zip(weak, without_weak([kept[place] for place in weak], thresholds)):
                kept[place] = strong
        return [
            seen if len(seen.confidence) <= own.max_detections else own.limited(seen) for own, seen in zip(owns, kept)
        ]

    def update(self, filters: Mapping[str, BoxFilter]) -> None:
        """Replace the filters of these sources."""
        self._filters.update(filters)

    def forget(self, source: str) -> None:
        """Remove the filter of a source, but keep it for frames that are still in a lane."""
        if source in self._filters:
            self._removed.pop(source, None)  # the source was removed before and came back
            self._removed[source] = self._filters[source]
            del self._filters[source]
            while len(self._removed) > _MAX_REMOVED:
                del self._removed[next(iter(self._removed))]
