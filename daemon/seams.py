"""The libraries and limits that tests and benchmarks replace in a daemon, as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daemon.clock import Clock, SystemClock
from daemon.sources.factory import MakeSource, make_source
from daemon.system.time_limits import Limits
from detectors.factory import open_classifier, open_detector

if TYPE_CHECKING:
    from daemon.classification.open_models import OpenClassifier
    from daemon.config.root import Config
    from daemon.control.model_swap import OpenDetector
    from daemon.fleet.member import CoordinatorAccess
    from daemon.http.kit import Api
    from daemon.monitoring.monitor import FrameStatsListener
    from daemon.monitoring.probes import GpuProbe
    from daemon.pipeline.core import Core
    from daemon.pipeline.lane import Observer
    from daemon.publish.kit import Publishing
    from daemon.publish.port import Sink
    from daemon.sources.decode import DecoderBackend, NoHardwareDecoder
    from detectors.port import ModelInfo

    OpenProbe = Callable[[Callable[[], Iterable[int]]], GpuProbe]
    Reload = Callable[[Config], Callable[[], None]]
    Attach = Callable[[Core, Api | None, Publishing], Sequence[Reload]]
    Observe = Callable[[Core], Sequence[Observer]]
    FindHardware = Callable[[Config, ModelInfo], DecoderBackend | NoHardwareDecoder]


def _find_hardware(config: Config, models: ModelInfo) -> DecoderBackend | NoHardwareDecoder:
    from daemon.control.decoders import decoder_backend_of

    return decoder_backend_of(config, models)


def _open_probe(pids: Callable[[], Iterable[int]]) -> GpuProbe:
    from daemon.monitoring.probes import open_gpu_probe

    return open_gpu_probe(pids)


def _attach_nothing(core: Core, api: Api | None, publishing: Publishing) -> Sequence[Reload]:  # noqa: ARG001 - see `Seams`
    return ()


def _observe_nothing(core: Core) -> Sequence[Observer]:  # noqa: ARG001 - see `Seams`
    return ()


@dataclass(frozen=True)
class Seams:
    """Attributes:
    limits: time limits of all waits.
    open_detector: opens the model.
    open_classifier: opens the model of a classifier.
    make_source: makes a source. Capture processes get it pickled.
    find_hardware: finds the GPU's decoder.
    open_probe: opens the probe of the GPUs.
    rows: called with the ledger's rows.
    sinks: get all messages, besides subscribers.
    coordinator: of the fleet; None for that of the configuration.
    ends_early: a lossless replay that is stopped before its end is no fault.
    attach: opens parts that the command line asks for; how they follow a reload.
    observe: opens parts that see each picture with its boxes, likewise.
    """

    clock: Clock = field(default_factory=SystemClock)
    limits: Limits = field(default_factory=Limits)
    open_detector: OpenDetector = open_detector
    open_classifier: OpenClassifier = open_classifier
    make_source: MakeSource = make_source
    find_hardware: FindHardware = _find_hardware
    open_probe: OpenProbe = _open_probe
    rows: Sequence[FrameStatsListener] = ()
    sinks: Sequence[Sink] = ()
    coordinator: CoordinatorAccess | None = None
    ends_early: bool = False
    attach: Attach = _attach_nothing
    observe: Observe = _observe_nothing
