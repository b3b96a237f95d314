"""The whole configuration, and the rules between its sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from daemon.batch_config import BatchConfig, check_batch
from daemon.config.bridge import BridgeConfig, check_bridge
from daemon.config.events import EventsConfig, check_events
from daemon.config.http import DashboardConfig, HttpConfig, check_dashboard, check_http
from daemon.config.model import ClassifierConfig, GpuConfig, ModelConfig, check_names
from daemon.config.models import SINGLE, check_model_name, check_model_names, choice_of
from daemon.config.otlp import OtlpConfig, check_otlp
from daemon.config.publisher import PublisherConfig, check_publisher
from daemon.config.recording import RecordConfig, check_playback, check_record
from daemon.config.section import Seconds, Section
from daemon.config.source_checks import check_groups, check_reconnect, faults, problems_of_source
from daemon.config.sources import ReconnectConfig, SourceConfig, SourceTracking, TrackingConfig
from daemon.errors import ConfigError
from daemon.fleet_config import FleetConfig, check_fleet

Level = Literal["debug", "info", "warning", "error"]
AdmissionMode = Literal["off", "degrade", "refuse"]
_MAX_SIZES = 8  # of inputs, beside the model's own


class BoardConfig(Section, frozen=True):
    mode: Literal["live", "lossless"] = "live"
    """live: lanes get the newest frame of each source; lossless: all of them, in order"""
    max_age_ms: Annotated[float, msgspec.Meta(ge=1, le=3_600_000)] = 1000.0
    """live: an older frame is dropped as stale"""
    depth: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 16
    """lossless: so many frames wait for each source before its capture waits"""
    max_batch: Annotated[int, msgspec.Meta(ge=1, le=256)] | None = None
    """a lane takes so many at once, at most; null: as many as model.max_batch. Smaller batches are ready sooner, and
    need no other engine"""


class MonitorConfig(Section, frozen=True):
    interval_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0
    """of the figures in the log and on metrics/; at most 60, because every frame of it is held for percentiles"""
    stall_after_s: Seconds = 2.0
    """a connected source without a frame for so long is stalled"""
    stuck_after_s: Seconds = 30.0
    """a lane or the publisher that has not moved for so long ends the daemon, exit code 4"""
    frames_file: Path | None = None
    """append one JSON line for every frame, published or dropped"""


class LogConfig(Section, frozen=True):
    level: Level = "info"
    """debug adds a line for every frame"""
    format: Literal["auto", "console", "json"] = "auto"
    """console on a terminal, else json"""
    file: Path | None = None
    """null: stderr"""


class Config(Section, frozen=True, kw_only=True):
    """The whole of config.yaml."""

    model: ModelConfig
    """the detection model: docs/models.md"""
    models: dict[str, ModelConfig] = {}
    """several instead, by name, such as {people: {path: people.onnx}, plates: {path: plates.onnx}}, each with the keys
    of `model`; a source names its own in `model`"""
    lanes: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    """threads that detect side by side on the one model; on a GPU more may be faster: docs/operations.md"""
    capture_processes: Literal["auto"] | Annotated[int, msgspec.Meta(ge=0, le=16)] = "auto"
    """that read and decode recordings, RTSP and the like; 0: the daemon's own process does; auto: one for each 16
    sources where the GPU decodes, one for each 8 where the CPU does, up to 4; sources that the CPU decodes beside a GPU
    have others, up to as many"""
    gpu: GpuConfig = GpuConfig()
    """limits of the backend on an NVIDIA GPU; `lookout check` prints its plan"""
    sources: list[SourceConfig]
    """cameras, recordings and drawn streets"""
    admission: AdmissionMode = "off"
    """when sources ask for more than the detector or the GPU's decoder does: off (newer frames replace older ones),
    degrade (rates are lowered, the highest first), refuse (a source waits until it fits)"""
    tracking: TrackingConfig = TrackingConfig()
    """objects get ids that they keep from frame to frame: docs/analytics.md"""
    classifiers: list[ClassifierConfig] = []
    """further models that look into the boxes of tracks: docs/classifiers.md"""
    reconnect: ReconnectConfig = ReconnectConfig()
    """after a source broke: initial_s, times factor at each failure, never above max_s"""
    board: BoardConfig = BoardConfig()
    """where frames wait for lanes"""
    publisher: PublisherConfig = PublisherConfig()
    """messages over ZeroMQ: docs/wire.md"""
    monitor: MonitorConfig = MonitorConfig()
    """figures of the daemon, and limits for parts that do not move: docs/operations.md"""
    events: EventsConfig = EventsConfig()
    """findings of tracks and rules: docs/analytics.md"""
    http: HttpConfig = HttpConfig()
    """health, metrics for Prometheus, and sources at run time: docs/operations.md"""
    dashboard: DashboardConfig = DashboardConfig()
    """the page, `lookout dashboard` or `lookout run --dashboard`: docs/dashboard.md"""
    record: RecordConfig = RecordConfig()
    """video of cameras on disk, as they send it: docs/recording.md"""
    bridge: BridgeConfig = BridgeConfig()
    """events and states to MQTT, Kafka, a phone and so on, by `lookout bridge`: docs/bridges.md"""
    otlp: OtlpConfig = OtlpConfig()
    """traces of chosen frames, for OpenTelemetry: docs/tracing.md"""
    fleet: FleetConfig = FleetConfig()
    """several daemons, on one host or many, share their sources: docs/fleet.md"""
    batch: BatchConfig = BatchConfig()
    """recordings analysed by `lookout batch`: docs/batch.md"""
    log: LogConfig = LogConfig()
    """lines for people, or for programs that collect them: docs/operations.md"""

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names of all models; one empty name for `model`."""
        return tuple(self.models) or (SINGLE,)

    def for_model(self, name: str) -> Config:
        """The configuration as one of several models has it: its own settings and lanes, the sources that it looks at,
        and of those the tracks and rules that mean its labels."""
        if not self.models:
            return self
        model = self.models[name]
        return msgspec.structs.replace(
            self,
            model=model,
            models={},
            lanes=model.lanes or self.lanes,
            sources=[self._seen_by(source, name) for source in self.sources if name in self.models_of(source)],
            classifiers=[row for row in self.classifiers if row.model == name or len(self.models) == 1],
        )

    def _seen_by(self, source: SourceConfig, name: str) -> SourceConfig:
        own = source.tracking
        tracking = (own.model if isinstance(own, SourceTracking) else None) or self.models_of(source)[0]
        return source if tracking == name else msgspec.structs.replace(source, tracking=False, rules=[])

    def models_of(self, source: SourceConfig) -> tuple[str, ...]:
        """The names of the models that look at a source."""
        if source.model is None:
            return self.model_names[:1]
        return (source.model,) if isinstance(source.model, str) else tuple(source.model)

    def accounts_of(self, source: SourceConfig) -> dict[str, str]:
        """The names of its accounts in the ledger, by model."""
        several = len(self.models) > 1
        return {name: f"{source.id}/{name}" if several else source.id for name in self.models_of(source)}

    @property
    def active(self) -> list[SourceConfig]:
        """The sources that are enabled."""
        return [source for source in self.sources if source.enabled]

    def tracking_of(self, source: SourceConfig) -> TrackingConfig | None:
        """How the objects of a source are tracked; None if they are not."""
        own = source.tracking
        if isinstance(own, SourceTracking):
            changed = {name: getattr(own, name) for name in own.__struct_fields__ if name != "model"}
            changed = {name: value for name, value in changed.items() if value is not None}
            return msgspec.structs.replace(self.tracking, **changed) if own.enabled else None
        return self.tracking if own or (own is None and self.tracking.enabled) else None


