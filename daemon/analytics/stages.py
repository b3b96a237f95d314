"""The stages of analytics, in order: the tracker before the filter, the rules after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from daemon.analytics.broad_phase import Search
from daemon.analytics.event_publisher import EventPublisher
from daemon.analytics.loops import Loops, fastest_loops
from daemon.analytics.rules import RuleBook, Rules, RulesStage
from daemon.analytics.source_rules import RuleSet
from daemon.analytics.track_stage import OnNote, Tracker, TrackerStage, check_groups
from daemon.config.root import Config
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.stages import Stage
from daemon.rule_config import check_labels


class AnalyticsStages:
    """Implements `daemon.pipeline.stages.Analytics`.

    Args:
        events: takes the events of rules.
        on_note, compile: see `Tracker`.
        rules: evaluates them; None to let lanes do it.

    Attributes:
        tracker: the tracks of all sources.
        rules: the rules of all sources.
    """

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        events: EventPublisher,
        on_note: OnNote,
        rules: Rules | None = None,
        compile: Callable[[Path | None], Loops] = fastest_loops,
    ) -> None:
        self.tracker, self._events = Tracker(config, ledger, on_note, compile), events
        self.rules: Rules = rules or RuleBook(events.hold, events.deliver, self._search)
        self._configure_rules(config)

    @staticmethod
    def check(config: Config, labels: Mapping[str, tuple[str, ...]]) -> None:
        check_groups(config, tuple(dict.fromkeys(label for own in labels.values() for label in own)))
        for model, own in labels.items():
            for source in config.for_model(model).active:
                check_labels(source.rules, own, source.id)

    def prepare(self, config: Config) -> None:
        self.tracker.prepare(config)
        self.rules.prepare(_rule_sets(config))

    def configure(self, config: Config) -> None:
        self.tracker.configure(config)
        self._configure_rules(config)

    def _configure_rules(self, config: Config) -> None:
        self.rules.configure(_rule_sets(config))
        self._events.expect(source.id for source in config.active if source.rules)

    def forget(self, source: str) -> None:
        self.rules.forget(source)
        self._events.forget(source)  # again: a lane may have held an event until now

    def before_filter(self, labels: tuple[str, ...], model: str) -> Sequence[Stage]:
        return [TrackerStage(self.tracker, labels, model)]

    def after_filter(self, labels: tuple[str, ...], model: str) -> Sequence[Stage]:  # noqa: ARG002 - those of tracks
        return [RulesStage(self.rules, labels)]

    def _search(self) -> Search | None:
        loops = self.tracker.loops
        return loops.search if loops else None


def _rule_sets(config: Config) -> dict[str, RuleSet]:
    """The rules of each source, empty for a source without any."""
    sets = {}
    for source in config.active:
        tracking = config.tracking_of(source)
        own = tracking or config.tracking
        sets[source.id] = RuleSet(source.rules if tracking else [], round(own.timeout_s * 1e9), own.confirm_hits)
    return sets
