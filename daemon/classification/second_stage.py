"""The second stage as lanes see it: it adds attributes to detections, and asks for looks at boxes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from daemon.analytics.event import Event
from daemon.classification.classifier import Classifier
from daemon.classification.crops import Crop
from daemon.classification.track_attributes import SourceAttributes, TrackAttributes
from daemon.classification.votes import AttributeVotes, VotingRules, rules_of
from daemon.config.model import ClassifierConfig
from daemon.config.root import Config
from daemon.errors import ConfigError
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.pipeline.lane import Follower
from daemon.pipeline.outbox import Served
from daemon.pipeline.stages import Analytics, Stage
from daemon.system.runtime import Runtime
from detectors.detections import Detections
from detectors.port import DetectorError, ModelInfo, Part, SecondDetector
from lookout.messages import Attribute, ClassifierMetrics, EventAttribute

_INTERVAL_NS = 100_000_000  # of source time, between two examined frames
_AFTER_END_NS = 1_000_000_000  # for which the attributes of a forgotten track are kept
Box = tuple[float, float, float, float]


class SecondStage:
    """All classifiers, and the attributes of all tracks. Implements `daemon.pipeline.classifiers.Classifiers`, and
    `daemon.pipeline.lane.Follower`.

    Args:
        detectors: the opened model of each classifier of the configuration, in order.
        on_failure: called with the part and the reason when a classifier fails.
        on_event: called by a classifier's thread when an attribute settles or changes.

    Attributes:
        classifiers: one thread each.
    """

    def __init__(
        self,
        config: Config,
        detectors: Sequence[SecondDetector],
        on_failure: Callable[[str, str], None],
        on_event: Callable[[Event], None],
        runtime: Runtime,
    ) -> None:
        self._on_event = on_event
        self._configs = config.classifiers
        self._rules = [rules_of(row) for row in config.classifiers]
        self._states: dict[str, SourceAttributes] = {}
        self._wanted: dict[str, tuple[object, Sequence[tuple[int, ...]]]] = {}  # by model
        self._lock = threading.Lock()  # of shown attributes
        self.classifiers: list[Classifier] = []
        with ExitStack() as undo:  # a cutter may find no memory
            for detector in detectors:
                undo.callback(detector.close)
            for row, detector in zip(config.classifiers, detectors):
                on_result = partial(self._on_result, row.name)
                one = Classifier(row.name, detector, row.max_pending, on_result, on_failure, runtime)
                undo.callback(one.cutter.close)
                self.classifiers.append(one)
            undo.pop_all()
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Put the tracking of a configuration into effect. Classifiers stay as they are."""
        tracked = ((source.id, config.tracking_of(source)) for source in config.active)
        memories = {id: round(max(own.timeout_s, own.memory_s) * 1e9) + _AFTER_END_NS for id, own in tracked if own}
        self._memories_ns = memories
        for source, state in [*self._states.items()]:
            if source in memories:
                state.remember_for(memories[source])
            else:
                self.forget(source)

    def forget(self, source: str) -> None:
        """Remove a source. Looks at its boxes that are not done are counted as removed."""
        self._states.pop(source, None)
        for classifier in self.classifiers:
            classifier.queue.forget(source)

    def start(self) -> None:
        for classifier in self.classifiers:
            classifier.start()

    @property
    def models(self) -> dict[str, ModelInfo]:
        """The facts of each classifier's model, by name of the classifier."""
        return {classifier.of: classifier.model for classifier in self.classifiers}

    @property
    def memory_bytes(self) -> int:
        """GPU memory planned for all classifiers."""
        return sum(info.memory_bytes for info in self.models.values())

    @property
    def followers(self) -> Sequence[Follower]:
        return [self]

    def with_attributes(self, analytics: Analytics) -> Analytics:
        return WithAttributes(analytics, self)

    def metrics(self) -> dict[str, ClassifierMetrics]:
        """The accounts, by name of the classifier."""
        return {classifier.of: classifier.queue.metrics() for classifier in self.classifiers}

    def add_attributes(self, frame: FrameInfo, found: Detections) -> Detections:
        """The boxes of a frame with the attributes of their tracks."""
        state = self._states.get(frame.source)
        if state is None or found.tracks is None or not state.tracks:
            return found
        tracks = state.tracks
        rows = [None if (track := tracks.get(id)) is None else track.shown for id in found.tracks.id.tolist()]
        if not any(rows):
            return found
        column = np.empty(len(rows), object)
        column[:] = rows
        return found.with_attributes(column)

    def on_batch(self, frames: Sequence[Frame], found: Sequence[Detections], served: Served) -> None:
        """Copy the boxes that are to be looked at. Called by lanes."""
        labels = served.labels
        crops: list[dict[Crop, Part]] = [{} for _ in self.classifiers]
        wanted = self._wanted_by_class(labels, served.name)
        for frame, one in zip(frames, found):
            memory_ns = self._memories_ns.get(frame.info.source)
            if memory_ns is None or one.tracks is None:
                continue
            state = self._states.get(frame.info.source)
            if state is None:
                state = self._states[frame.info.source] = SourceAttributes(_INTERVAL_NS, memory_ns)
            if state.is_due(frame.info):
                self._examine(frame, one, state, labels, wanted, crops)
        for classifier, rows in zip(self.classifiers, crops):
            _submit(classifier, rows)

    def _wanted_by_class(self, labels: tuple[str, ...], model: str) -> Sequence[tuple[int, ...]]:
        """Numbers of the working classifiers for each class. They are kept, because every batch asks."""
        key = labels, tuple(classifier.queue.is_closed for classifier in self.classifiers)
        before = self._wanted.get(model)
        if before is not None and before[0] == key:
            return before[1]
        working = [(n, row) for n, row in enumerate(self._configs) if not key[1][n] and row.model in (None, model)]
        rows = [tuple(n for n, row in working if label in row.wanted) for label in labels]
        self._wanted[model] = key, rows
        return rows

    def _examine(
        self,
        frame: Frame,
        found: Detections,
        state: SourceAttributes,
        labels: tuple[str, ...],
        wanted: Sequence[tuple[int, ...]],
        crops: Sequence[dict[Crop, Part]],
    ) -> None:
        """Find the boxes of a frame that are to be looked at.

        Args:
            wanted: numbers of classifiers for each class.
        """
        assert found.tracks is not None  # noqa: S101 - the caller has checked
        ids, classes = found.tracks.id.tolist(), found.tracks.class_id.tolist()
        for id, class_id, box in zip(ids, classes, found.xyxy.tolist()):
            if not id or not wanted[class_id]:
                continue
            track = state.track(id)
            width, height = box[2] - box[0], box[3] - box[1]
            for number in wanted[class_id]:
                config = self._configs[number]
                if min(width, height) < config.min_px:
                    continue
                ballot = _ballot(track, number, self._rules[number])
                if ballot.is_due(width * height, state.now_ns):
                    ballot.request(width * height, state.now_ns)
                    part = Part(frame.image, padded(box, config, frame.image.width, frame.image.height))
                    crop = Crop(frame.info, id, labels[class_id], (box[0], box[1], box[2], box[3]), ballot)
                    crops[number][crop] = part

    def _on_result(self, name: str, crop: Crop, label: str, confidence: float) -> None:
        """Called by the classifier's thread."""
        attribute = crop.ballot.add(label, confidence, crop.frame.seq)
        state = self._states.get(crop.source)
        with self._lock:
            shown = state.show(crop.track, name, attribute) if state else None
        if shown is None:
            return
        before = shown.get(name)
        if attribute.settled and (before is None or not before.settled or before.value != attribute.value):
            self._on_event(_event_of(name, crop, attribute, is_first=before is None or not before.settled))


