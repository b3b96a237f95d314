"""The tracker: ByteTrack's two stages on motion alone, in the source's own time, all sources of a batch in one call.

The time of a frame is its `pts`, or `captured_ns` where it has none. A track's numbers depend on the frames of its
source alone, so results are equal for any batches, lanes and repeats.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from daemon.analytics.grouping import Grouping
from daemon.analytics.rate_for_tracking import LEAST_FPS
from daemon.analytics.source_time import INTERVALS
from daemon.analytics.source_tracks import SourceTracks
from daemon.analytics.track_step import Integers, Step, StepInput, StepOutput
from daemon.pipeline.frames import FrameInfo
from detectors.detections import Detections, TrackNews, Tracks, joined

_CHANGES = 5  # the first column of `StepOutput.sources` that is read only where tracks change


@dataclass(frozen=True)
class TrackSettings:
    """How the objects of a source are tracked.

    Attributes:
        floor: boxes with less confidence are not looked at.
        start: boxes with less confidence do not begin a track.
        threshold: boxes with less confidence are removed, but for those of confirmed tracks.
        timeout_ns: a track that is not seen for longer is lost, in source time.
        memory_ns: and it is forgotten after so long, at least `timeout_ns`.
        confirm_hits: a track is confirmed after so many boxes in a row.
    """

    floor: float
    start: float
    threshold: float
    timeout_ns: int
    memory_ns: int
    confirm_hits: int

    @cached_property
    def slow_ns(self) -> int:
        """Frames that are further apart are too few to track well."""
        return min(self.timeout_ns // INTERVALS, round(1e9 / LEAST_FPS))

    @cached_property
    def near_slow_ns(self) -> int:
        """Frames that are closer than that are enough again."""
        return self.slow_ns * 3 // 4


def track(
    step: Step,
    frames: Sequence[FrameInfo],
    found: Sequence[Detections],
    states: Sequence[SourceTracks],
    settings: Sequence[TrackSettings],
    grouping: Grouping,
) -> tuple[list[Detections], int]:
    """Track the boxes of one frame of each of several sources, whose tracks are changed.

    Returns:
        The boxes of each frame that stay, with their tracks, and the number of boxes that began no track because their
        source has `MAX_TRACKS`.
    """
    numbers: list[int] = []
    for state, frame, own, one in zip(states, frames, settings, found):
        numbers += state.advance(frame, own, grouping, len(one.confidence))
    confirm, thresholds = _settings_of(settings)
    done = step(
        StepInput(
            joined([state.rows for state in states]),
            np.frombuffer(array("q", numbers), np.int64).reshape(-1, 8),
            confirm,
            thresholds,
            joined([one.xyxy for one in found]),
            joined([one.confidence for one in found]),
            joined([one.class_id for one in found]),
            grouping,
        )
    )
    return _given_back(done, found, states, settings), done.left_out


def _given_back(
    done: StepOutput, found: Sequence[Detections], states: Sequence[SourceTracks], settings: Sequence[TrackSettings]
) -> list[Detections]:
    """Give each source its tracks, and each frame its boxes.

    Nothing is copied: the next frame makes new arrays, and nobody changes the rows of another source.
    """
    tracks, (xyxy, confidence, class_id), (id, label, corners, velocity, age) = done.tracks, done.boxes, done.columns
    changes = _Changes(done)
    begin = first = before = 0
    result = []
    for place, (count, last_id, births, kept, changed) in enumerate(done.sources[:, :_CHANGES].tolist()):
        one, state, own = found[place], states[place], settings[place]
        end, last = begin + count, first + kept
        news = changes.of(place, state, own.confirm_hits) if changed or state.is_changing else None
        state.put_back(tracks[begin:end], count, last_id, births)
        now = slice(first, last)
        of_boxes = Tracks(id[now], label[now], corners[now], velocity[now], age[now], news)
        if kept == len(one.confidence):  # often, and each part of an array costs
            boxes = one.with_tracks(of_boxes, own.threshold)
        elif one.is_plain:
            boxes = one.with_rows(xyxy[now], confidence[now], class_id[now], of_boxes, own.threshold)
        else:
            kept_rows = one.select(done.rows[now] - before)
            boxes = kept_rows.with_rows(
                kept_rows.xyxy, kept_rows.confidence, kept_rows.class_id, of_boxes, own.threshold
            )
        result.append(boxes)
        begin, first, before = end, last, before + len(one.confidence)
    return result


class _Changes:
    """Tells each source in turn what has become of its tracks."""

    __slots__ = ("_done", "_forgotten", "_lost", "_named", "_young")

    def __init__(self, done: StepOutput) -> None:
        self._done = done
        self._named = self._young = self._lost = self._forgotten = 0  # rows that are told

    def of(self, place: int, state: SourceTracks, confirm_hits: int) -> TrackNews | None:
        """
        Args:
            place: of the source.
        """
        named, young, lost, forgotten = self._done.sources[place, _CHANGES:].tolist()
        news = None
        if named or lost or forgotten or state.dropped:
            news = self._news(state, named, lost, forgotten)
        first, self._young = self._young, self._young + young
        state.remember(self._done.young, first, self._young, confirm_hits)
        return news

    def _news(self, state: SourceTracks, named: int, lost: int, forgotten: int) -> TrackNews:
        done = self._done
        first_named, self._named = self._named, self._named + named
        first_lost, self._lost = self._lost, self._lost + lost
        first_forgotten, self._forgotten = self._forgotten, self._forgotten + forgotten
        gone = state.take_dropped()
        return TrackNews(
            {id: state.earlier(number) for id, number in done.named[first_named : self._named].tolist()},
            done.lost[first_lost : self._lost].tolist(),
            gone + done.forgotten[first_forgotten : self._forgotten].tolist(),
        )


def _settings_of(settings: Sequence[TrackSettings]) -> tuple[Integers, npt.NDArray[np.float32]]:
    """`StepInput.confirm` and `StepInput.thresholds`."""
    first = settings[0]
    if settings.count(first) == len(settings):  # the same object as a rule, which is quick to see
        return _equal_settings(first, len(settings))
    return (
        np.array([own.confirm_hits for own in settings], np.int64),
        np.array([(own.floor, own.start, own.threshold) for own in settings], np.float32),
    )


@lru_cache(maxsize=256)
def _equal_settings(own: TrackSettings, count: int) -> tuple[Integers, npt.NDArray[np.float32]]:
    return (
        np.array([own.confirm_hits] * count, np.int64),
        np.array([(own.floor, own.start, own.threshold)] * count, np.float32),
    )
