"""The rules of one source, and the tracks that they follow.

Most tracks are far from every edge in most frames. So each track has a circle in which no rule needs to look at it,
and a time before which none needs to. A track costs more than that comparison only when it leaves the circle.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from daemon.analytics.broad_phase import PATH, TRACED, UNKNOWN, WAITS, BroadPhase, Search, traces_of
from daemon.analytics.event import EndReason
from daemon.analytics.gates import GateEvaluator
from daemon.analytics.lines import LineEvaluator
from daemon.analytics.objects import ObjectEvaluator
from daemon.analytics.place_rules import weight_of
from daemon.analytics.rule_context import NEVER, Evaluator, OnEvent, RuleContext
from daemon.analytics.timeline import Stamp, Timeline
from daemon.analytics.track import MARGIN, Box, SeenTracks, Track
from daemon.analytics.zones import ZoneEvaluator
from daemon.geometry import Path, Trace, trace
from daemon.pipeline.frames import FrameInfo
from daemon.rule_config import GateConfig, LineConfig, PlacedRule, RuleConfig, ZoneConfig
from daemon.schedule import Schedule
from detectors.detections import TrackNews

log = structlog.get_logger(__name__)
_OTHER_ASPECT = 0.02  # share


@dataclass(frozen=True)
class RuleSet:
    """Attributes:
    lost_after_ns: a track that is not seen for longer is lost; the tracker's own limit.
    confirm_hits: boxes in a row that confirm a track.
    """

    rules: Sequence[RuleConfig]
    lost_after_ns: int
    confirm_hits: int


class _Active:
    """Whether a rule is active now, by its schedule."""

    __slots__ = ("_begin", "_end", "schedule", "value")

    def __init__(self, rule: RuleConfig) -> None:
        times, zone = rule.active, rule.timezone
        self.schedule = None if times is None or zone is None else Schedule(times, zone)
        self.value = self.schedule is None
        self._begin = self._end = 0

    def turns(self, utc_ns: int) -> bool:
        """Look at the clock; returns whether the value is another one."""
        if self.schedule is None or self._begin <= utc_ns < self._end:
            return False
        before = self.value
        self.value, self._begin, self._end = self.schedule.held(utc_ns)
        return self.value != before


class SourceRules:
    """One lane at a time gives it frames. Other threads may call all other methods meanwhile."""

    def __init__(self, source: str, on_event: OnEvent) -> None:
        self._source, self._on_event = source, on_event
        self._lock = threading.Lock()
        self._rules: RuleSet | None = None
        self._evaluators: list[Evaluator] = []
        self._crowds: list[Evaluator] = []  # those that look at all tracks together
        self._active: list[_Active] = []
        self._has_schedules = self._closed = False
        self._weight = 1.0  # of the lower edge in the anchor's height
        self._weights: list[float] = []  # of each rule
        self._one_anchor = True
        self._tracks: dict[int, Track] = {}
        self._scene: RuleContext | None = None  # from the first frame on
        self._phase: BroadPhase | None = None  # while a search is given

    @property
    def tracks(self) -> int:
        """Number of tracks that are followed."""
        return len(self._tracks)

    @property
    def timeout_ns(self) -> int:
        """For how long a source may give no frames before its tracks are lost."""
        with self._lock:
            lost_after_ns = self._rules.lost_after_ns if self._rules else 0
            return self._scene.timeline.clock.timeout_ns(lost_after_ns) if self._scene else lost_after_ns

    def update(self, rules: RuleSet) -> None:
        """Change the rules. A rule that is equal to one of before keeps its state.

        Equal rules change nothing: other sources may come and go, and this one's events stay the same to the last bit.
        """
        with self._lock:
            if rules == self._rules:
                return
            self._leave_phase()
            self._rules = rules
            old = self._evaluators
            kept = {index: old.index(same) for index, rule in enumerate(rules.rules) if (same := _equal(rule, old))}
            for number in set(range(len(old))) - set(kept.values()):
                self._end_rule(number, "rule_removed")
            self._evaluators = [
                old[kept[index]] if index in kept else _evaluator(rule) for index, rule in enumerate(rules.rules)
            ]
            self._active = [
                self._active[kept[index]] if index in kept else _Active(rule) for index, rule in enumerate(rules.rules)
            ]
            for track in self._tracks.values():
                track.states = [
                    track.states[kept[index]] if index in kept else None for index in range(len(self._evaluators))
                ]
                track.square_radius = track.completed_square_radius = -1.0
            self._crowds = [one for one in self._evaluators if isinstance(one, ZoneEvaluator) and one.config.crowd]
            self._has_schedules = any(active.schedule for active in self._active)
            self._weights = [evaluator.weight for evaluator in self._evaluators]
            weights = {weight_of(rule.anchor) for rule in rules.rules if isinstance(rule, PlacedRule)} or {1.0}
            self._weight, self._one_anchor = next(iter(weights)), len(weights) == 1
            if self._scene:
                self._scene.timeline.keep(rules.confirm_hits - 1)
                for evaluator in self._evaluators:
                    evaluator.fit(self._scene.width, self._scene.height)

    def end(self, reason: EndReason, *, close: bool = False) -> None:
        """End all tracks, as when the source is down.

        Args:
            close: frames that are still in a lane do not count.
        """
        with self._lock:
            self._closed = self._closed or close
            self._leave_phase()
            for number in range(len(self._evaluators)):
                self._end_rule(number, reason)
            self._tracks.clear()

    def observe(
        self, frame: FrameInfo, tracks: SeenTracks, labels: tuple[str, ...], search: Search | None = None
    ) -> None:
        """The next frame of the source, and its confirmed tracks.

        Args:
            search: of the broad phase; None if it is not compiled.
        """
        with self._lock:
            if self._closed or not self._evaluators:
                return
            scene, news = self._begin(frame, labels), tracks.news
            if scene is not None:
                if self._has_schedules:
                    self._look_at_clock(frame.captured_at)
                if search is not None:
                    self._follow_found(tracks, scene, search)
                else:
                    self._leave_phase()
                    self._follow(tracks, scene)
            if news is not None and (news.lost or news.forgotten):
                self._end_tracks(news)
            if scene is not None:
                for evaluator in self._crowds:
                    evaluator.settle(scene)

    def _begin(self, frame: FrameInfo, labels: tuple[str, ...]) -> RuleContext | None:
        """Let time go on; None if the frame is not newer than the last one."""
        scene = self._scene
        if scene is None:
            kept = self._rules.confirm_hits - 1 if self._rules else 0
            scene = self._scene = RuleContext(self._source, self._on_event, Timeline(frame, kept), labels)
            self._fit(scene, frame)
            return scene
        if frame.seq <= scene.timeline.stamp.frame.seq:
            return None
        scene.advance(frame, labels)
        if frame.width != scene.width or frame.height != scene.height:
            self._fit(scene, frame)
        return scene

    def _fit(self, scene: RuleContext, frame: FrameInfo) -> None:
        """Place the rules in pictures of another size."""
        across, down = frame.width / scene.width, frame.height / scene.height
        if self._tracks and abs(across / down - 1) > _OTHER_ASPECT:
            log.warning(
                "the pictures have another aspect ratio: look whether the rules still fit",
                source=self._source, before=f"{scene.width}x{scene.height}", now=f"{frame.width}x{frame.height}",
            )  # fmt: skip
        self._leave_phase()
        scene.resize(frame.width, frame.height)
        for evaluator in self._evaluators:
            evaluator.fit(frame.width, frame.height)
        for track in self._tracks.values():
            track.scale(across, down)
            for state in track.states:
                if state is not None:
                    state.clearance = -1.0

    def _follow(self, tracks: SeenTracks, scene: RuleContext) -> None:
        stamp, known = scene.timeline.stamp, self._tracks
        now, low = stamp.at, self._weight
        high = 1.0 - low
        left, top = scene.width * MARGIN, scene.height * MARGIN
        right, bottom = scene.width - left, scene.height - top
        for id, class_id, box in zip(tracks.id.tolist(), tracks.class_id.tolist(), tracks.xyxy.tolist()):
            track: Track | None = known.get(id)
            if track is None:
                if id > 0:
                    self._add(id, class_id, box, tracks, scene)
                continue
            x2 = box[0] + box[2] - track.x2
            y = high * box[1] + low * box[3] - track.y
            is_near = 0.25 * x2 * x2 + y * y < track.square_radius and now < track.due
            is_whole = left < box[0] and top < box[1] and box[2] < right and box[3] < bottom
            if is_near and is_whole and box[3] - box[1] >= track.least_height:
                track.box, track.stamp = box, stamp
                continue
            track.class_id = class_id
            before, track.box = track.box, track.completed(box, scene.width, scene.height, now)
            x2 = track.box[0] + track.box[2] - track.x2
            y = high * track.box[1] + low * track.box[3] - track.y
            if now < track.rules_due and 0.25 * x2 * x2 + y * y < track.completed_square_radius:
                track.due = min(track.rules_due, track.refresh_due)
                track.square_radius = track.completed_square_radius if track.is_plain else -1.0
            else:
                self._step(track, before, scene)
            track.stamp = stamp

    def _follow_found(self, tracks: SeenTracks, scene: RuleContext, search: Search) -> None:
        """Let the rules look at those tracks that the broad phase finds."""
        phase, stamp, known = self._phase, scene.timeline.stamp, self._tracks
        if phase is None:
            phase = self._phase = BroadPhase(self._evaluators)
        seen = -1
        for (place, rule, since, how), numbers in phase.search(search, tracks, stamp, scene.width, scene.height):
            if rule == UNKNOWN:
                self._follow_unknown(place, tracks, scene, phase)
                continue
            if place != seen:
                seen, track = place, known[tracks.id.item(place)]
                track.class_id = tracks.class_id.item(place)
                row = phase.move(track, since)
            evaluator, state = self._evaluators[rule], track.states[rule]
            if how == WAITS:
                evaluator.wait(state, track, scene)
            else:
                px, py, state.x, state.y = numbers[:PATH]
                if how == TRACED:
                    traces = traces_of(numbers, len(evaluator.outlines))
                else:
                    traces = _traced((px, py, state.x, state.y), evaluator)
                evaluator.step(state, track, traces, scene)
            phase.note(row, rule, state, has_stepped=how != WAITS)

    def _follow_unknown(self, place: int, tracks: SeenTracks, scene: RuleContext, phase: BroadPhase) -> None:
        """Let all rules look at a track."""
        id, class_id, box = tracks.id.item(place), tracks.class_id.item(place), tracks.xyxy[place].tolist()
        track: Track | None = self._tracks.get(id)
        if track is None:
            track = self._add(id, class_id, box, tracks, scene)
        else:
            phase.load(track)
            track.class_id = class_id
            before, track.box = track.box, track.completed(box, scene.width, scene.height, scene.now)
            self._step(track, before, scene)
            track.stamp = scene.timeline.stamp
        phase.store(track)

    def _leave_phase(self) -> None:
        """Bring all tracks up to date, because something else than their next frames changes them."""
        if self._phase:
            self._phase.load_all(self._tracks)
            self._phase = None

    def _add(self, id: int, class_id: int, box: Box, tracks: SeenTracks, scene: RuleContext) -> Track:
        """Follow a track from its first box on, in which it was not yet confirmed."""
        track = self._tracks[id] = Track(id, len(self._evaluators))
        track.class_id = class_id
        path = tracks.news.earlier.get(id) if tracks.news else None
        if path is not None and len(path):
            stamps = scene.timeline.latest(len(path))
            for back, stamp in zip(range(len(stamps), 0, -1), stamps):
                scene.look_back(back, stamp, box)
                self._see(track, path[-back].tolist(), stamp, scene)
            scene.look_back(0, scene.timeline.stamp, None)
        self._see(track, box, scene.timeline.stamp, scene)
        return track

    def _see(self, track: Track, box: Box, stamp: Stamp, scene: RuleContext) -> None:
        """Let the rules look at the box of a new track in one frame."""
        before, track.box = track.box, track.completed(box, scene.width, scene.height, stamp.at)
        if track.is_back:
            before, track.stamp = track.box, stamp
        self._step(track, before, scene)
        track.stamp = stamp

    def _step(self, track: Track, before: Box, scene: RuleContext) -> None:
        """Let the rules look at a track that one of them may have something to say about.

        Args:
            before: its box in the frame in which it was last seen.
        """
        now, radius, due = scene.now, math.inf, NEVER
        since, track.is_back = now - scene.half_ns if track.is_back else now, False
        x0, y0, x1, y1 = track.box
        x, height, states = 0.5 * (x0 + x1), y1 - y0, track.states
        for number, (evaluator, weight) in enumerate(zip(self._evaluators, self._weights)):
            y, state, path = y0 + height * weight, states[number], None
            if state is None:
                if not self._active[number].value:
                    continue
                state, path = evaluator.start(x, y, since, scene), (x, y, x, y)
                states[number] = state
            dx, dy, room = x - state.x, y - state.y, state.clearance
            away = dx * dx + dy * dy
            if room > 0 and away < room * room and now < state.due:
                room -= away**0.5
            else:
                state.x, state.y = x, y
                path = path or _path(before, track.box, weight)
                evaluator.step(state, track, _traced(path, evaluator), scene)
                room = state.clearance
            radius = room if room < radius else radius
            due = state.due if state.due < due else due
        track.x2, track.y = x0 + x1, y0 + height * self._weight
        track.rules_due, track.due = due, min(due, track.refresh_due)
        track.completed_square_radius = radius * radius if radius > 0 and self._one_anchor else -1.0
        track.square_radius = track.completed_square_radius if track.is_plain else -1.0

    def _end_tracks(self, news: TrackNews) -> None:
        """End the tracks that the tracker has lost or forgotten."""
        scene, forgotten = self._scene, {*news.forgotten}
        for id in (*news.lost, *news.forgotten):
            track = self._tracks.get(id)
            if track is None or scene is None:
                continue
            if self._phase:
                self._phase.remove(track)
            reason: EndReason = "left" if track.is_at_edge(scene.width, scene.height) else "lost"
            for number, (evaluator, state) in enumerate(zip(self._evaluators, track.states)):
                if state is not None and (id in forgotten or not evaluator.outlasts_loss):
                    evaluator.end(state, track, scene, reason)
                    track.states[number] = None
            track.is_back, track.square_radius, track.completed_square_radius = True, -1.0, -1.0
            if id in forgotten:
                del self._tracks[id]

    def _look_at_clock(self, utc_ns: int) -> None:
        for number, active in enumerate(self._active):
            if active.turns(utc_ns):
                self._leave_phase()
                if not active.value:
                    self._end_rule(number, "inactive")
                for track in self._tracks.values():
                    track.square_radius = track.completed_square_radius = -1.0

    def _end_rule(self, number: int, reason: EndReason) -> None:
        """End the states of one rule."""
        scene, evaluator = self._scene, self._evaluators[number]
        if scene is None:
            return
        for track in self._tracks.values():
            if (state := track.states[number]) is not None:
                track.states[number] = None
                evaluator.end(state, track, scene, reason)
        evaluator.close(scene, reason)


def _traced(path: Path, evaluator: Evaluator) -> list[Trace]:
    """A path along the outlines of a rule."""
    return [trace(path, edges) for edges in evaluator.outlines]


def _path(before: Box, box: Box, weight: float) -> Path:
    """The path of the anchor between two boxes."""
    return (
        0.5 * (before[0] + before[2]), before[1] + (before[3] - before[1]) * weight,
        0.5 * (box[0] + box[2]), box[1] + (box[3] - box[1]) * weight,
    )  # fmt: skip


def _equal(rule: RuleConfig, evaluators: Sequence[Evaluator]) -> Evaluator | None:
    return next((evaluator for evaluator in evaluators if evaluator.config == rule), None)


def _evaluator(rule: RuleConfig) -> Evaluator:
    if isinstance(rule, ZoneConfig):
        return ZoneEvaluator(rule)
    if isinstance(rule, LineConfig):
        return LineEvaluator(rule)
    return GateEvaluator(rule) if isinstance(rule, GateConfig) else ObjectEvaluator(rule)
