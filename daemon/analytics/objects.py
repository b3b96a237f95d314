"""Objects: one appears in the picture, and is gone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from daemon.analytics.event import EndReason
from daemon.analytics.rule_context import NEVER, RETRY_NS, RuleContext, State
from daemon.analytics.timeline import Moment
from daemon.analytics.track import Track
from daemon.geometry import Trace
from daemon.rule_config import ObjectConfig


class _ObjectState(State):
    """Attributes:
    label: None until the object is reported.
    """

    __slots__ = ("began", "label", "moment")

    def __init__(self, began: int, moment: Moment) -> None:
        super().__init__()
        self.began, self.moment = began, moment
        self.label: str | None = None


class ObjectEvaluator:
    """Implements `Evaluator` for all of the picture."""

    weight, band, outlines, outlasts_loss = 1.0, 0.0, (), False

    def __init__(self, config: ObjectConfig) -> None:
        self.config = config

    def fit(self, width: int, height: int) -> None:
        """It has no place."""

    def start(self, x: float, y: float, since: int, scene: RuleContext) -> State:  # noqa: ARG002 - it has no place
        return _ObjectState(since, scene.moment())

    def step(self, state: State, track: Track, traces: Sequence[Trace], scene: RuleContext) -> None:  # noqa: ARG002 - no place
        assert isinstance(state, _ObjectState)  # noqa: S101
        state.clearance = math.inf
        self.wait(state, track, scene)

    def wait(self, state: State, track: Track, scene: RuleContext) -> None:
        assert isinstance(state, _ObjectState)  # noqa: S101
        state.due = NEVER
        if state.label is not None:
            return
        state.label = scene.wanted(self.config, track)
        if state.label is None:
            state.due = scene.now + RETRY_NS
            return
        scene.report("object", "appeared", self.config, state.moment, track, state.label)

    def end(self, state: State, track: Track, scene: RuleContext, reason: EndReason) -> None:
        assert isinstance(state, _ObjectState)  # noqa: S101
        if state.label is None:
            return
        dwell_ns, last = scene.end_of(track, reason) - state.began, Moment(track.stamp.frame, track.stamp)
        scene.report("object", "left", self.config, last, track, state.label, dwell_ns=dwell_ns, reason=reason)

    def settle(self, scene: RuleContext) -> None:
        """Each object is reported alone."""

    def close(self, scene: RuleContext, reason: EndReason) -> None:
        """Likewise."""
