"""The stage that tracks objects: before the filter, because the tracker needs weak boxes too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

import structlog

from daemon.analytics.grouping import Grouping
from daemon.analytics.loops import Loops, fastest_loops
from daemon.analytics.rate_for_tracking import note_on_pace
from daemon.analytics.source_tracks import SourceTracks
from daemon.analytics.track_step import MAX_TRACKS
from daemon.analytics.tracker import TrackSettings, track
from daemon.config.root import Config
from daemon.errors import ConfigError
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from detectors.detections import Detections

log = structlog.get_logger(__name__)
_MAX_REMOVED = 1000  # removed sources whose last id is kept
_Groups = tuple[tuple[str, ...], ...]
OnNote = Callable[[str, str | None], None]


class Tracker:
    """The tracks of all sources, and how each is tracked. It outlives models.

    Lanes use it for different sources at once. The thread of changes changes its settings meanwhile.

    Args:
        on_note: called with a source and what is to be said of its tracks, None for nothing any more. It must return
            soon. None if nobody is to know.
        compile: gives the loops, with the folder of compiled code.

    Attributes:
        loops: the fastest that work here; None before a source is tracked.
    """

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        on_note: OnNote | None = None,
        compile: Callable[[Path | None], Loops] = fastest_loops,
    ) -> None:
        self._ledger, self._on_note, self._compile = ledger, on_note, compile
        self._states: dict[str, SourceTracks] = {}
        self._last_ids: dict[str, int] = {}  # of removed sources, the longest removed first
        self.loops: Loops | None = None
        self.prepare(config)
        self.configure(config)

    def prepare(self, config: Config) -> None:
        """Have the loops ready, if a source is tracked; the first time on a machine it takes some ten seconds."""
        if self.loops is None and any(config.tracking_of(source) for source in config.active):
            self.loops = self._compile(config.model.cache)

    def configure(self, config: Config) -> None:
        """Put prepared settings into effect. Tracks of sources that are still tracked go on."""
        by_model = {model: settings_of(config.for_model(model)) for model in config.model_names}
        self.current: tuple[Mapping[str, Mapping[str, TrackSettings]], _Groups] = by_model, _groups_of(config)
        tracked = {source for settings in by_model.values() for source in settings}
        for source in list(self._states):  # a lane may add one meanwhile
            if source not in tracked:
                self._forget(source)

    def _forget(self, source: str) -> None:
        """End the tracks of a source. If it comes back its ids go on, while this is remembered."""
        state = self._states.pop(source, None)
        if state is None:
            return
        self._last_ids[source] = state.last_id
        self._note(source, None)
        while len(self._last_ids) > _MAX_REMOVED:
            del self._last_ids[next(iter(self._last_ids))]

    def states(self, frames: Sequence[FrameInfo]) -> list[SourceTracks]:
        """The tracks of each frame's source."""
        states = self._states
        return [states.get(frame.source) or self._begin(frame.source) for frame in frames]

    def _begin(self, source: str) -> SourceTracks:
        state = SourceTracks(self._last_ids.pop(source, 0), partial(self._note_pace, source))
        self._states[source] = state
        return state

    def _note_pace(self, source: str, interval_ns: int) -> None:
        """The frames of a source are too far apart, or, with 0, no longer."""
        own = next((settings[source] for settings in self.current[0].values() if source in settings), None)
        note = note_on_pace(1e9 / interval_ns, own.timeout_ns / 1e9) if interval_ns and own else None
        if note:
            log.warning(note, source=source)
        else:
            log.info("frames enough are analysed to track well", source=source)
        self._note(source, note)

    def _note(self, source: str, note: str | None) -> None:
        if self._on_note is not None:
            self._on_note(source, note)

    def add_untracked(self, count: int) -> None:
        """Count boxes that began no track; the first is logged."""
        if self._ledger.untracked == 0:
            log.warning("a source has too many tracks: new objects are left out", tracks=MAX_TRACKS)
        self._ledger.add_untracked(count)


class TrackerStage:
    """Implements `Stage` for one model: adds `tracks` to the boxes of sources that it is to track.

    Args:
        model: its name, where there are several.
    """

    def __init__(self, tracker: Tracker, labels: tuple[str, ...], model: str = "") -> None:
        self._tracker, self._labels, self._model = tracker, labels, model

    def __call__(self, frames: Sequence[FrameInfo], found: Sequence[Detections]) -> Sequence[Detections]:
        (by_model, groups), loops = self._tracker.current, self._tracker.loops
        settings = by_model.get(self._model)
        if not settings or loops is None:
            return found
        grouping, result = _grouping(self._labels, groups), list(found)
        for places in _turns(frames, settings):
            every = len(places) == len(frames)
            now = frames if every else [frames[place] for place in places]
            seen = found if every else [found[place] for place in places]
            owns = [settings[frame.source] for frame in now]
            boxes, left_out = track(loops.step, now, seen, self._tracker.states(now), owns, grouping)
            if left_out:
                self._tracker.add_untracked(left_out)
            if every:
                return boxes
            for place, one in zip(places, boxes):
                result[place] = one
        return result


def _turns(frames: Sequence[FrameInfo], settings: Mapping[str, TrackSettings]) -> Sequence[Sequence[int]]:
    """Places of tracked frames: the first of each source, the second of each source, and so on."""
    sources = {frame.source for frame in frames}
    if 0 < len(sources) == len(frames) and sources <= settings.keys():
        return [range(len(frames))]
    turns: list[list[int]] = []
    counts: dict[str, int] = {}
    for place, frame in enumerate(frames):
        if frame.source in settings:
            turn = counts[frame.source] = counts.get(frame.source, -1) + 1
            if turn == len(turns):
                turns.append([])
            turns[turn].append(place)
    return turns


@lru_cache(maxsize=16)
def _grouping(labels: tuple[str, ...], groups: _Groups) -> Grouping:
    """The grouping of a model's labels; equal arguments give the same object."""
    return Grouping(labels, groups)


def check_groups(config: Config, labels: tuple[str, ...]) -> None:
    """Check the groups of the configuration against a model's labels.

    Raises:
        ConfigError: the model does not have a label of a group.
    """
    for label in (label for group in config.tracking.groups for label in group):
        if label not in labels:
            raise ConfigError(f"tracking.groups: the model has no label {label!r}; it has {', '.join(labels)}")


def settings_of(config: Config) -> dict[str, TrackSettings]:
    """The settings of each source that a model tracks; equal ones are one object.

    Args:
        config: of the model.
    """
    found: dict[str, TrackSettings] = {}
    known: dict[TrackSettings, TrackSettings] = {}
    for source in config.active:
        own = config.tracking_of(source)
        if own is not None:
            threshold = config.model.confidence if source.confidence is None else source.confidence
            settings = TrackSettings(
                floor=min(own.floor, threshold),
                start=threshold if own.start is None else own.start,
                threshold=threshold,
                timeout_ns=round(own.timeout_s * 1e9),
                memory_ns=round(max(own.timeout_s, own.memory_s) * 1e9),
                confirm_hits=own.confirm_hits,
            )
            found[source.id] = known.setdefault(settings, settings)
    return found


def _groups_of(config: Config) -> _Groups:
    return tuple(tuple(group) for group in config.tracking.groups)
