"""Attaches the sources, their admission, and the changes of the configuration while the daemon runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
import structlog

from daemon.errors import ConfigError
from daemon.lifecycle import Closing, Phase, Steps
from detectors.factory import GPU_BACKENDS

if TYPE_CHECKING:
    from daemon.analytics.event_publisher import EventPublisher
    from daemon.analytics.rules import Rules
    from daemon.capture.sinks import WatchedPackets
    from daemon.config.root import Config
    from daemon.control.admission import Admission
    from daemon.control.capacity import PictureCosts, SourceCosts
    from daemon.control.changes import Changes
    from daemon.control.model_swap import ModelLoader, OpenDetector
    from daemon.control.overload import Overload
    from daemon.control.sources import SourceManager
    from daemon.monitoring.health import Health
    from daemon.monitoring.monitor import Monitor
    from daemon.pipeline.core import Core
    from daemon.pipeline.frame_board import FrameBoard
    from daemon.pipeline.kit import Attached, Detection
    from daemon.pipeline.ledger import Ledger
    from daemon.pipeline.model_boards import ModelBoards
    from daemon.pipeline.model_set import ModelSet
    from daemon.publish.publisher import Publisher
    from daemon.recording.recording import Recording
    from daemon.sources.decode import DecoderBackend, NoHardwareDecoder
    from daemon.sources.factory import MakeSource
    from daemon.system.stop_token import StopToken
    from detectors.port import Detector, ModelInfo
    from lookout.messages import Owner, State, VideoFormat

log = structlog.get_logger(__name__)
T = TypeVar("T")
Reload = Callable[["Config"], Callable[[], None]]
"""Reads what a part needs again; the function that it returns puts it into use."""


def open_gpu(core: Core, *, shares: bool) -> None:
    """Name the GPUs before their first use, and have capture processes and lanes run on them side by side.

    Args:
        shares: capture processes use it too.
    """
    from daemon.system.gpus import name_visible_gpus
    from daemon.system.mps import Mps
    from detectors.factory import gpus

    if gpus() and (reason := core.opener.open("asking for the names of GPUs", name_visible_gpus)):
        log.warning("GPUs have no names: figures may be of others", reason=reason)
    if shares and core.config.gpu.mps == "auto":
        mps = core.opener.open("starting MPS", Mps)
        core.life.add(Closing("MPS", mps.close, core.runtime.clock), Phase.DRIVERS)
        by = "MPS" if mps.reason is None else "turns"
        log.info("capture processes and lanes share the GPU", by=by, reason=mps.reason)


def may_use_gpu(config: Config) -> bool:
    """Whether a model may run on a GPU of this machine."""
    return any(config.for_model(name).model.backend in ("auto", *GPU_BACKENDS) for name in config.model_names)


def open_timeouts(config: Config) -> list[float]:
    """Time limit for opening each model, seconds."""
    return [config.for_model(name).model.open_timeout_s for name in config.model_names]


def open_models(core: Core, open_one: OpenDetector, attached: Attached, reserved: int, stop: StopToken) -> ModelSet:
    """All models, each with the GPU memory that those before it leave.

    Args:
        reserved: bytes of GPU memory planned for classifiers.
        stop: of the daemon.

    Raises:
        ConfigError: a model does not fit the configuration, or the others.
        DetectorError: one cannot be opened.
    """
    from daemon.control.plan import options_of
    from daemon.control.reload import defaults_of
    from daemon.pipeline.kit import open_detection
    from daemon.pipeline.model_set import ModelSet

    found: dict[str, Detection] = {}
    for name in core.config.model_names:
        own = core.config.for_model(name)
        options = options_of(own, reserved + sum(row.detector.info.memory_bytes for row in found.values()))
        detector = core.opener.open_model(partial(open_one, own.model.backend, options), own.model.path)
        found[name] = open_detection(core, own, name, detector, defaults_of(own), attached, stop)
    models = ModelSet(found, attached.analytics, core.ledger)
    check_devices(models.infos)
    models.check(core.config, {})
    return models


def check_devices(infos: Mapping[str, ModelInfo]) -> None:
    """
    Raises:
        ConfigError: some of several models run on a GPU, and others cannot read the pictures that are there.
    """
    on_gpu = [name for name, info in infos.items() if info.gpu is not None]
    others = [name for name in infos if name not in on_gpu]
    if on_gpu and others:
        raise ConfigError(
            f"models: {on_gpu[0]} runs on the GPU, and {others[0]} by {infos[others[0]].backend}, which reads pictures "
            "in host memory: set the same backend for all"
        )


def measure(core: Core, backend: DecoderBackend | NoHardwareDecoder, models: ModelSet) -> SourceCosts:
    """The rate of each model on pictures like the sources'. They have no lanes yet."""
    from daemon.control.capacity import SourceCosts

    found = {name: _measure(core, backend, name, row.detector) for name, row in models.detections.items()}
    return SourceCosts(found, core.ledger.models_of)


