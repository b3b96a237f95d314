"""The messages between the daemon and the process of its rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from daemon.analytics.event import Event
from daemon.analytics.source_rules import RuleSet
from daemon.analytics.track import SeenTracks
from daemon.pipeline.frames import FrameInfo
from detectors.detections import TrackNews, joined_bytes
from lookout.messages import State


class RulesMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message to or from the process of rules."""


# --- to the process: what happens to `daemon.analytics.rules.RuleBook`, in order --------------------------------------


class Configured(RulesMessage, frozen=True, tag=1):
    """All sources have these rules."""

    rules: dict[str, RuleSet]


class Forgotten(RulesMessage, frozen=True, tag=2):
    """A source is removed."""

    source: str


class StateChanged(RulesMessage, frozen=True, tag=3):
    """A source has another state."""

    source: str
    state: State
    now_ns: int


class Ticked(RulesMessage, frozen=True, tag=4):
    """A second is over."""

    now_ns: int


class Labelled(RulesMessage, frozen=True, tag=5):
    """Labels of a model, which have this number from now on."""

    number: int
    labels: tuple[str, ...]


class PackedNews(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`TrackNews`; the boxes are bytes."""

    earlier: dict[int, bytes]
    lost: list[int]
    forgotten: list[int]


class Observed(RulesMessage, frozen=True, tag=6):
    """The next frames of some sources, and the tracks of each.

    Attributes:
        labels: number of the model's labels.
        counts: rows of each frame.
        id, class_id, xyxy: the rows of all frames, as in `detectors.detections.Tracks`.
        news: of the frames that have some, by their place.
    """

    labels: int
    frames: list[FrameInfo]
    counts: list[int]
    id: bytearray
    class_id: bytearray
    xyxy: bytearray
    news: dict[int, PackedNews]

    def tracks(self) -> Iterator[SeenTracks]:
        """The tracks of each frame."""
        id, class_id = np.frombuffer(self.id, np.int64), np.frombuffer(self.class_id, np.int32)
        xyxy = np.frombuffer(self.xyxy, np.float32).reshape(-1, 4)
        begin = 0
        for place, count in enumerate(self.counts):
            end, news = begin + count, self.news.get(place)
            yield _Rows(id[begin:end], class_id[begin:end], xyxy[begin:end], _unpacked(news) if news else None)
            begin = end


class Mark(RulesMessage, frozen=True, tag=7):
    """The process answers with `Passed` when it has done all that came before."""

    number: int


ToRules = Configured | Forgotten | StateChanged | Ticked | Labelled | Observed | Mark


# --- from the process ------------------------------------------------------------------------------------------------


class Found(RulesMessage, frozen=True, tag=20):
    """Events in order, without the rule's configuration."""

    events: list[Event]


class Passed(RulesMessage, frozen=True, tag=21):
    number: int


class Failed(RulesMessage, frozen=True, tag=22):
    """The process ends."""

    reason: str


FromRules = Found | Passed | Failed


class _Rows(msgspec.Struct, frozen=True, eq=False):
    """Implements `SeenTracks`."""

    id: npt.NDArray[np.int64]
    class_id: npt.NDArray[np.int32]
    xyxy: npt.NDArray[np.float32]
    news: TrackNews | None


def _packed(news: TrackNews) -> PackedNews:
    return PackedNews({id: boxes.tobytes() for id, boxes in news.earlier.items()}, news.lost, news.forgotten)


def _unpacked(news: PackedNews) -> TrackNews:
    earlier = {id: np.frombuffer(boxes, np.float32).reshape(-1, 4) for id, boxes in news.earlier.items()}
    return TrackNews(earlier, news.lost, news.forgotten)


def observed(labels: int, frames: list[FrameInfo], tracks: Sequence[SeenTracks]) -> Observed:
    """At least one frame, and the tracks of each."""
    return Observed(
        labels,
        frames,
        [len(one.id) for one in tracks],
        joined_bytes([one.id for one in tracks]),
        joined_bytes([one.class_id for one in tracks]),
        joined_bytes([one.xyxy for one in tracks]),
        {place: _packed(one.news) for place, one in enumerate(tracks) if one.news is not None},
    )
