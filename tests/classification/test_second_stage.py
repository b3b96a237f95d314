"""The second stage between lanes and classifiers: what is looked at, and what boxes say afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from daemon.analytics.event import Event
from daemon.classification.second_stage import SecondStage, check_wanted, padded
from daemon.config.load import parse
from daemon.config.model import ClassifierConfig, ModelConfig
from daemon.config.root import Config
from daemon.config.sources import SyntheticConfig, TrackingConfig
from daemon.errors import ConfigError
from daemon.pipeline.frames import Frame
from daemon.pipeline.outbox import Served
from detectors.fake.detector import FakeDetector
from detectors.host_input import HostCutter
from detectors.port import DetectorError, HostImage, Options, PostprocessParams, SecondLane
from lookout.messages import Model
from tests.analytics.feed import LABELS, Box, frame_at, tracks_of
from tests.support.clock import ManualClock
from tests.support.runtime import runtime_of

BRIGHT = HostImage(np.full((400, 400, 3), 250, np.uint8))
HERE: Box = (100.0, 100.0, 200.0, 200.0)
_OPTIONS = Options(Path("none"), head="classify", wanted=PostprocessParams(0.0))


def _config(**settings: Any) -> Config:
    row = ClassifierConfig(name="light", path=Path("none"), wanted=["car"], **settings)
    return Config(
        model=ModelConfig(path=Path("none")),
        sources=[SyntheticConfig(id="cam"), SyntheticConfig(id="plain", tracking=False)],
        tracking=TrackingConfig(enabled=True),
        classifiers=[row],
    )


class Street:
    """A source's frames, and its classifier without a thread."""

    def __init__(self, config: Config, lane: SecondLane) -> None:
        self.failures: list[str] = []
        self.events: list[Event] = []
        fake = FakeDetector(_OPTIONS)
        self.second = SecondStage(
            config,
            [fake],
            lambda _, reason: self.failures.append(reason),
            self.events.append,
            runtime_of(ManualClock()),
        )
        (self.classifier,) = self.second.classifiers
        self._lane, self._seq = lane, 0

    def show(
        self,
        seconds: float,
        boxes: Mapping[int, Box],
        source: str = "cam",
        label: str = "car",
        picture: HostImage = BRIGHT,
        model: str = "",
    ) -> None:
        """The next frame."""
        found = tracks_of(boxes, dict.fromkeys(boxes, label))
        frame = Frame(frame_at(seconds, self._seq, (400, 400), source), picture)
        self._seq += 1
        served = Served(Model("none", "0" * 12, "none", "none", model or UNSET), LABELS)
        self.second.on_batch([frame], [found], served)

    def classify(self) -> int:
        """Let the classifier look; how many looks."""
        looks = self.classifier.queue.get(100, 0)
        self.classifier.run_once(self._lane, looks)
        return len(looks)

    def says(self, id: int, source: str = "cam") -> Any:
        """The attribute of a track in its next message."""
        found = self.second.add_attributes(frame_at(0, self._seq, source=source), tracks_of({id: HERE}))
        return None if found.attributes is None else found.attributes[0]["light"]


@pytest.fixture
def lane() -> Iterator[SecondLane]:
    with closing(FakeDetector(_OPTIONS).lane()) as lane:
        yield lane


def test_a_track_is_looked_at_until_it_settles(lane: SecondLane) -> None:
    street = Street(_config(), lane)
    assert street.says(1) is None
    looks = []
    for number in range(8):
        street.show(number * 0.2, {1: HERE})
        looks.append(street.classify())
    assert looks == [1, 1, 1, 0, 0, 0, 0, 0]
    said = street.says(1)
    assert (said.value, said.votes, said.settled, said.at_seq) == ("bright", 3, True, 2)


def test_a_classifier_looks_at_the_boxes_of_its_model(lane: SecondLane) -> None:
    """Another model may mean another thing by the same label."""
    street = Street(_config(model="roads"), lane)
    street.show(0, {1: HERE}, model="yards")
    assert street.classify() == 0
    street.show(1, {1: HERE}, model="roads")
    assert street.classify() == 1


def test_an_attribute_that_settles_or_changes_is_an_event(lane: SecondLane) -> None:
    """Once each, and not for every look."""
    street = Street(_config(every_s=0.2), lane)
    dark = HostImage(np.zeros((400, 400, 3), np.uint8))
    for number in range(20):
        street.show(number * 0.2, {1: HERE}, picture=BRIGHT if number < 8 else dark)
        street.classify()
    told = [(event.phase, event.attribute.value, event.confirmed.seq) for event in street.events if event.attribute]
    assert told == [("settled", "bright", 2), ("changed", "dark", 10)]
    first = street.events[0]
    assert (first.kind, first.source, first.track, first.label, first.box) == ("attribute", "cam", 1, "car", HERE)


