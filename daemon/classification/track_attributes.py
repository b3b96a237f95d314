"""The attributes of one source's tracks, kept as long as the tracks."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.analytics.source_time import SourceClock
from daemon.analytics.track_step import MAX_TRACKS
from daemon.classification.votes import AttributeVotes
from daemon.pipeline.frames import FrameInfo
from lookout.messages import Attribute

_SWEEP_NS = 1_000_000_000


class TrackAttributes:
    """Attributes:
    ballots: of the track, by number of the classifier.
    shown: the attributes by name; None before the first. Replaced, never changed, because messages hold it.
    seen_ns: source time when the track was last examined.
    """

    __slots__ = ("ballots", "seen_ns", "shown")

    def __init__(self) -> None:
        self.ballots: dict[int, AttributeVotes] = {}
        self.shown: Mapping[str, Attribute] | None = None
        self.seen_ns = 0


class SourceAttributes:
    """The tracks of one source. A source has one batch in flight, so lanes need no lock.

    Args:
        interval_ns: source time between two examined frames. Looks at neighbouring frames would see the same.

    Attributes:
        tracks: by id.
        memory_ns: a track that is unseen for longer is forgotten. Ids are never used again.
    """

    def __init__(self, interval_ns: int, memory_ns: int) -> None:
        self.tracks: dict[int, TrackAttributes] = {}
        self.memory_ns = memory_ns
        self._interval_ns = interval_ns
        self._clock = SourceClock()
        self._due_ns = self._sweep_ns = 0

    @property
    def now_ns(self) -> int:
        """Source time since the first frame."""
        return self._clock.now

    def is_due(self, frame: FrameInfo) -> bool:
        """Go on to the next frame; whether it is to be examined."""
        self._clock.advance(frame)
        if self.now_ns < self._due_ns:
            return False
        self._due_ns = self.now_ns + self._interval_ns
        if self.now_ns >= self._sweep_ns:
            self._sweep()
        return True

    def track(self, id: int) -> TrackAttributes:
        """A track that is seen now."""
        found = self.tracks.get(id)
        if found is None:
            found = self.tracks[id] = TrackAttributes()
        found.seen_ns = self.now_ns
        return found

    def show(self, id: int, name: str, attribute: Attribute) -> Mapping[str, Attribute] | None:
        """Show an attribute with a track; returns those that were shown before, None if the track is forgotten."""
        track = self.tracks.get(id)
        if track is None:
            return None
        before = track.shown or {}
        track.shown = {**before, name: attribute}
        return before

    def remember_for(self, memory_ns: int) -> None:
        """Forget tracks that are unseen for longer."""
        self.memory_ns = memory_ns

    def _sweep(self) -> None:
        """Forget the tracks that have ended."""
        self._sweep_ns = self.now_ns + _SWEEP_NS
        oldest = self.now_ns - self._clock.timeout_ns(self.memory_ns)
        kept = {id: track for id, track in self.tracks.items() if track.seen_ns >= oldest}
        if len(kept) > MAX_TRACKS:
            latest = sorted(kept, key=lambda id: kept[id].seen_ns)[-MAX_TRACKS:]
            kept = {id: kept[id] for id in latest}
        self.tracks = kept