def _measure(core: Core, backend: DecoderBackend | NoHardwareDecoder, model: str, detector: Detector) -> PictureCosts:
    from daemon.control.capacity import measure_sizes
    from daemon.sources.decode import NoHardwareDecoder
    from detectors.port import HostImage

    width, height = core.config.gpu.frame_size
    grey = HostImage(np.full((height, width, 3), 114, np.uint8))
    picture = grey if isinstance(backend, NoHardwareDecoder) else detector.sample(width, height)
    costs = core.opener.open("measuring the detector", lambda: measure_sizes(detector, [picture]))
    rates = {f"detector_fps_{wide}x{high}": round(fps, 1) for (wide, high), fps in costs.rates.items()}
    log.info(
        "admission",
        mode=core.config.admission,
        **({"model": model} if model else {}),
        detector_fps=round(costs.rates[costs.own], 1),
        **(rates if len(rates) > 1 else {}),
    )
    return costs


def open_admission(
    core: Core, backend: DecoderBackend | NoHardwareDecoder, costs: SourceCosts | None, models: ModelSet
) -> Admission:
    """
    Args:
        costs: None without admission.
    """
    from daemon.control.admission import UNKNOWN_FPS, Admission
    from daemon.control.decoder_rate import DecoderRate
    from daemon.sources.decode import NVDEC

    mode = core.config.admission
    if mode == "off" or costs is None:
        return Admission()

    def decoder(format: VideoFormat) -> float:
        if format.decoder != NVDEC:
            return 0.0
        size = format.width, format.height
        return backend.estimate(format.codec, *size, format.fps or UNKNOWN_FPS, low_latency=True)[0]

    admission = Admission(mode, costs.rate, decoder, DecoderRate(core.config.gpu.device), costs)
    views = [row.views for row in models.detections.values()]  # all models of a source have the same view of it
    for one in views:
        one.add_listener(lambda _: admission.set_pictures(_merged(other.pictures for other in views)))
        one.add_size_listener(lambda _: admission.set_sizes(_merged(other.sizes for other in views)))
    return admission


def _merged(rows: Iterable[Mapping[str, T]]) -> dict[str, T]:
    return {source: value for row in rows for source, value in row.items()}


def open_recording(core: Core, owner: Callable[[str], Owner | None] | None) -> Recording | None:
    """The part that records; None if there is no store.

    Args:
        owner: of a source, where several daemons share them.
    """
    if not core.config.record.stores:
        return None
    from daemon.recording import kit

    return kit.open_recording(core, owner)


class Announcements:
    """Messages about sources, to subscribers, to rules, and to what records."""

    def __init__(
        self, core: Core, publisher: Publisher, events: EventPublisher, rules: Rules, recording: Recording | None
    ) -> None:
        self._publisher, self._events, self._rules, self._clock = publisher, events, rules, core.runtime.clock
        self._recording = recording

    def announce(
        self,
        source: str,
        session: str | None,
        state: State,
        reason: str | None = None,
        retry_in_s: float | None = None,
        format: VideoFormat | None = None,
    ) -> None:
        """Implements `daemon.capture.sinks.Announce`."""
        now_ns = self._clock.monotonic_ns()
        if self._recording:
            self._recording.on_state(source, state, reason, now_ns)
        tell = self._publisher.announcement(source, session, state, reason, retry_in_s, format)
        self._rules.on_state(source, state, now_ns)
        self._rules.after(tell)  # the last events come before `ended`

    def forget(self, source: str) -> None:
        """A source is removed: its last event comes first."""

        def forget() -> None:
            self._publisher.forget(source)
            self._events.forget(source)

        self._rules.after(forget)


