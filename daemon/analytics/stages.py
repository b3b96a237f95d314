"""The stages of analytics, in order: the tracker before the filter, the rules after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daemon.analytics.event import Event
from daemon.analytics.rules import RuleBook, RulesStage
from daemon.analytics.source_rules import RuleSet
from daemon.analytics.track_stage import Tracker, TrackerStage, check_groups
from daemon.config import Config
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.stages import Stage
from daemon.rule_config import check_labels


class AnalyticsStages:
    """Implements `daemon.pipeline.stages.Analytics`.

    Args:
        on_event: see `RuleBook`.

    Attributes:
        tracker: the tracks of all sources.
        rules: the rules of all sources.
    """

    def __init__(self, config: Config, ledger: Ledger, on_event: Callable[[Event], None]) -> None:
        self.tracker, self.rules = Tracker(config, ledger), RuleBook(on_event)
        self.rules.update(_rule_sets(config))

    @staticmethod
    def check(config: Config, labels: tuple[str, ...]) -> None:
        check_groups(config, labels)
        for source in config.active:
            check_labels(source.rules, labels, source.id)

    def configure(self, config: Config) -> None:
        self.tracker.configure(config)
        self.rules.update(_rule_sets(config))

    def forget(self, source: str) -> None:
        self.rules.forget(source)

    def before_filter(self, labels: tuple[str, ...]) -> Sequence[Stage]:
        return [TrackerStage(self.tracker, labels)]

    def after_filter(self, labels: tuple[str, ...]) -> Sequence[Stage]:
        return [RulesStage(self.rules, labels)]


def _rule_sets(config: Config) -> dict[str, RuleSet]:
    """The rules of each source, empty for a source without any."""
    sets = {}
    for source in config.active:
        tracking = config.tracking_of(source)
        sets[source.id] = RuleSet(
            source.rules if tracking else [], round((tracking or config.tracking).timeout_s * 1e9)
        )
    return sets
