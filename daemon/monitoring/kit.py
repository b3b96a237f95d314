"""Attaches the watchdog and the monitor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from daemon.lifecycle import Lifecycle, Phase, Steps

if TYPE_CHECKING:
    from daemon.clock import Clock
    from daemon.config.root import MonitorConfig
    from daemon.monitoring.health import Health
    from daemon.monitoring.monitor import FrameStatsListener, Monitor, Sources
    from daemon.monitoring.probes import GpuProbe
    from daemon.pipeline.core import Core
    from daemon.publish.publisher import Publisher
    from daemon.system.stop_token import StopToken
    from detectors.port import ModelInfo
    from lookout.messages import ClassifierMetrics, Metrics

Pids = Callable[[], list[int]]


def open_health(config: MonitorConfig, life: Lifecycle, clock: Clock, stop: StopToken) -> Health:
    """
    Args:
        stop: of the daemon; set when a part fails.
    """
    from daemon.monitoring.health import Health

    health = Health(config.stuck_after_s, clock, stop)
    life.add(Steps("watchdog", start=health.watchdog.start, join=health.watchdog.stop), Phase.WATCHDOG)
    return health


def open_monitor(
    core: Core,
    sources: Sources,
    publisher: Publisher,
    classifiers: Callable[[], dict[str, ClassifierMetrics]],
    pids: Pids,
    open_probe: Callable[[Pids], GpuProbe],
    listeners: Sequence[FrameStatsListener],
    on_report: Sequence[Callable[[Metrics], None]],
    on_tick: Sequence[Callable[[int], None]],
    models: Callable[[], Mapping[str, ModelInfo]],
) -> Monitor:
    """
    Args:
        pids: of all processes of the daemon.
        listeners, on_report, on_tick: see `Monitor`.
        models: the facts of models, by name. Where they work on a GPU, threads are kept away from its interrupts.

    Raises:
        ConfigError: the file of frames cannot be written.
    """
    from daemon.monitoring.monitor import Monitor, MonitoredParts
    from daemon.monitoring.probes import GpuReader, ProcessProbe
    from daemon.system.affinity import Affinity

    clock = core.runtime.clock
    parts = MonitoredParts(
        core.ledger,
        sources,
        publisher,
        core.outbox,
        ProcessProbe(pids),
        GpuReader(lambda: open_probe(pids), clock),
        core.instance,
        classifiers,
        models,
    )
    ticks = [*on_tick]
    if any(info.gpu is not None for info in models().values()) and core.config.gpu.avoid_interrupts:
        ticks.insert(0, Affinity(pids).check)
    if any(info.gpu is not None for info in models().values()) and core.config.board.mode == "live":
        from daemon.monitoring.pace import PaceSetter
        from daemon.system.turns import HostLateness

        listeners = [*listeners, PaceSetter(HostLateness().tell)]
    return core.life.add(Monitor(core.config.monitor, parts, core.runtime, listeners, on_report, ticks), Phase.REPORTS)