def open_sources(
    core: Core,
    backend: DecoderBackend | NoHardwareDecoder,
    make_source: MakeSource,
    announcements: Announcements,
    board: FrameBoard | ModelBoards,
    admission: Admission,
    packets: WatchedPackets,
    recording: Recording | None,
) -> SourceManager:
    """The sources; see `start_with_sources`."""
    from daemon.capture.sinks import NO_RECORDER, DaemonSinks
    from daemon.control.source_states import SourceStates
    from daemon.control.sources import SourceManager

    clock = core.runtime.clock
    states = SourceStates(clock)

    def forget(source: str) -> None:
        states.forget(source)
        announcements.forget(source)

    ports = board, core.ledger, states.heard_by(announcements.announce), admission, forget
    sinks = DaemonSinks(*ports, packets=packets, recorder=recording.packets if recording else NO_RECORDER)
    sources = SourceManager(core.config, backend, make_source, sinks, core.runtime, states)
    core.life.add(Closing("capture processes", sources.close_processes, clock), Phase.DECODERS)
    core.life.add(Closing("decoders", sources.close_decoders, clock), Phase.DECODERS)
    return sources


def process_ids(sources: SourceManager, rules: Rules, recording: Recording | None) -> list[int]:
    """Of this process, of the capture processes, and of those of rules and recording."""
    return [os.getpid(), *sources.pids, *rules.pids, *(recording.pids if recording else ())]


def start_with_sources(core: Core, sources: SourceManager) -> None:
    """Attach the sources, after all that they need."""
    from daemon.system.tuning import configure_gc_and_switch_interval

    def tune() -> None:
        configure_gc_and_switch_interval(captures=sources.captures_locally)

    core.life.add(Steps("tuning", start=tune), Phase.SOURCES)
    core.life.add(sources, Phase.SOURCES)


def model_loader(open_one: OpenDetector, reserved: int) -> ModelLoader:
    """
    Args:
        reserved: bytes of GPU memory planned for classifiers.
    """
    from daemon.control.model_swap import ModelLoader
    from daemon.control.model_trial import try_model
    from detectors.factory import open_detector

    return ModelLoader(open_one, try_model if open_one is open_detector else None, reserved)


def open_changes(
    core: Core,
    sources: SourceManager,
    models: ModelSet,
    loader: ModelLoader,
    monitor: Monitor,
    reloads: Sequence[Reload],
    recording: Recording | None,
) -> Changes:
    """
    Args:
        reloads: of parts that read files of their own.
    """
    from daemon.control.changes import Changes
    from daemon.log import set_level

    level = core.config.log.level

    def use_level(new: Config) -> None:
        nonlocal level
        if new.log.level != level:
            level = new.log.level
            set_level(new.log)

    def follow(new: Config) -> None:
        use_level(new)
        if recording:
            recording.configure(new)

    # First, because others may start a process again, which has the level of then.
    reload = partial(_reload_settings, monitor, [lambda new: partial(use_level, new), *reloads])
    changes = Changes(core.config, sources, models, loader, reload, core.runtime, follow)
    return core.life.add(changes, Phase.INTAKE)


def _reload_settings(monitor: Monitor, reloads: Sequence[Reload], new: Config) -> Callable[[], None]:
    """
    Raises:
        ConfigError: a file cannot be read.
    """
    found = [reload(new) for reload in reloads]

    def apply() -> None:
        for put_into_use in found:
            put_into_use()
        monitor.reconfigure(new.monitor)

    return apply


def _named(model: str, reason: Callable[[], str | None]) -> str | None:
    """A reason, with the model that it is of where there are several."""
    found = reason()
    return f"model {model}: {found}" if model and found else found


def with_sources_of_fleet(read: Callable[[], Config], changes: Changes) -> Callable[[], Config]:
    """How the configuration file is read where sources come from a fleet: they are not in it."""
    return lambda: msgspec.structs.replace(read(), sources=changes.config.sources)


def note_health(
    health: Health,
    models: ModelSet,
    ledger: Ledger,
    overload: Overload,
    events: EventPublisher,
    recording: Recording | None,
) -> None:
    """Let health know why there may be no results, or too few, or why they are not kept."""
    for name, row in models.detections.items():
        what = f"model {name}" if name else "model"
        health.conditions[what] = partial(_named, name, partial(getattr, row.lanes, "unavailable"))
        health.conditions[f"boxes of the {what}"] = partial(_named, name, partial(ledger.boxes.fault_of, name))
    health.notes["load"] = lambda: overload.reason
    for what, kept in (("journal", events.journal), ("snapshots", events.snapshots)):
        if kept is not None:
            health.notes[what] = partial(getattr, kept, "trouble")
    if recording:
        health.notes.update({f"store {store}": partial(recording.trouble_of, store) for store in recording.stores})