def _event_of(name: str, crop: Crop, attribute: Attribute, *, is_first: bool) -> Event:
    return Event(
        kind="attribute",
        phase="settled" if is_first else "changed",
        source=crop.source,
        rule=None,
        began=crop.frame,
        confirmed=crop.frame,
        track=crop.track,
        label=crop.label,
        box=crop.box,
        attribute=EventAttribute(name, attribute.value or "", attribute.confidence or 0.0),
    )


def _ballot(track: TrackAttributes, number: int, rules: VotingRules) -> AttributeVotes:
    found = track.ballots.get(number)
    if found is None:
        found = track.ballots[number] = AttributeVotes(rules)
    return found


def padded(box: Sequence[float], config: ClassifierConfig, width: int, height: int) -> tuple[int, int, int, int]:
    """The part of a picture of this size that a classifier sees of a box: whole pixels, at least one."""
    across, down = (box[2] - box[0]) * config.pad, (box[3] - box[1]) * config.pad
    left, top = max(0, math.floor(box[0] - across)), max(0, math.floor(box[1] - down))
    right, bottom = min(width, math.ceil(box[2] + across)), min(height, math.ceil(box[3] + down))
    left, top = min(left, width - 1), min(top, height - 1)
    return left, top, max(right, left + 1), max(bottom, top + 1)


def _submit(classifier: Classifier, parts: Mapping[Crop, Part]) -> None:
    """Copy those parts that have room, and queue them."""
    if not parts:
        return
    taken = classifier.queue.reserve([*parts])
    if not taken:
        return
    try:
        images = classifier.cutter.cut([parts[crop] for crop in taken])
    except DetectorError as error:
        classifier.fail(error)
        return
    classifier.queue.put(taken, images)


class _AttributeStage:
    """Implements `Stage`."""

    def __init__(self, second: SecondStage) -> None:
        self._second = second

    def __call__(self, frames: Sequence[FrameInfo], found: Sequence[Detections]) -> Sequence[Detections]:
        return [self._second.add_attributes(frame, one) for frame, one in zip(frames, found)]


class WithAttributes:
    """Implements `daemon.pipeline.stages.Analytics`: those of tracks, and the attributes last."""

    def __init__(self, analytics: Analytics, second: SecondStage) -> None:
        self._analytics, self._second = analytics, second

    def check(self, config: Config, labels: Mapping[str, tuple[str, ...]]) -> None:
        self._analytics.check(config, labels)
        for model, own in labels.items():
            check_wanted(config.for_model(model), own)

    def prepare(self, config: Config) -> None:
        self._analytics.prepare(config)

    def configure(self, config: Config) -> None:
        self._analytics.configure(config)
        self._second.configure(config)

    def forget(self, source: str) -> None:
        self._analytics.forget(source)
        self._second.forget(source)

    def before_filter(self, labels: tuple[str, ...], model: str) -> Sequence[Stage]:
        return self._analytics.before_filter(labels, model)

    def after_filter(self, labels: tuple[str, ...], model: str) -> Sequence[Stage]:
        return [*self._analytics.after_filter(labels, model), _AttributeStage(self._second)]


def check_wanted(config: Config, labels: tuple[str, ...]) -> None:
    """Check the labels that classifiers look at against those of the first model.

    Raises:
        ConfigError: the model does not have a label.
    """
    for index, row in enumerate(config.classifiers):
        for label in row.wanted:
            if label not in labels:
                raise ConfigError(
                    f"classifiers[{index}].for: the model has no label {label!r}; it has {', '.join(labels)}"
                )