class BridgeFile(Section, frozen=True):
    """A file for `lookout bridge` alone, on a machine without a daemon."""

    bridge: BridgeConfig
    """as in `Config`"""
    http: HttpConfig = HttpConfig()
    """as in `Config`: host and tokens of bridge.port"""
    log: LogConfig = LogConfig()
    """as in `Config`"""


class PageConfig(Section, frozen=True):
    """A file for `lookout dashboard` alone, on a machine without a daemon."""

    dashboard: DashboardConfig
    """as in `Config`"""
    log: LogConfig = LogConfig()
    """as in `Config`"""


_OF_SECTIONS: Mapping[str, Callable[[Any], None]] = {
    "batch": check_batch,
    "reconnect": check_reconnect,
    "tracking": check_groups,
    "classifiers": check_names,
    "publisher": check_publisher,
    "events": check_events,
    "http": check_http,
    "dashboard": check_dashboard,
    "record": check_record,
    "otlp": check_otlp,
}


def check(config: Config, *, may_be_empty: bool = False) -> Config:
    """Check the rules that types cannot express.

    Raises:
        ConfigError: the first of `problems_of`.
    """
    for problem in problems_of(config, may_be_empty=may_be_empty):
        raise ConfigError(problem)
    return config


def problems_of(config: Config, *, may_be_empty: bool = False, places: Sequence[str] | None = None) -> Iterator[str]:
    """Faults of ids, of references between keys, and unsafe combinations, each with the path of its key.

    Args:
        places: paths of the sources, where some of the file are left out; then nothing is said of all together.
    """
    is_whole = places is None
    where = [f"{path}." for path in places or (f"sources[{index}]" for index in range(len(config.sources)))]
    if is_whole:
        yield from faults(lambda: check_fleet(config.fleet, has_sources=bool(config.sources) and not may_be_empty))
        if not config.active and not may_be_empty and config.fleet.coordinator is None:
            yield "sources: none is enabled; add one, such as {id: demo, type: synthetic}"
        yield from problems_of_ids([source.id for source in config.sources])
    if config.fleet.coordinator is not None and config.http.sources_file is not None:
        yield "http.sources_file: sources of a fleet are kept by its coordinator: leave it out"
    for path, source in zip(where, config.sources):
        yield from problems_of_source(source, path, tuple(config.record.stores))
    names = [*_problems_of_models(config, where)]
    yield from names
    if is_whole and not names:
        yield from faults(*(partial(_check_sizes, config.for_model(name)) for name in config.model_names))
    for path, source in zip(where, config.sources):
        if source.rules and config.tracking_of(source) is None:
            yield f"{path}rules: rules need tracks; set tracking: true for this source as well"
    if config.admission != "off" and config.board.mode == "lossless":
        yield "admission: leaves frames out, which board.mode: lossless forbids; set one of them otherwise"
    yield from problems_of_sections({name: getattr(config, name) for name in _OF_SECTIONS})
    if is_whole:
        yield from faults(lambda: _check_classifiers(config, may_be_empty=may_be_empty))
    yield from faults(
        lambda: check_playback(config.record, config.http), lambda: check_bridge(config.bridge, config.http)
    )


