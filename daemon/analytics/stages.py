"""The stages of analytics, in order: the tracker before the filter, and what needs published boxes after it."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.analytics.track_stage import Tracker, TrackerStage, check_groups
from daemon.config import Config
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.stages import Stage


class AnalyticsStages:
    """Implements `daemon.pipeline.stages.Analytics`.

    Attributes:
        tracker: the tracks of all sources.
    """

    def __init__(self, config: Config, ledger: Ledger) -> None:
        self.tracker = Tracker(config, ledger)

    def check(self, config: Config, labels: tuple[str, ...]) -> None:
        check_groups(config, labels)

    def configure(self, config: Config) -> None:
        self.tracker.configure(config)

    def before_filter(self, labels: tuple[str, ...]) -> Sequence[Stage]:
        return [TrackerStage(self.tracker, labels)]

    def after_filter(self, labels: tuple[str, ...]) -> Sequence[Stage]:  # noqa: ARG002
        return []
