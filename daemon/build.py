"""Builds a daemon: consumers before producers. The only file that knows every feature."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

import msgspec

from daemon.analytics.kit import open_analytics, open_events
from daemon.classification.kit import open_second_stage
from daemon.classification.second_stage import WithAttributes
from daemon.config import Config
from daemon.control.changes import ModelLoader
from daemon.control.kit import (
    Announcements,
    measure,
    open_admission,
    open_changes,
    open_gpu,
    open_sources,
    start_with_sources,
)
from daemon.control.model_trial import try_model
from daemon.control.plan import classifier_options, options_of, planned_processes, separates_rules, with_classifiers
from daemon.control.reload import defaults_of
from daemon.daemon import Daemon
from daemon.fleet.description import Machine
from daemon.fleet.kit import Fleet, MemberParts, open_fleet, open_grants
from daemon.fleet.overload import Overload
from daemon.http import check_libraries
from daemon.lifecycle import Lifecycle, Phase, Steps
from daemon.monitoring.health import Health
from daemon.monitoring.kit import open_monitor
from daemon.parts import DaemonParts
from daemon.pipeline.core import Core
from daemon.pipeline.kit import open_detection
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Outbox
from daemon.publish.fence import NoFence
from daemon.publish.kit import await_subscriber, open_publishing
from daemon.seams import Seams
from daemon.system import memory
from daemon.system.opener import Opener
from daemon.system.runtime import Runtime
from daemon.system.stop import Stop
from daemon.system.tuning import raise_nofile_limit
from detectors.factory import gpus, open_detector
from detectors.port import ModelInfo
from detectors.ranges import wanted_ranges

ReadConfig = Callable[[], Config]


def build(
    config: Config, seams: Seams | None = None, *, stop: Stop | None = None, read: ReadConfig | None = None
) -> Daemon:
    """Build a daemon, which is then started.

    Args:
        stop: ends it when it is set; also ends the waits of this function.
        read: reads the configuration file for a reload.

    Raises:
        ConfigError, DetectorError: with nothing left open.
        StoppedError: likewise, when `stop` is set.
    """
    seams, stop = seams or Seams(), stop or Stop()
    clock, limits = seams.clock, seams.limits
    memory.configure_malloc()
    raise_nofile_limit()  # capture processes, started from here, have it too
    health = Health(config.monitor.stuck_after_s, clock, stop)
    life = Lifecycle(clock, limits)
    ledger = Ledger([source.id for source in config.active])
    core = Core(
        config=config,
        instance=secrets.token_hex(4),
        ledger=ledger,
        outbox=Outbox(config.publisher.outbox, ledger, lossless=config.board.mode == "lossless"),
        life=life,
        opener=Opener(stop, config.model.open_timeout_s, limits, clock, life.leave_behind),
        runtime=Runtime(clock, health.watchdog, health.fail, limits, wanted_ranges()),
    )
    life.add(Steps("watchdog", start=health.watchdog.start, join=health.watchdog.stop), Phase.WATCHDOG)
    try:
        return _build(core, seams, health, stop, read or (lambda: config))
    except BaseException:
        life.undo()
        raise


def _build(core: Core, seams: Seams, health: Health, stop: Stop, read: ReadConfig) -> Daemon:
    config, clock = core.config, core.runtime.clock
    api = None
    if config.http.enabled:
        check_libraries()
        from daemon.http.kit import open_api, serve

        api = open_api(core)
    grants = open_grants(config, clock) if config.fleet.coordinator is not None else None
    publishing = open_publishing(core, grants or NoFence(), seams.sinks)
    events = open_events(core, grants.owner if grants else None)
    if config.model.backend in ("auto", "trt"):
        # The sources of a fleet may come to the GPU later.
        open_gpu(core, shares=planned_processes(config) > 1 and (grants is None or bool(gpus())))
    jobs = [(row.name, classifier_options(config, row)) for row in config.classifiers]
    second = open_second_stage(core, seams.open_classifier, jobs, health.degrade, events.on_event)
    analytics = open_analytics(
        core,
        events,
        publishing.publisher.note,
        lambda cache: publishing.boxes.compile(cache) if publishing.sends_json else None,
        apart=separates_rules(config),
    )
    options = options_of(config, second.memory_bytes)
    detector = core.opener.open_model(lambda: seams.open_detector(config.model.backend, options), config.model.path)
    observers = [row for row in (api.snapshots if api else None, events.snapshots) if row is not None]
    stages, followers = (WithAttributes(analytics, second), [second]) if jobs else (analytics, [])
    detection = open_detection(core, detector, defaults_of(config), stages, observers, followers, stop)
    lanes, views = detection.lanes, detection.views

    def model() -> ModelInfo:
        return with_classifiers(lanes.info, second.models)

    backend = core.opener.open("looking for the GPU's decoder", lambda: seams.find_hardware(config, model()))
    costs = measure(core, backend, detector) if config.admission != "off" or grants else None
    admission = open_admission(core, backend, costs, views)
    said = Announcements(core, publishing.publisher, events, analytics.rules)
    sources = open_sources(core, backend, seams.make_source, said, detection.board, admission, publishing.packets)
    overload = Overload(clock)
    monitor = open_monitor(
        core,
        sources,
        publishing.publisher,
        second.metrics,
        lambda: [os.getpid(), *sources.pids, *analytics.rules.pids],
        seams.open_probe,
        [*seams.rows, *([api.histograms.observe] if api else [])],
        [admission.learn, overload.learn],
        [analytics.rules.tick, events.tick],
        on_gpu=detector.info.gpu is not None,
    )
    trial = try_model if seams.open_detector is open_detector else None
    loader = ModelLoader(seams.open_detector, trial, second.memory_bytes)
    reloads = [publishing.reload, *([api.reload] if api else [])]
    changes = open_changes(core, sources, lanes, loader, monitor, reloads)
    await_subscriber(core, publishing.publisher, stop)
    start_with_sources(core, sources)
    health.conditions += [lambda: lanes.unavailable, lambda: core.ledger.fault_of_model]
    health.notes.append(lambda: overload.reason)
    endpoint, url = publishing.socket.endpoint, api.url if api else None
    fleet: Fleet | None = None
    if grants and costs:
        machine = Machine(costs.rates[costs.own], backend)
        seen = MemberParts(changes, sources, events, monitor, admission, machine, overload, model, endpoint, url)
        fleet = open_fleet(core, grants, seen, seams.coordinator, stop)
        health.conditions.append(lambda: fleet.member.condition)

    def read_again() -> Config:
        """The sources of a fleet are not in the file."""
        found = read()
        return found if grants is None else msgspec.structs.replace(found, sources=changes.config.sources)

    parts = DaemonParts(
        core, health, sources, lanes, changes, publishing, monitor, events, analytics.rules, second, fleet, url
    )
    if api:
        serve(api, core, parts, overload, read_again)
    return Daemon(parts, read_again, stop, ends_early=seams.ends_early)