def problems_of_sections(sections: Mapping[str, object]) -> Iterator[str]:
    """The first fault of each section beyond its types."""
    for name, check_section in _OF_SECTIONS.items():
        if name in sections:
            yield from faults(partial(check_section, sections[name]))


def problems_of_ids(ids: Sequence[object]) -> Iterator[str]:
    """Ids of sources that are used twice; others than texts are passed over."""
    seen: dict[str, str] = {}
    for index, id in enumerate(ids):
        if not isinstance(id, str):
            continue
        other = seen.get(id.lower())
        if other == id:
            yield f"sources[{index}].id: {id!r} is used twice; each source needs its own"
        elif other is not None:
            yield f"sources[{index}].id: {id!r} and {other!r} differ in nothing but their case"
        seen[id.lower()] = id


def _problems_of_models(config: Config, where: Sequence[str]) -> Iterator[str]:
    """Names that mean nothing, or are needed and not there."""
    yield from faults(lambda: check_model_names(config.models))
    for path, source in zip(where, config.sources):
        yield from faults(partial(_check_models_of, config, source, path))
    for index, row in enumerate(config.classifiers):
        if row.model is not None or len(config.models) > 1:
            key = f"classifiers[{index}].model"
            yield from faults(partial(check_model_name, config.models, row.model, key, "its labels are"))


def _check_models_of(config: Config, source: SourceConfig, where: str) -> None:
    """
    Raises:
        ConfigError: a name means nothing, or is needed and not there.
    """
    named = [source.model] if isinstance(source.model, str) else source.model or []
    for name in named:
        check_model_name(config.models, name, f"{where}model", "it is for")
    if len(set(named)) < len(named):
        raise ConfigError(f"{where}model: names a model twice")
    if len(config.models) > 1 and not named:
        check_model_name(config.models, None, f"{where}model", "it is for")
    tracking = source.tracking if isinstance(source.tracking, SourceTracking) else None
    own = config.models_of(source)
    if tracking and tracking.model is not None and tracking.model not in own:
        raise ConfigError(f"{where}tracking.model: {tracking.model!r} does not look at it{choice_of(own)}")
    if len(own) > 1 and config.tracking_of(source) is not None and not (tracking and tracking.model):
        raise ConfigError(f"{where}tracking: say whose boxes are tracked, tracking: {{model: NAME}}{choice_of(own)}")


def _check_sizes(config: Config) -> None:
    sizes = {source.model_size for source in config.active} - {None, config.model.input_size}
    if len(sizes) > _MAX_SIZES:
        raise ConfigError(
            f"sources: they have {len(sizes)} input sizes beside the model's own, and {_MAX_SIZES} are possible: each "
            "takes memory and time to open"
        )


def _check_classifiers(config: Config, *, may_be_empty: bool) -> None:
    knows_sources = not may_be_empty and config.fleet.coordinator is None
    if config.classifiers and knows_sources and all(config.tracking_of(source) is None for source in config.active):
        raise ConfigError("classifiers: attributes belong to tracks, and no source is tracked; set tracking.enabled")
