"""Attaches tracks, rules and events: the stores of events, and the process that rules may have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from daemon.lifecycle import Phase, Steps

if TYPE_CHECKING:
    from daemon.analytics.event_publisher import Clips, EventPublisher
    from daemon.analytics.loops import Loops
    from daemon.analytics.process.remote import RulesProcess
    from daemon.analytics.stages import AnalyticsStages
    from daemon.analytics.track_stage import OnNote
    from daemon.pipeline.core import Core
    from lookout.messages import Owner

log = structlog.get_logger(__name__)


def open_events(core: Core, owner: Callable[[str], Owner | None] | None, clips: Clips | None = None) -> EventPublisher:
    """
    Args:
        owner: of a source, where several daemons share them.
        clips: where sources are recorded.

    Raises:
        ConfigError: a store cannot be used.
    """
    from daemon.analytics.event_message import Identity
    from daemon.analytics.event_publisher import EventPublisher, Stores
    from daemon.analytics.journal import Journal, journal_path
    from daemon.analytics.snapshots import EventSnapshots

    config, life, runtime = core.config.events, core.life, core.runtime
    journal = snapshots = None
    if path := journal_path(config):
        journal = life.add(Journal(path, config, runtime), Phase.STORES)
        log.info("journal of events", path=str(path))
    if config.snapshots:
        snapshots = life.add(EventSnapshots(config.snapshots, runtime), Phase.STORES)
    stores = Stores(journal, snapshots, clips)
    return EventPublisher(Identity(core.instance, owner), core.outbox, stores, config.counts_interval_s, runtime.clock)


def open_analytics(
    core: Core, events: EventPublisher, on_note: OnNote, on_compiled: Callable[[Path | None], None], *, apart: bool
) -> AnalyticsStages:
    """
    Args:
        on_note: see `Tracker`.
        on_compiled: called after the tracker was compiled, when numba is in memory.
        apart: rules have a process of their own, which starts with the first of them.
    """
    from daemon.analytics.loops import PYTHON, fastest_loops
    from daemon.analytics.stages import AnalyticsStages

    rules = _rules_process(core, events) if apart else None
    core.life.add(Steps("events", join=lambda _: events.flush()), Phase.RULES)

    def compile(cache: Path | None) -> Loops:
        loops = fastest_loops(cache)
        if loops is not PYTHON:
            on_compiled(cache)
        return loops

    def compile_aside(cache: Path | None) -> Loops:
        """A stop does not wait for the compiler, which takes ten seconds the first time."""
        return core.opener.compute("compiling the tracker", partial(compile, cache))

    return AnalyticsStages(core.config, core.ledger, events, on_note, rules, compile_aside)


def _rules_process(core: Core, events: EventPublisher) -> RulesProcess:
    from daemon.analytics.process.main import RulesOrder
    from daemon.analytics.process.remote import RulesProcess

    config, life = core.config, core.life
    rules = RulesProcess(RulesOrder(config.log, config.model.cache), events, core.runtime)
    limit_s = core.runtime.limits.stop * Phase.RULES.share
    # If it hangs, all that announce the end of a source wait.
    life.add(Steps("the end of rules", request_stop=lambda: rules.end_by(limit_s)), Phase.SOURCES)
    life.add(Steps("rules", join=rules.stop), Phase.RULES)
    return rules
