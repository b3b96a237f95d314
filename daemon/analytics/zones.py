"""Zones: an object enters, stays, and leaves; too many objects are a crowd."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.analytics.event import EndReason
from daemon.analytics.place_rules import PlacedEvaluator, ns_of
from daemon.analytics.rule_context import NEVER, RETRY_NS, RuleContext, State
from daemon.analytics.timeline import Moment
from daemon.analytics.track import Track
from daemon.geometry import Trace, is_inside
from daemon.rule_config import CrowdConfig, ZoneConfig


class _Visit:
    """A confirmed stay.

    Attributes:
        entered: the time of its begin, ns.
        dwells: number of dwell times that are over.
    """

    __slots__ = ("dwells", "entered", "label", "moment")

    def __init__(self, label: str, entered: int, moment: Moment) -> None:
        self.label, self.entered, self.moment = label, entered, moment
        self.dwells = 0


class _ZoneState(State):
    """Attributes:
    flags: whether the anchor is inside each polygon.
    within: whether it is inside any.
    since: the time from which it is within, or not, ns.
    moment: the frame that first shows it.
    visit: from its confirmation to the confirmation of its end.
    """

    __slots__ = ("flags", "moment", "since", "visit", "within")

    def __init__(self, flags: list[bool], since: int, moment: Moment) -> None:
        super().__init__()
        self.flags, self.since, self.moment, self.due = flags, since, moment, 0
        self.within = any(flags)
        self.visit: _Visit | None = None


class ZoneEvaluator(PlacedEvaluator[ZoneConfig]):
    """Implements `Evaluator` with the exact times at which the anchor's path crosses the zone's edges."""

    closed = True

    def __init__(self, config: ZoneConfig) -> None:
        super().__init__(config)
        self._enter_ns, self._exit_ns = ns_of(config.enter_s), ns_of(config.exit_s)
        self._dwells = [ns_of(seconds) for seconds in config.dwell_s]
        self._visits = 0
        self._crowd = Crowd(config, config.crowd) if config.crowd else None

    def start(self, x: float, y: float, since: int, scene: RuleContext) -> State:
        return _ZoneState(self._flags(x, y), since, scene.moment())

    def step(self, state: State, track: Track, traces: Sequence[Trace], scene: RuleContext) -> None:
        assert isinstance(state, _ZoneState)  # noqa: S101
        begin, now, is_known = track.stamp.at, scene.now, state.clearance >= 0
        state.clearance, crossings = min([trace.clearance for trace in traces]), _crossings(traces)
        if is_known and not crossings and now < state.due:
            return
        for share, number in crossings:
            state.flags[number] = not state.flags[number]
            if state.within != any(state.flags):
                self._turn(state, begin + round(share * (now - begin)), track, scene)
        if not is_known:  # the picture has another size
            state.flags = self._flags(state.x, state.y)
            if state.within != any(state.flags):
                self._turn(state, now, track, scene)
        self.wait(state, track, scene)

    def wait(self, state: State, track: Track, scene: RuleContext) -> None:
        assert isinstance(state, _ZoneState)  # noqa: S101
        self._confirm(state, scene.now, track, scene)
        state.due = self._due(state, scene.now)

    def end(self, state: State, track: Track, scene: RuleContext, reason: EndReason) -> None:
        assert isinstance(state, _ZoneState)  # noqa: S101
        if state.visit is None:
            return
        if state.within:
            state.since, state.moment = scene.end_of(track, reason), Moment(track.stamp.frame, track.stamp)
        elif reason == "lost":
            reason = "left"
        self._leave(state, track, scene, reason)

    def settle(self, scene: RuleContext) -> None:
        if self._crowd:
            self._crowd.update(self._visits, scene)

    def close(self, scene: RuleContext, reason: EndReason) -> None:
        if self._crowd:
            self._crowd.end(self._visits, scene, reason)

    def _flags(self, x: float, y: float) -> list[bool]:
        """Whether each polygon holds a point."""
        return [is_inside(x, y, edges) for edges in self.outlines]

    def _turn(self, state: _ZoneState, at: int, track: Track, scene: RuleContext) -> None:
        """The anchor goes in or out at this time."""
        self._confirm(state, at, track, scene)
        state.within, state.since, state.moment = not state.within, at, scene.moment()

    def _confirm(self, state: _ZoneState, until: int, track: Track, scene: RuleContext) -> None:
        """The anchor was within, or not, from `since` up to this time."""
        visit = state.visit
        if not state.within:
            if visit and until - state.since >= self._exit_ns:
                self._leave(state, track, scene, "left")
            return
        if not visit:
            if until - state.since < self._enter_ns or (label := scene.wanted(self.config, track)) is None:
                return
            visit = state.visit = _Visit(label, state.since, state.moment)
            self._visits += 1
            scene.report("zone", "entered", self.config, visit.moment, track, label)
        while visit.dwells < len(self._dwells) and until - visit.entered >= self._dwells[visit.dwells]:
            visit.dwells += 1
            dwell_ns = until - visit.entered
            scene.report("zone", "dwell", self.config, visit.moment, track, visit.label, dwell_ns=dwell_ns)

    def _leave(self, state: _ZoneState, track: Track, scene: RuleContext, reason: EndReason) -> None:
        """The stay has ended at `since`."""
        visit, state.visit = state.visit, None
        assert visit is not None  # noqa: S101
        self._visits -= 1
        scene.report(
            "zone", "left", self.config, state.moment, track, visit.label,
            dwell_ns=state.since - visit.entered, reason=reason,
        )  # fmt: skip

    def _due(self, state: _ZoneState, now: int) -> int:
        """The time at which a stay or its end is confirmed, or a dwell time is over, if the anchor does not move."""
        visit = state.visit
        if not state.within:
            return state.since + self._exit_ns if visit else NEVER
        if not visit:
            due = state.since + self._enter_ns
            return due if due > now else now + RETRY_NS
        return visit.entered + self._dwells[visit.dwells] if visit.dwells < len(self._dwells) else NEVER


def _crossings(traces: Sequence[Trace]) -> list[tuple[float, int]]:
    """The crossings of all polygons, in order: the share of the path, and the polygon's number."""
    return sorted([(share, number) for number, trace in enumerate(traces) for share, _ in trace.crossings])


class Crowd:
    """Too many tracks in a zone, for a while."""

    def __init__(self, rule: ZoneConfig, config: CrowdConfig) -> None:
        self._rule, self._config = rule, config
        self._wait_ns = ns_of(config.for_s)
        self._over = False
        self._turned: tuple[int, Moment] | None = None  # since when it is the other way round

    def update(self, visits: int, scene: RuleContext) -> None:
        """The number of tracks in the newest frame."""
        turned = visits <= self._config.end if self._over else visits > self._config.over
        if not turned:
            self._turned = None
            return
        if self._turned is None:
            self._turned = scene.now, scene.moment()
        since, moment = self._turned
        if scene.now - since >= self._wait_ns:
            self._over, self._turned = not self._over, None
            scene.report_crowd("over" if self._over else "under", self._rule, moment, visits)

    def end(self, visits: int, scene: RuleContext, reason: EndReason) -> None:
        """The zone no longer counts."""
        if self._over:
            self._over = False
            scene.report_crowd("under", self._rule, scene.moment(), visits, reason)
        self._turned = None
