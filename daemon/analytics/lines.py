"""Lines: an object goes from one side to the other."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.analytics.event import EndReason
from daemon.analytics.place_rules import PlacedEvaluator, ns_of
from daemon.analytics.rule_context import FREE, NEVER, Direction, RuleContext, State
from daemon.analytics.timeline import Moment
from daemon.analytics.track import Track
from daemon.geometry import Trace
from daemon.rule_config import LineConfig


class LineCrossingState:
    """A track beside one line.

    Attributes:
        settled: the anchor was seen outside of the line's band. Only from then on crossings count.
        net: crossings since the anchor was last outside of the band: those to the right minus those to the left.
        at: the time of the crossing that made `net` what it is, ns.
        moment: the frame that first shows the anchor beyond.
    """

    __slots__ = ("_clearance", "at", "moment", "net", "settled")

    def __init__(self, moment: Moment) -> None:
        self.settled, self.net, self.at, self.moment = False, 0, 0, moment
        self._clearance = 0.0

    @property
    def is_in_band(self) -> bool:
        """Something changes when the anchor is outside of the band."""
        return self.net != 0 or not self.settled

    @property
    def clearance(self) -> float:
        """See `State.clearance`: an object that grows or shrinks has another band in each frame."""
        return -1.0 if self.net or not self.settled else self._clearance

    def follow(self, trace: Trace, band: float, begin: int, scene: RuleContext) -> bool:
        """Follow the anchor's path; returns whether the anchor is outside of the band.

        Args:
            band: the distance up to which the anchor is on no side, pixels.
            begin: time of the path's begin, ns.
        """
        if trace.crossings and (net := sum([sign for _, sign in trace.crossings])):
            if not self.net:
                share, _ = trace.crossings[-1]
                self.moment = scene.moment()
                self.at = begin + round(share * (scene.now - begin))
            self.net += net
        self._clearance = trace.clearance
        if trace.distance <= band:
            return False
        if not self.settled:
            self.settled, self.net = True, 0
        return True

    def restart(self) -> None:
        """Count crossings from here on: those of before are done with."""
        self.net = 0


class _LineState(State):
    """Attributes:
    counted: time of the last crossing that counted, ns.
    """

    __slots__ = ("counted", "side")

    def __init__(self, moment: Moment) -> None:
        super().__init__()
        self.side, self.counted = LineCrossingState(moment), -NEVER

    @property
    def kind(self) -> int:
        return FREE + self.side.is_in_band


class LineEvaluator(PlacedEvaluator[LineConfig]):
    """Implements `Evaluator`.

    A crossing counts when the anchor is outside of a band around the line, on the other side than before. Objects that
    tremble on the line, or go around its end, do not cross it.
    """

    outlasts_loss = True

    def __init__(self, config: LineConfig) -> None:
        super().__init__(config)
        self.band = config.band
        self._confirm_ns, self._cooldown_ns = ns_of(config.confirm_s), ns_of(config.cooldown_s)

    def start(self, x: float, y: float, since: int, scene: RuleContext) -> State:  # noqa: ARG002 - `step` follows
        return _LineState(scene.moment())

    def step(self, state: State, track: Track, traces: Sequence[Trace], scene: RuleContext) -> None:
        assert isinstance(state, _LineState)  # noqa: S101
        side = state.side
        outside = side.follow(traces[0], self.band * track.height, track.stamp.at, scene)
        if outside and side.net and scene.now - side.at >= self._confirm_ns:
            self._count(state, track, scene)
            side.restart()
        state.clearance = side.clearance

    def wait(self, state: State, track: Track, scene: RuleContext) -> None:
        """Nothing happens at a time."""

    def end(self, state: State, track: Track, scene: RuleContext, reason: EndReason) -> None:
        """A crossing that is not confirmed does not count."""

    def settle(self, scene: RuleContext) -> None:
        """A line has nothing to say about all tracks."""

    def close(self, scene: RuleContext, reason: EndReason) -> None:
        """Likewise."""

    def _count(self, state: _LineState, track: Track, scene: RuleContext) -> None:
        side = state.side
        label = scene.wanted(self.config, track)
        if label is None or side.at - state.counted < self._cooldown_ns:
            return
        state.counted = side.at
        direction: Direction = "forward" if side.net > 0 else "backward"
        scene.report("line", "crossed", self.config, side.moment, track, label, direction=direction)
