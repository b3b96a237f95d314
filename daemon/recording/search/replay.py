"""Stored frames through the rules that run live: `RuleBook`, and all below it.

Rules know what the tracker told them of each frame. So they find the same, as long as no frame is missing that they
have seen live. Where boxes are missing, the tracks that were there may have ended meanwhile, and nobody says so: those
that are not seen again within the time after which the tracker loses them are over.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from daemon.analytics.event import Event
from daemon.analytics.rules import RuleBook
from daemon.analytics.source_rules import RuleSet
from daemon.recording.tracks.records import SeenFrame, SeenTracks, StateChange, TrackingSettings, TracksHead
from daemon.rule_config import RuleConfig
from detectors.detections import TrackNews

_NO_SETTINGS = TrackingSettings(1_000_000_000, 3)  # of a file that was begun before the source was tracked

_NONE: AbstractSet[int] = frozenset()


class Found(msgspec.Struct, frozen=True):
    """
    Attributes:
        instance: of the daemon that found the boxes.
        partial: see `daemon.recording.search.answers.PastEvent`.
    """

    event: Event
    instance: str
    partial: bool


class Replay:
    """The rules of one source over frames of the past."""

    def __init__(self, source: str, rules: Sequence[RuleConfig]) -> None:
        self._source, self._rules = source, rules
        self._events: list[Event] = []
        self._settings = _NO_SETTINGS
        self._part = self._instance = ""
        self._begin("")

    def _begin(self, instance: str) -> None:
        """Another run of the daemon, which knows nothing of the one before."""
        self._instance, self._book = instance, RuleBook(self._events.append)
        self._known: set[int] = set()  # tracks that are not forgotten
        self._older: set[int] = set()  # those of which something is missing
        self._unsure: dict[int, int] = {}  # monotonic ns, until when a track must be seen
        self._has_lost = False
        self._frames = 0  # without one missing
        self._down_at: int | None = None  # monotonic ns

    def open(self, head: TracksHead) -> bool:
        """The boxes of another recording follow; returns whether another run of the daemon made them."""
        instance, _, _ = head.instance.partition(".")  # behind it stands the ring
        is_new = instance != self._instance
        if is_new:
            self._begin(instance)
        elif head.instance != self._part and "." in head.instance and "." in self._part:
            self._has_lost = True  # the source was added again, and what became of its tracks was not recorded
        self._part = head.instance
        if is_new or head.tracking not in (None, self._settings):
            self._settings = head.tracking or self._settings
            own = RuleSet(self._rules, self._settings.lost_after_ns, self._settings.confirm_hits)
            self._book.update({self._source: own})
        return is_new

    def lose(self) -> None:
        """Frames are missing that were analysed."""
        self._has_lost = True

    def observe(self, seen: SeenFrame) -> Sequence[Found]:
        """The next frame of a tracked source."""
        tracks = seen.tracks
        assert tracks is not None  # noqa: S101 - the caller looks
        ids = {*tracks.id.tolist()}
        ids.discard(0)
        if tracks.news is not None or self._has_lost or self._unsure or not ids <= self._known:
            tracks, gone = self._noted(tracks, ids, seen.frame.captured_ns)
        else:
            gone = _NONE
        self._frames += 1
        if self._down_at is not None and seen.frame.captured_ns > self._down_at:  # it is up, and nobody has kept that
            self._down_at = None
            self._book.on_state(self._source, "up", seen.frame.captured_ns)
        self._book.observe([seen.frame], [tracks], seen.served.labels)
        found = self._taken()
        if gone:
            self._known -= gone
            self._older &= self._known
        return found

    def _noted(self, tracks: SeenTracks, ids: set[int], now: int) -> tuple[SeenTracks, AbstractSet[int]]:
        """The tracks for the rules, and the ids that never come back."""
        news = tracks.news
        gone = {*news.forgotten} if news else set[int]()
        if self._has_lost:
            self._has_lost = False
            self._older |= self._known
            self._unsure = dict.fromkeys(self._known, now + self._settings.lost_after_ns)
            self._frames = 0
        if self._unsure:
            tracks = self._sure(tracks, ids | gone | {*(news.lost if news else ())}, now)
        whole = {id for id, boxes in news.earlier.items() if len(boxes) <= self._frames} if news else set[int]()
        self._older |= ids - self._known - whole
        self._known |= ids
        return tracks, gone

    def change(self, change: StateChange) -> Sequence[Found]:
        """The source has another state."""
        if change.state in ("down", "stalled"):
            self._down_at = self._down_at or change.monotonic
        elif change.state in ("up", "ended"):
            self._down_at = None
        self._book.on_state(self._source, change.state, change.monotonic)
        return self._taken()

    def finish(self, now_ns: int) -> Sequence[Found]:
        """No more frames are asked, up to a monotonic time."""
        self._book.tick(now_ns)
        return self._taken()

    def _sure(self, tracks: SeenTracks, told: set[int], now: int) -> SeenTracks:
        """End those tracks that would have been seen, or told of, by now."""
        for id in told & self._unsure.keys():
            del self._unsure[id]
        over = [id for id, until in self._unsure.items() if until < now]
        if not over:
            return tracks
        for id in over:
            del self._unsure[id]
            self._known.discard(id)
        news = tracks.news or TrackNews({})
        return msgspec.structs.replace(tracks, news=TrackNews(news.earlier, news.lost, [*news.forgotten, *over]))

    def _taken(self) -> Sequence[Found]:
        if not self._events:
            return ()
        events = [*self._events]
        self._events.clear()
        return [Found(event, self._instance, self._is_partial(event)) for event in events]

    def _is_partial(self, event: Event) -> bool:
        return event.track in self._older if event.track is not None else bool(self._older)
