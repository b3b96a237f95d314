"""Builds a daemon: consumers before producers. The only file that knows every feature."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from daemon.analytics.kit import open_analytics, open_events
from daemon.control import kit as control
from daemon.control.overload import Overload
from daemon.control.plan import classifier_options, planned_processes, separates_rules, with_classifiers
from daemon.daemon import Daemon
from daemon.http import check_libraries
from daemon.lifecycle import Lifecycle
from daemon.monitoring.kit import open_health, open_monitor
from daemon.parts import DaemonParts
from daemon.pipeline.classifiers import Classifiers, NoClassifiers
from daemon.pipeline.core import Core
from daemon.pipeline.kit import Attached
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox
from daemon.playback.kit import open_playback
from daemon.publish.kit import await_subscriber, open_publishing
from daemon.seams import Seams
from daemon.system.opener import Opener
from daemon.system.runtime import Runtime
from daemon.system.stop_token import StopToken
from daemon.system.tuning import prepare_process
from daemon.tracing.kit import open_tracing
from detectors.factory import gpus
from detectors.ranges import wanted_ranges

if TYPE_CHECKING:
    from daemon.config.root import Config
    from daemon.monitoring.health import Health

ReadConfig = Callable[[], "Config"]


def build(
    config: Config, seams: Seams | None = None, *, stop: StopToken | None = None, read: ReadConfig | None = None
) -> Daemon:
    """Build a daemon, which is then started.

    Args:
        stop: ends it when it is set; also ends the waits of this function.
        read: reads the configuration file for a reload.

    Raises:
        ConfigError, DetectorError: with nothing left open.
        StoppedError: likewise, when `stop` is set.
    """
    seams, stop = seams or Seams(), stop or StopToken()
    clock, limits = seams.clock, seams.limits
    prepare_process()
    life = Lifecycle(clock, limits)
    health = open_health(config.monitor, life, clock, stop)
    ledger = Ledger()
    for source in config.active:
        ledger.add(source.id, config.accounts_of(source))
    core = Core(
        config=config,
        instance=secrets.token_hex(4),
        ledger=ledger,
        outbox=Outbox(config.publisher.outbox, ledger, lossless=config.board.mode == "lossless"),
        life=life,
        opener=Opener(stop, max(control.open_timeouts(config)), limits, clock, life.leave_behind),
        runtime=Runtime(clock, health.watchdog, health.fail, limits, wanted_ranges()),
    )
    try:
        return _build(core, seams, health, stop, read or (lambda: config))
    except BaseException:
        life.undo()
        raise


def _build(core: Core, seams: Seams, health: Health, stop: StopToken, read: ReadConfig) -> Daemon:
    config, clock = core.config, core.runtime.clock
    api = None
    if config.http.enabled:
        check_libraries()
        from daemon.http.kit import open_api, serve

        api = open_api(core)
    grants = fleet = None
    if config.fleet.coordinator is not None:
        from daemon.fleet.kit import open_fleet, open_grants

        grants = open_grants(config, clock)
    tracing = open_tracing(core, api.histograms.note_traces if api else None)
    publishing = open_publishing(core, grants, seams.sinks, tracing.choose if tracing else None)
    owner = grants.owner if grants else None
    recording = control.open_recording(core, owner)
    events = open_events(core, owner, recording)
    if control.may_use_gpu(config):
        # The sources of a fleet may come to the GPU later.
        control.open_gpu(core, shares=planned_processes(config) > 1 and (grants is None or bool(gpus())))
    second: Classifiers = NoClassifiers()
    if config.classifiers:
        from daemon.classification.kit import open_second_stage

        jobs = [(row.name, classifier_options(config, row)) for row in config.classifiers]
        second = open_second_stage(core, seams.open_classifier, jobs, health.degrade, events.on_event)
    analytics = open_analytics(
        core,
        events,
        publishing.publisher.note,
        lambda cache: publishing.boxes.compile(cache) if publishing.sends_json else None,
        apart=separates_rules(config),
    )
    observers = [row for row in (api.snapshots if api else None, events.snapshots, *seams.observe(core)) if row]
    stages = second.with_attributes(analytics)
    attach = Attached(stages, observers, [*second.followers, *(recording.followers if recording else ())])
    models = control.open_models(core, seams.open_detector, attach, second.memory_bytes, stop)
    planned = with_classifiers(models.plan(), second.models)
    backend = core.opener.open("looking for the GPU's decoder", lambda: seams.find_hardware(config, planned))
    costs = control.measure(core, backend, models) if config.admission != "off" or grants else None
    admission = control.open_admission(core, backend, costs, models)
    announcements = control.Announcements(core, publishing.publisher, events, analytics.rules, recording)
    taps = admission, publishing.packets, recording
    sources = control.open_sources(core, backend, seams.make_source, announcements, models.board, *taps)
    overload = Overload(clock, costs.weights if costs else {})
    monitor = open_monitor(
        core,
        sources,
        publishing.publisher,
        second.metrics,
        lambda: control.process_ids(sources, analytics.rules, recording),
        seams.open_probe,
        [*seams.rows, *([api.histograms.observe] if api else []), *([tracing.observe] if tracing else [])],
        [admission.learn, overload.learn],
        [analytics.rules.tick, events.tick, health.tick],
        lambda: models.infos,
    )
    loader = control.model_loader(seams.open_detector, second.memory_bytes)
    attached = *([api.reload] if api else ()), *open_playback(core, api), *seams.attach(core, api, publishing)
    changes = control.open_changes(core, sources, models, loader, monitor, [publishing.reload, *attached], recording)
    await_subscriber(core, publishing.publisher, stop)
    control.start_with_sources(core, sources)
    rest = monitor, events, analytics.rules, second, admission, overload, recording, api.url if api else None, tracing
    parts = DaemonParts(core, health, sources, models, changes, publishing, *rest)
    control.note_health(health, models, core.ledger, overload, events, recording)
    if grants and costs:
        fleet = open_fleet(parts, grants, costs, backend, seams.coordinator, stop)
        health.conditions["fleet"] = lambda: fleet.member.condition
    read = control.with_sources_of_fleet(read, changes) if fleet else read
    if api:
        serve(api, parts, fleet.figures if fleet else None, read)
    return Daemon(parts, fleet, read, stop, ends_early=seams.ends_early)
