"""Gates: an object crosses two lines, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.analytics.event import EndReason
from daemon.analytics.lines import LineCrossingState
from daemon.analytics.place_rules import PlacedEvaluator, ns_of
from daemon.analytics.rule_context import FREE, NEVER, Direction, RuleContext, State
from daemon.analytics.timeline import Moment
from daemon.analytics.track import Track
from daemon.geometry import Trace
from daemon.rule_config import GateConfig


class _GateState(State):
    """Attributes:
    pending: the line that was crossed first, its direction, and the frame that first shows the anchor beyond.
    counted: time of the last pass that counted, ns.
    """

    __slots__ = ("counted", "pending", "sides")

    def __init__(self, moment: Moment) -> None:
        super().__init__()
        self.sides = (LineCrossingState(moment), LineCrossingState(moment))
        self.pending: tuple[int, int, Moment] | None = None
        self.counted = -NEVER

    @property
    def kind(self) -> int:
        first, second = self.sides
        return FREE + first.is_in_band + 2 * second.is_in_band


class GateEvaluator(PlacedEvaluator[GateConfig]):
    """Implements `Evaluator`. It does not matter in which direction each line is drawn, only which is the first."""

    outlasts_loss = True

    def __init__(self, config: GateConfig) -> None:
        super().__init__(config)
        self.band = config.band
        self._confirm_ns, self._cooldown_ns = ns_of(config.confirm_s), ns_of(config.cooldown_s)
        first, second = config.scaled(1, 1)
        along = [(points[-1][0] - points[0][0], points[-1][1] - points[0][1]) for points in (first, second)]
        alike = along[0][0] * along[1][0] + along[0][1] * along[1][1] >= 0
        self._signs = (1, 1 if alike else -1)

    def start(self, x: float, y: float, since: int, scene: RuleContext) -> State:  # noqa: ARG002 - `step` follows
        return _GateState(scene.moment())

    def step(self, state: State, track: Track, traces: Sequence[Trace], scene: RuleContext) -> None:
        assert isinstance(state, _GateState)  # noqa: S101
        band, begin = self.band * track.height, track.stamp.at
        crossed = []
        for number, (side, trace) in enumerate(zip(state.sides, traces)):
            outside = side.follow(trace, band, begin, scene)
            if outside and side.net and scene.now - side.at >= self._confirm_ns:
                crossed.append((side.at, number, self._signs[number] * (1 if side.net > 0 else -1)))
                side.restart()
        for at, number, sign in sorted(crossed):
            self._cross(state, at, number, sign, track, scene)
        state.clearance = min(side.clearance for side in state.sides)

    def wait(self, state: State, track: Track, scene: RuleContext) -> None:
        """Nothing happens at a time."""

    def end(self, state: State, track: Track, scene: RuleContext, reason: EndReason) -> None:
        """A pass that is not complete does not count."""

    def settle(self, scene: RuleContext) -> None:
        """A gate has nothing to say about all tracks."""

    def close(self, scene: RuleContext, reason: EndReason) -> None:
        """Likewise."""

    def _cross(self, state: _GateState, at: int, number: int, sign: int, track: Track, scene: RuleContext) -> None:
        """The track has crossed one of the lines."""
        pending = state.pending
        if pending is None or pending[1] != sign:
            # Back over the line that was crossed first; or over the other one, from the side where no pass ends.
            back = pending is not None and pending[0] == number
            state.pending = None if back else (number, sign, state.sides[number].moment)
            return
        if pending[0] == number:  # around the end of the line, and over it again
            return
        state.pending = None
        label = scene.wanted(self.config, track)
        if label is None or at - state.counted < self._cooldown_ns:
            return
        state.counted = at
        direction: Direction = "forward" if number == 1 else "backward"
        scene.report("gate", "passed", self.config, pending[2], track, label, direction=direction)