def test_boxes_without_a_look_are_left_alone(lane: SecondLane) -> None:
    """Other labels, boxes without a track, small boxes, sources that are not tracked."""
    street = Street(_config(min_px=48), lane)
    street.show(0, {1: HERE}, label="person")
    street.show(1, {0: HERE})
    street.show(2, {2: (0.0, 0.0, 200.0, 47.0)})
    street.show(3, {3: HERE}, source="plain")
    street.show(4, {4: HERE}, source="unknown")
    assert street.classify() == 0
    assert street.classifier.queue.metrics().requested == 0
    street.show(5, {5: (0.0, 0.0, 48.0, 48.0)})
    assert street.classify() == 1


def test_neighbouring_frames_are_looked_at_once(lane: SecondLane) -> None:
    """At 100 frames a second one in ten."""
    street = Street(_config(attempts=100, agree=1.0), lane)
    looks = 0
    for number in range(100):
        street.show(number * 0.01, {1: HERE})
        looks += street.classify()
    assert looks == 10


def test_attributes_end_with_their_track(lane: SecondLane) -> None:
    """They stay over a gap that the track survives, and go some time after its end."""
    street = Street(_config(), lane)
    street.show(0, {1: HERE})
    street.classify()
    street.show(0.9, {})
    assert street.says(1) is not None
    street.show(5, {2: HERE})
    street.show(6.5, {2: HERE})
    assert street.says(1) is None


def test_a_removed_source_is_forgotten(lane: SecondLane) -> None:
    street = Street(_config(), lane)
    street.show(0, {1: HERE})
    street.classify()
    street.show(1, {1: HERE})
    street.second.forget("cam")
    assert street.says(1) is None
    assert street.classifier.queue.metrics().dropped.removed == 1


def test_a_source_that_is_no_longer_tracked_is_forgotten(lane: SecondLane) -> None:
    street = Street(_config(), lane)
    street.show(0, {1: HERE})
    street.second.configure(parse("model: {path: m}\nsources: [{id: cam, type: synthetic}]"))
    street.show(1, {1: HERE})
    assert street.classify() == 0
    assert street.classifier.queue.metrics().dropped.removed == 1


def test_a_full_queue_costs_looks_and_says_so(lane: SecondLane) -> None:
    street = Street(_config(max_pending=2), lane)
    street.show(0, dict.fromkeys(range(1, 6), HERE))
    found = street.classifier.queue.metrics()
    assert (found.requested, found.dropped.busy, found.pending) == (5, 3, 2)
    for number in range(1, 30):
        street.classify()
        street.show(number, dict.fromkeys(range(1, 6), HERE))
    assert all(street.says(id).settled for id in range(1, 6))  # the others had their turn later


def test_a_failed_classifier_is_asked_for_nothing(lane: SecondLane) -> None:
    street = Street(_config(), lane)
    street.show(0, {1: HERE})
    street.classifier.fail(RuntimeError("out of memory"))
    street.show(1, {1: HERE, 2: HERE})
    found = street.classifier.queue.metrics()
    assert (found.requested, found.dropped.failed, found.pending, found.failure) == (1, 1, 0, "out of memory")
    assert street.failures == ["out of memory; restart to try again"]


def test_the_part_of_a_box_is_padded_and_inside_the_picture() -> None:
    (row,) = _config(pad=0.1).classifiers
    assert padded((100, 100, 200, 300), row, 400, 400) == (90, 80, 210, 320)
    assert padded((0, 0, 400, 400), row, 400, 400) == (0, 0, 400, 400)
    rng = np.random.default_rng(0)
    for _ in range(500):
        left, top = rng.uniform(-50, 450, 2)
        box = (left, top, left + rng.uniform(0, 200), top + rng.uniform(0, 200))
        x0, y0, x1, y1 = padded(box, row, 400, 300)
        assert 0 <= x0 < x1 <= 400
        assert 0 <= y0 < y1 <= 300


class _Crowded(FakeDetector):
    """A GPU whose memory is full when the second cutter is made."""

    def __init__(self, closed: list[int], number: int) -> None:
        super().__init__(_OPTIONS)
        self._closed, self._number = closed, number

    def cutter(self, room: int) -> HostCutter:
        if self._number:
            raise DetectorError("out of memory")
        return super().cutter(room)

    def close(self) -> None:
        self._closed.append(self._number)


def test_all_models_are_closed_if_a_cutter_finds_no_memory() -> None:
    rows = [ClassifierConfig(name=name, path=Path("none"), wanted=["car"]) for name in ("light", "color")]
    closed: list[int] = []
    models = [_Crowded(closed, number) for number in range(2)]
    with pytest.raises(DetectorError, match="out of memory"):
        SecondStage(
            replace(_config(), classifiers=rows), models, lambda *_: None, lambda _: None, runtime_of(ManualClock())
        )
    assert sorted(closed) == [0, 1]


def test_a_label_that_the_model_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"classifiers\[0\].for: the model has no label 'car'; it has person, dog"):
        check_wanted(_config(), ("person", "dog"))
