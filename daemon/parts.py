"""The parts of a daemon, as its API and those that look into it see them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from daemon.analytics.events import EventPublisher
from daemon.analytics.rules import Rules
from daemon.classification.second_stage import SecondStage
from daemon.control.changes import Changes
from daemon.control.plan import PROCESS_BYTES, with_classifiers
from daemon.control.sources import SourceManager
from daemon.fleet.kit import Fleet
from daemon.monitoring.health import Health
from daemon.monitoring.monitor import Monitor
from daemon.pipeline.core import Core
from daemon.pipeline.lanes import Lanes
from daemon.publish.kit import Publishing
from detectors.port import ModelInfo


@dataclass(frozen=True)
class DaemonParts:
    """Attributes:
    core: what all are built from.
    classifiers: of the second stage.
    fleet: None for a daemon that shares its sources with no other.
    http_url: of the API on this machine; None without one.
    """

    core: Core
    health: Health
    sources: SourceManager
    lanes: Lanes
    changes: Changes
    publishing: Publishing
    monitor: Monitor
    events: EventPublisher
    rules: Rules
    classifiers: SecondStage
    fleet: Fleet | None
    http_url: str | None

    @property
    def pids(self) -> list[int]:
        """Ids of this process, of the capture processes, and of the rules'."""
        return [os.getpid(), *self.sources.pids, *self.rules.pids]

    @property
    def model(self) -> ModelInfo:
        return self.lanes.info

    @property
    def memory_plan(self) -> tuple[tuple[str, int], ...]:
        """Planned bytes of the GPU's memory by purpose, with the sources connected now."""
        models = with_classifiers(self.model, self.classifiers.models).memory
        decoding = ("decoding", self.sources.memory)
        if not self.sources.pids:
            return (*models, decoding)
        processes = len(self.sources.pids) * PROCESS_BYTES if self.model.gpu is not None else 0
        return (*models, decoding, ("capture processes", processes))
