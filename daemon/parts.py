"""The parts of a daemon, as its API and those that look into it see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon.control.kit import process_ids
from daemon.control.plan import PROCESS_BYTES, with_classifiers

if TYPE_CHECKING:
    from daemon.analytics.event_publisher import EventPublisher
    from daemon.analytics.rules import Rules
    from daemon.control.admission import Admission
    from daemon.control.changes import Changes
    from daemon.control.overload import Overload
    from daemon.control.sources import SourceManager
    from daemon.monitoring.health import Health
    from daemon.monitoring.monitor import Monitor
    from daemon.pipeline.classifiers import Classifiers
    from daemon.pipeline.core import Core
    from daemon.pipeline.model_set import ModelSet
    from daemon.publish.kit import Publishing
    from daemon.recording.recording import Recording
    from daemon.tracing.tracing import Tracing
    from detectors.port import ModelInfo


@dataclass(frozen=True)
class DaemonParts:
    """Attributes:
    core: what all are built from.
    detecting: the models, with their boards and lanes.
    classifiers: of the second stage.
    overload: whether the daemon can carry what it has.
    recording: None without a store.
    http_url: of the API on this machine; None without one.
    tracing: None where no collector is named.
    """

    core: Core
    health: Health
    sources: SourceManager
    detecting: ModelSet
    changes: Changes
    publishing: Publishing
    monitor: Monitor
    events: EventPublisher
    rules: Rules
    classifiers: Classifiers
    admission: Admission
    overload: Overload
    recording: Recording | None
    http_url: str | None
    tracing: Tracing | None

    @property
    def pids(self) -> list[int]:
        """See `process_ids`."""
        return process_ids(self.sources, self.rules, self.recording)

    @property
    def model(self) -> ModelInfo:
        """The model, or the first of several."""
        return self.detecting.first.lanes.info

    @property
    def models(self) -> ModelInfo:
        """The model, with the memory of all models and classifiers in its plan."""
        return with_classifiers(self.detecting.plan(), self.classifiers.models)

    @property
    def endpoint(self) -> str:
        """Where subscribers connect."""
        return self.publishing.socket.endpoint

    @property
    def memory_plan(self) -> tuple[tuple[str, int], ...]:
        """Planned bytes of the GPU's memory by purpose, with the sources connected now."""
        models, decoding = self.models.memory, ("decoding", self.sources.memory)
        if not self.sources.pids:
            return (*models, decoding)
        processes = len(self.sources.pids) * PROCESS_BYTES if self.model.gpu is not None else 0
        return (*models, decoding, ("capture processes", processes))
