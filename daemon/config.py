"""The configuration: typed, unknown keys refused, every error with the path of its key. config.yaml explains each."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_type_hints

import msgspec
import yaml

from daemon.batch_config import BatchConfig, check_batch
from daemon.errors import ConfigError
from daemon.files import read_text
from daemon.fleet_config import FleetConfig, check_fleet
from daemon.places import together
from daemon.redact import Secret, Url, percent_encoded
from daemon.rule_config import RuleConfig, check_rules
from daemon.url_config import check_url
from daemon.validation import convert, is_path, is_secret, read_yaml, strings
from daemon.view_config import Roi, RoiConfig, Tiles, check_views, roi_of, tiling_of
from detectors.factory import Backend
from detectors.port import Precision, Transport, is_address
from detectors.semantics import Activation, BoxUnits, Semantics
from detectors.views import Tiling
from lookoutd.messages import Encoding, is_port

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=16_384)]
# A list, because msgspec 0.22 confuses the limits of a number with those of a tuple beside it.
InputSize = Pixels | Annotated[list[Pixels], msgspec.Meta(min_length=2, max_length=2)]
Rate = Annotated[float, msgspec.Meta(ge=0.001, le=1000)]  # frames a second
Seconds = Annotated[float, msgspec.Meta(ge=0.001, le=3600)]
Unit = Annotated[float, msgspec.Meta(ge=0, le=1)]
Level = Annotated[float, msgspec.Meta(ge=0, le=255)]  # of a colour
Colour = tuple[Level, Level, Level]
Hits = Annotated[int, msgspec.Meta(ge=1, le=100)]
SourceId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Pace = Literal["realtime", "fast"]
Decode = Literal["auto", "nvdec", "cpu"]
Role = Literal["view", "operate"]
AdmissionMode = Literal["off", "degrade", "refuse"]
MaskForm = Literal["polygon", "rle", "off"]
Turn = Literal[0, 90, 180, 270]  # degrees clockwise


_MAX_SIZES = 8  # of inputs, beside the model's own


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of config.yaml."""


class ModelConfig(Section, frozen=True):
    path: Path
    backend: Backend = "auto"
    head: str = "auto"
    mean: Colour | None = None
    std: Colour | None = None
    activation: Activation | None = None
    box_units: BoxUnits | None = None
    first_class: Literal[0, 1] | None = None
    labels: str | None = None
    input_size: tuple[Pixels, Pixels] | None = None
    confidence: Unit = 0.25
    iou: Unit = 0.45
    max_detections: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 300
    max_batch: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    precision: Precision = "auto"
    builder_level: Annotated[int, msgspec.Meta(ge=0, le=5)] = 3
    cache: Path | None = None
    open_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 900.0
    transport: Transport = "auto"
    request_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 5.0

    @property
    def semantics(self) -> Semantics:
        """Facts about its input and outputs that keys state."""
        return Semantics(self.mean, self.std, None, self.activation, self.box_units, self.first_class)


class GpuConfig(Section, frozen=True):
    device: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    memory_limit_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] | None = None
    frame_size: tuple[Pixels, Pixels] = (1920, 1080)
    mps: Literal["auto", "off"] = "auto"
    avoid_interrupts: bool = True


class TrackingConfig(Section, frozen=True):
    enabled: bool = False
    floor: Unit = 0.1
    start: Unit | None = None
    timeout_s: Seconds = 1.0
    memory_s: Seconds = 3.0
    confirm_hits: Hits = 3
    groups: list[list[str]] = []


class ClassifierConfig(Section, frozen=True, kw_only=True):
    name: SourceId
    path: Path
    mean: Colour | None = None
    std: Colour | None = None
    activation: Activation | None = None
    labels: str | None = None
    wanted: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(name="for")
    fit: Literal["stretch", "letterbox", "cover"] = "stretch"
    min_px: Pixels = 48
    pad: Unit = 0.1
    attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    agree: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.6
    threshold: Unit = 0.8
    area_growth: Annotated[float, msgspec.Meta(ge=0.01, le=100)] | None = 0.2
    every_s: Seconds | None = None
    max_batch: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    max_pending: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64
    threads: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 1
    precision: Precision = "auto"

    @property
    def semantics(self) -> Semantics:
        """See `ModelConfig.semantics`."""
        return Semantics(mean=self.mean, std=self.std, activation=self.activation)


class SourceTracking(Section, frozen=True):
    """A source's own settings; None for those of `tracking`."""

    enabled: bool = True
    floor: Unit | None = None
    start: Unit | None = None
    timeout_s: Seconds | None = None
    memory_s: Seconds | None = None
    confirm_hits: Hits | None = None


class SourceBase(Section, frozen=True):
    id: SourceId
    enabled: bool = True
    max_fps: Rate | None = None
    labels: list[str] | None = None
    confidence: Unit | None = None
    tracking: bool | SourceTracking | None = None
    rules: list[RuleConfig] = []
    roi: Roi | None = None
    tiles: Tiles | None = None
    input_size: InputSize | None = None

    @property
    def model_size(self) -> tuple[int, int] | None:
        """Width and height at which the model looks at it; None for the model's own."""
        size = self.input_size
        if size is None:
            return None
        return (size, size) if isinstance(size, int) else (size[0], size[1])

    @property
    def region(self) -> RoiConfig | None:
        """The region of interest; None for the whole picture."""
        return roi_of(self.roi)

    @property
    def tiling(self) -> Tiling | None:
        return tiling_of(self.tiles)

    @property
    def wants_gpu(self) -> bool:
        """Decode on the GPU, if possible."""
        return False

    @property
    def is_patient(self) -> bool:
        """The source waits for lanes even in live mode: at full speed it would replace most of its own frames."""
        return False

    @property
    def read_limit_s(self) -> float:
        """The longest time that the source's library may block, by its own limits, in seconds; 0 without limits."""
        return 0.0

    @property
    def opened_here(self) -> object:
        """The local resource that it opens, such as a device; None if it opens none.

        A source with a local resource cannot be added or changed over the network. The default refuses, too.
        """
        return self

    def anchored(self, folder: Path) -> SourceConfig:  # noqa: ARG002 - it has no paths
        """A copy with absolute paths."""
        return cast(SourceConfig, self)


class AvConfig(SourceBase, frozen=True, tag="av", kw_only=True):
    url: Url
    user: Secret | None = None
    password: Secret | None = None
    pace: Pace = "realtime"
    loop: bool = False
    kind: Literal["auto", "recording", "live"] = "auto"
    transport: Literal["auto", "tcp", "udp"] = "auto"
    open_timeout_s: Seconds = 5.0
    read_timeout_s: Seconds = 5.0
    rotate: Literal["auto"] | Turn = "auto"
    decode: Decode = "auto"
    decode_threads: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    corrupt: Literal["drop", "mark"] = "drop"
    options: dict[str, Secret] = {}

    @property
    def address(self) -> str:
        """The URL or path that is opened, with user name and password percent-encoded. It is a secret."""
        return self.url.encoded() if self.user is None else self.url.with_credentials(self.user, self.password)

    @property
    def wants_gpu(self) -> bool:
        return self.decode != "cpu"

    @property
    def is_patient(self) -> bool:
        return self.pace == "fast"

    @property
    def read_limit_s(self) -> float:
        return max(self.open_timeout_s, self.read_timeout_s)

    @property
    def opened_here(self) -> None:
        """Its URL is judged by `http.schemes`, which a path has none of."""
        return

    def anchored(self, folder: Path) -> AvConfig:
        path = Path(self.url.reveal())
        if self.url.scheme or path.is_absolute():
            return self
        written = _absolute(Path(literal(str(folder))), Path(self.url.written))
        return msgspec.structs.replace(self, url=Url(str(_absolute(folder, path)), str(written)))


class CameraConfig(SourceBase, frozen=True, tag="camera"):
    device: int | str = 0
    width: Pixels | None = None
    height: Pixels | None = None
    fps: Rate | None = None
    rotate: Turn = 0
    fourcc: Annotated[str, msgspec.Meta(min_length=4, max_length=4)] | None = None

    @property
    def opened_here(self) -> int | str:
        return self.device


class SyntheticConfig(SourceBase, frozen=True, tag="synthetic"):
    width: Pixels = 640
    height: Pixels = 360
    fps: Rate = 30.0
    objects: Annotated[int, msgspec.Meta(ge=0, le=64)] = 5
    bands: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=1 << 32)] = 0
    frames: Annotated[int, msgspec.Meta(ge=1, le=1 << 48)] | None = None
    pace: Pace = "realtime"

    @property
    def is_patient(self) -> bool:
        return self.pace == "fast"

    @property
    def opened_here(self) -> None:
        return


SourceConfig = AvConfig | CameraConfig | SyntheticConfig
SOURCE_KINDS = get_args(SourceConfig)


class ReconnectConfig(Section, frozen=True):
    initial_s: Seconds = 0.5
    max_s: Seconds = 4.0
    refused_s: Seconds = 60.0
    refused_max_s: Seconds = 900.0
    factor: Annotated[float, msgspec.Meta(ge=1, le=100)] = 2.0
    jitter: Unit = 0.2


class BoardConfig(Section, frozen=True):
    mode: Literal["live", "lossless"] = "live"
    max_age_ms: Annotated[float, msgspec.Meta(ge=1, le=3_600_000)] = 1000.0
    depth: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 16
    max_batch: Annotated[int, msgspec.Meta(ge=1, le=256)] | None = None


class CurveConfig(Section, frozen=True):
    secret_key: Secret | None = None
    secret_key_file: Path | None = None
    clients: Path | None = None


class PublisherConfig(Section, frozen=True):
    endpoint: str = "tcp://127.0.0.1:5556"
    encoding: Encoding = "json"
    high_water_mark: Count = 1000
    outbox: Count = 1024
    packets: str = "auto"
    masks: MaskForm = "polygon"
    max_masks: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    max_subscribers: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    wait_for_subscriber_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    allow_plaintext: bool = False
    curve: CurveConfig | None = None


class MonitorConfig(Section, frozen=True):
    interval_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0  # every frame of it is held, for percentiles
    stall_after_s: Seconds = 2.0
    stuck_after_s: Seconds = 30.0
    frames_file: Path | None = None


class SnapshotsConfig(Section, frozen=True):
    folder: Path
    max_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] = 1024
    max_age_days: Annotated[float, msgspec.Meta(gt=0, le=36_500)] = 7.0
    min_free_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] = 1024


class EventsConfig(Section, frozen=True):
    journal: str = "auto"
    max_rows: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 100_000
    max_age_days: Annotated[float, msgspec.Meta(gt=0, le=36_500)] = 30.0
    counts_interval_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 10.0
    own_process: Literal["auto"] | bool = "auto"
    snapshots: SnapshotsConfig | None = None


class TokenConfig(Section, frozen=True):
    name: SourceId
    role: Role = "view"
    token: Secret | None = None
    token_file: Path | None = None


class HttpConfig(Section, frozen=True):
    enabled: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9105
    token: Secret | None = None
    token_file: Path | None = None
    tokens: list[TokenConfig] = []
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_sources: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 256
    schemes: tuple[str, ...] = ("rtsp", "rtsps", "http", "https", "rtmp", "rtmps")
    allow_local: bool = False
    sources_file: Path | None = None


class DaemonConfig(Section, frozen=True):
    """A daemon that the page shows; at least one of `endpoint` and `http`."""

    name: SourceId
    endpoint: str | None = None
    http: str | None = None
    token: Secret | None = None
    token_file: Path | None = None
    server_key: str | None = None
    secret_key_file: Path | None = None


class DashboardConfig(Section, frozen=True):
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9106
    hosts: list[str] = []
    tokens: list[TokenConfig] = []
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_viewers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    daemons: list[DaemonConfig] = []


class LogConfig(Section, frozen=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"
    file: Path | None = None


class Config(Section, frozen=True):
    """The whole of config.yaml."""

    model: ModelConfig
    sources: list[SourceConfig]
    lanes: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    capture_processes: Literal["auto"] | Annotated[int, msgspec.Meta(ge=0, le=16)] = "auto"
    gpu: GpuConfig = GpuConfig()
    admission: AdmissionMode = "off"
    reconnect: ReconnectConfig = ReconnectConfig()
    board: BoardConfig = BoardConfig()
    tracking: TrackingConfig = TrackingConfig()
    classifiers: list[ClassifierConfig] = []
    publisher: PublisherConfig = PublisherConfig()
    monitor: MonitorConfig = MonitorConfig()
    events: EventsConfig = EventsConfig()
    http: HttpConfig = HttpConfig()
    dashboard: DashboardConfig = DashboardConfig()
    fleet: FleetConfig = FleetConfig()
    batch: BatchConfig = BatchConfig()
    log: LogConfig = LogConfig()

    @property
    def active(self) -> list[SourceConfig]:
        """The sources that are enabled."""
        return [source for source in self.sources if source.enabled]

    def tracking_of(self, source: SourceConfig) -> TrackingConfig | None:
        """How the objects of a source are tracked; None if they are not."""
        own = source.tracking
        if isinstance(own, SourceTracking):
            changed = {name: getattr(own, name) for name in own.__struct_fields__}
            changed = {name: value for name, value in changed.items() if value is not None}
            return msgspec.structs.replace(self.tracking, **changed) if own.enabled else None
        return self.tracking if own or (own is None and self.tracking.enabled) else None


class _FleetFile(Section, frozen=True):
    fleet: FleetConfig = FleetConfig()


class PageConfig(Section, frozen=True):
    """A file for `lookout dashboard` alone, on a machine without a daemon."""

    dashboard: DashboardConfig
    log: LogConfig = LogConfig()


def load(path: Path, *, may_be_empty: bool = False) -> Config:
    """Read, convert and check a configuration file; relative paths in it are relative to its folder.

    Args:
        may_be_empty: it may have no source.

    Raises:
        ConfigError: with the file, the path of the key, and what to do.
    """
    text = _text_of(path)
    try:
        return _anchor(parse(text, may_be_empty=may_be_empty), path.resolve().parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def load_page(path: Path) -> Config | PageConfig:
    """A configuration file for `lookout dashboard`: a daemon's, or one that has `dashboard` and `log` alone.

    Raises:
        ConfigError: as `load`.
    """
    text = _text_of(path)
    try:
        raw = read_yaml(text, _Loader)
        if not (isinstance(raw, dict) and "dashboard" in raw and set(raw) <= {"dashboard", "log"}):
            return load(path)
        _check_variables(raw, PageConfig)
        found: PageConfig = convert(raw, PageConfig, _hook)
        _check_dashboard(found.dashboard)
        return msgspec.structs.replace(found, dashboard=_anchored_page(found.dashboard, path.resolve().parent))
    except ConfigError as error:
        raise error if str(error).startswith(f"{path}: ") else ConfigError(f"{path}: {error}") from error


def load_fleet(path: Path) -> FleetConfig:
    """The section `fleet` of a configuration file. The rest is not read, and need not be there.

    Raises:
        ConfigError: as `load`; or the section names no coordinator.
    """
    raw = {key: value for key, value in load_raw(path).items() if key == "fleet"}
    try:
        _check_variables(raw, _FleetFile)
        found: FleetConfig = convert(raw, _FleetFile, _hook).fleet
        check_fleet(found, has_sources=False)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if found.coordinator is None:
        raise ConfigError(f"{path}: fleet.coordinator is not set: write it, or use --coordinator URL")
    return _anchored_fleet(found, path.resolve().parent)


def load_raw(path: Path) -> dict[str, Any]:
    """The keys of a YAML file as they are written: ${NAME} is not replaced, and nothing is checked.

    Raises:
        ConfigError: it cannot be read.
    """
    text = _text_of(path)
    try:
        raw = read_yaml(text, _Loader)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: is not a mapping of keys")
    return raw


def _text_of(path: Path) -> str:
    try:
        return read_text(path)
    except FileNotFoundError as error:
        raise ConfigError(
            f"config {path} does not exist: pass one with -c, or copy the config.yaml that explains every key"
        ) from error
    except OSError as error:
        raise ConfigError(f"config {path} cannot be read: {error.strerror}") from error


def parse(text: str, *, may_be_empty: bool = False) -> Config:
    """A configuration from YAML text; see `load`."""
    raw = read_yaml(text, _Loader)
    if not isinstance(raw, dict):
        raise ConfigError("is not a mapping of keys: it needs at least `model` and `sources`")
    if raw.get("admission") is False:  # what YAML 1.1 makes of a plain `off`
        raw["admission"] = "off"
    for section, key in (("gpu", "mps"), ("events", "journal"), ("publisher", "masks"), ("publisher", "packets")):
        if isinstance(raw.get(section), dict) and raw[section].get(key) is False:
            raw[section][key] = "off"
    try:
        _check_variables(raw, Config)
        found: Config = convert(raw, Config, _hook)
        return check(found, may_be_empty=may_be_empty)
    except ConfigError as error:
        raise together([str(error), *_mistakes(raw)], text, _Loader) from error


def _mistakes(raw: Mapping[str, Any]) -> Iterator[str]:
    """The first mistake of each section and of each source."""
    kinds = get_type_hints(Config, include_extras=True)
    kinds.pop("sources")
    for key in kinds.keys() & raw.keys():
        try:
            _check_variables({key: raw[key]}, Config)
            convert(raw[key], kinds[key], _hook, key)
        except ConfigError as error:
            yield str(error)
    sources = raw.get("sources")
    for index, source in enumerate(sources if isinstance(sources, list) else []):
        where = f"sources[{index}]"
        try:
            _check_variables(source, cast(type, SourceConfig), f"{where}.")
            _check_source(convert(source, SourceConfig, _hook, where), f"{where}.")
        except ConfigError as error:
            yield str(error)


def _check_variables(raw: object, kind: type, before: str = "") -> None:
    for where, value in strings(raw):
        if _SURROGATES.search(value) and not is_path(where, raw, kind):
            raise ConfigError(f"{before}{where}: has bytes that are no text in UTF-8")
        if any(not found[1] for found in _VARIABLE.finditer(value)) and not is_secret(where, raw, kind):
            raise ConfigError(
                f"{before}{where}: ${{NAME}} is only replaced in URLs and secrets; write the value itself, or "
                "$${{NAME}} in a path that has this text"
            )


def source_of(raw: object) -> SourceConfig:
    """One source from a mapping, as it stands in `sources`.

    Raises:
        ConfigError: with the key.
    """
    found: SourceConfig = convert(raw, SourceConfig, _hook)
    _check_source(found, "")
    return found


def source_as_written(raw: object, where: str) -> SourceConfig:
    """As `source_of`, for another machine: ${NAME} is not replaced.

    Args:
        where: the path of the source, for messages.

    Raises:
        ConfigError: with the key.
    """
    try:
        _check_variables(raw, cast(type, SourceConfig))
        found: SourceConfig = convert(raw, SourceConfig, _hook_as_written)
        _check_source(found, "")
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from error
    return found


def check(config: Config, *, may_be_empty: bool = False) -> Config:
    """Check the rules that types cannot express: ids, references between keys, unsafe combinations."""
    check_fleet(config.fleet, has_sources=bool(config.sources) and not may_be_empty)
    if config.fleet.coordinator is not None and config.http.sources_file is not None:
        raise ConfigError("http.sources_file: sources of a fleet are kept by its coordinator: leave it out")
    check_batch(config.batch)
    if not config.active and not may_be_empty and config.fleet.coordinator is None:
        raise ConfigError("sources: none is enabled; add one, such as {id: demo, type: synthetic}")
    seen: dict[str, str] = {}
    for index, source in enumerate(config.sources):
        _check_source(source, f"sources[{index}].")
        other = seen.get(source.id.lower())
        if other == source.id:
            raise ConfigError(f"sources[{index}].id: {source.id!r} is used twice; each source needs its own")
        if other is not None:
            raise ConfigError(f"sources[{index}].id: {source.id!r} and {other!r} differ in nothing but their case")
        seen[source.id.lower()] = source.id
    _check_sizes(config)
    for index, source in enumerate(config.sources):
        if source.rules and config.tracking_of(source) is None:
            raise ConfigError(f"sources[{index}].rules: rules need tracks; set tracking: true for this source as well")
    if config.reconnect.max_s < config.reconnect.initial_s:
        raise ConfigError("reconnect.max_s: is below reconnect.initial_s")
    if config.reconnect.refused_max_s < config.reconnect.refused_s:
        raise ConfigError("reconnect.refused_max_s: is below reconnect.refused_s")
    if config.admission != "off" and config.board.mode == "lossless":
        raise ConfigError("admission: leaves frames out, which board.mode: lossless forbids; set one of them otherwise")
    _check_groups(config.tracking)
    _check_classifiers(config, may_be_empty=may_be_empty)
    _check_publisher(config.publisher)
    if not config.events.journal:
        raise ConfigError("events.journal: is empty: write auto, off, or the name of a file")
    if config.events.own_process is True and config.events.snapshots:
        raise ConfigError(
            "events.own_process: pictures of events are made where the frames are: set it to auto, or leave out "
            "events.snapshots"
        )
    _check_http(config.http)
    _check_dashboard(config.dashboard)
    return config


def _check_sizes(config: Config) -> None:
    sizes = {source.model_size for source in config.active} - {None, config.model.input_size}
    if len(sizes) > _MAX_SIZES:
        raise ConfigError(
            f"sources: they have {len(sizes)} input sizes beside the model's own, and {_MAX_SIZES} are possible: each "
            "takes memory and time to open"
        )


def _check_groups(tracking: TrackingConfig) -> None:
    seen: set[str] = set()
    for index, group in enumerate(tracking.groups):
        for label in group:
            if label in seen:
                raise ConfigError(f"tracking.groups[{index}]: {label!r} is named twice; a label has one group")
            seen.add(label)


def _check_classifiers(config: Config, *, may_be_empty: bool) -> None:
    names: set[str] = set()
    for index, row in enumerate(config.classifiers):
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", row.name):
            raise ConfigError(
                f"classifiers[{index}].name: {row.name!r} may hold letters, digits, '_', '.' and '-' only"
            )
        if row.name in names:
            raise ConfigError(f"classifiers[{index}].name: {row.name!r} is used twice; each classifier needs its own")
        names.add(row.name)
    knows_sources = not may_be_empty and config.fleet.coordinator is None
    if names and knows_sources and all(config.tracking_of(source) is None for source in config.active):
        raise ConfigError("classifiers: attributes belong to tracks, and no source is tracked; set tracking.enabled")


def _check_source(source: SourceConfig, where: str) -> None:
    id = source.id
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", id):
        raise ConfigError(f"{where}id: {id!r} may hold letters, digits, '_', '.' and '-' only")
    if not id.strip("."):
        raise ConfigError(f"{where}id: {id!r} means a folder to most programs: give it a letter or a digit")
    check_rules(source.rules, where)
    check_views(source.roi, source.tiles, where)
    if isinstance(source, AvConfig):
        check_url(source.url, where)
        _check_credentials(source, where)
    elif isinstance(source, CameraConfig) and isinstance(source.device, str) and "://" in source.device:
        raise ConfigError(f"{where}device: is a URL, and not a camera of this machine: set type: av and url")


def _check_credentials(source: AvConfig, where: str) -> None:
    if source.password is not None and source.user is None:
        raise ConfigError(f"{where}password: wants a user, too")
    if source.user is not None and not source.url.scheme:
        raise ConfigError(f"{where}user: is for URLs; {source.url} is a path")
    if source.user is not None and source.url.has_credentials:
        raise ConfigError(f"{where}user: the URL has a user name as well: write one of them")


def _check_http(http: HttpConfig) -> None:
    if not http.enabled:
        return
    if http.token is not None and http.token_file is not None:
        raise ConfigError("http: set one of token and token_file")
    if (http.tls_certificate is None) != (http.tls_key is None):
        raise ConfigError("http: tls_certificate and tls_key go together")
    _check_tokens(http.tokens, "http")
    has_token = http.token is not None or http.token_file is not None or http.tokens
    if not is_loopback(http.host) and not has_token:
        raise ConfigError(f"http.host: {http.host} can be reached by the whole network: set http.token or tokens")


def _check_tokens(tokens: list[TokenConfig], where: str) -> None:
    for index, row in enumerate(tokens):
        if (row.token is None) == (row.token_file is None):
            raise ConfigError(f"{where}.tokens[{index}]: set one of token and token_file")
        if row.name in [other.name for other in tokens[:index]]:
            raise ConfigError(f"{where}.tokens[{index}].name: {row.name!r} is used twice")


def _check_dashboard(page: DashboardConfig) -> None:
    if (page.tls_certificate is None) != (page.tls_key is None):
        raise ConfigError("dashboard: tls_certificate and tls_key go together")
    _check_tokens(page.tokens, "dashboard")
    if not is_loopback(page.host) and not page.tokens:
        raise ConfigError(f"dashboard.host: {page.host} can be reached by the whole network: set dashboard.tokens")
    for index, row in enumerate(page.daemons):
        where = f"dashboard.daemons[{index}]"
        if row.endpoint is None and row.http is None:
            raise ConfigError(f"{where}: set endpoint, http, or both")
        if row.token is not None and row.token_file is not None:
            raise ConfigError(f"{where}: set one of token and token_file")
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", row.name):
            raise ConfigError(f"{where}.name: {row.name!r} may hold letters, digits, '_', '.' and '-' only")
        if row.name in [other.name for other in page.daemons[:index]]:
            raise ConfigError(f"{where}.name: {row.name!r} is used twice; each daemon needs its own")


def _check_publisher(publisher: PublisherConfig) -> None:
    scheme, _, address = publisher.endpoint.partition("://")
    if scheme not in ("tcp", "ipc") or not address:
        raise ConfigError(f"publisher.endpoint: {publisher.endpoint!r} must start with tcp:// or ipc://")
    port = address.rpartition(":")[2]
    if scheme == "tcp" and port != "*" and not is_port(port):
        raise ConfigError(f"publisher.endpoint: {publisher.endpoint!r} must end with a port, 0 to 65535, or with *")
    _check_packets(publisher.packets)
    curve = publisher.curve
    if curve and (curve.secret_key is None) == (curve.secret_key_file is None):
        raise ConfigError(
            "publisher.curve: set one of secret_key and secret_key_file (`lookout keys new` makes a pair)"
        )
    if scheme == "tcp" and not curve and not publisher.allow_plaintext and not is_loopback(address.rpartition(":")[0]):
        raise ConfigError(
            f"publisher.endpoint: {publisher.endpoint} can be read by the whole network: set publisher.curve "
            "(`lookout keys new` makes keys), or allow_plaintext: true if that is meant"
        )


def _check_packets(endpoint: str) -> None:
    scheme, _, address = endpoint.partition("://")
    port = address.rpartition(":")[2]
    if endpoint in ("auto", "off") or (scheme == "ipc" and address):
        return
    if scheme != "tcp" or not (port == "*" or is_port(port)):
        raise ConfigError(
            f"publisher.packets: {endpoint!r} must be auto, off, or an endpoint such as tcp://127.0.0.1:5557"
        )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and can be reached from nowhere else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in ("localhost", "lo")


def _anchor(config: Config, folder: Path) -> Config:
    """Relative paths made absolute."""

    def at(path: Path | None) -> Path | None:
        return None if path is None else _absolute(folder, path)

    def labels_at(labels: str | None) -> str | None:
        return labels if labels in (None, "coco") else str(_absolute(folder, Path(str(labels))))

    events = config.events
    if events.journal not in ("auto", "off"):
        events = msgspec.structs.replace(events, journal=str(_absolute(folder, Path(events.journal))))
    if events.snapshots:
        pictures = msgspec.structs.replace(events.snapshots, folder=_absolute(folder, events.snapshots.folder))
        events = msgspec.structs.replace(events, snapshots=pictures)
    publisher = config.publisher
    if publisher.curve:
        curve = msgspec.structs.replace(
            publisher.curve, secret_key_file=at(publisher.curve.secret_key_file), clients=at(publisher.curve.clients)
        )
        publisher = msgspec.structs.replace(publisher, curve=curve)
    return msgspec.structs.replace(
        config,
        model=msgspec.structs.replace(
            config.model,
            path=_absolute(folder, config.model.path),
            labels=labels_at(config.model.labels),
            cache=at(config.model.cache),
        ),
        classifiers=[
            msgspec.structs.replace(row, path=_absolute(folder, row.path), labels=labels_at(row.labels))
            for row in config.classifiers
        ],
        sources=[source.anchored(folder) for source in config.sources],
        publisher=publisher,
        monitor=msgspec.structs.replace(config.monitor, frames_file=at(config.monitor.frames_file)),
        events=events,
        http=msgspec.structs.replace(
            config.http,
            token_file=at(config.http.token_file),
            tokens=[msgspec.structs.replace(row, token_file=at(row.token_file)) for row in config.http.tokens],
            tls_certificate=at(config.http.tls_certificate),
            tls_key=at(config.http.tls_key),
            sources_file=at(config.http.sources_file),
        ),
        dashboard=_anchored_page(config.dashboard, folder),
        fleet=_anchored_fleet(config.fleet, folder),
        log=msgspec.structs.replace(config.log, file=at(config.log.file)),
    )


def _anchored_fleet(fleet: FleetConfig, folder: Path) -> FleetConfig:
    paths = {
        key: _absolute(folder, path)
        for key in ("password_file", "tls_ca", "tls_certificate", "tls_key")
        if (path := getattr(fleet, key)) is not None
    }
    return msgspec.structs.replace(fleet, **paths)


def _anchored_page(page: DashboardConfig, folder: Path) -> DashboardConfig:
    def at(path: Path | None) -> Path | None:
        return None if path is None else _absolute(folder, path)

    return msgspec.structs.replace(
        page,
        tokens=[msgspec.structs.replace(row, token_file=at(row.token_file)) for row in page.tokens],
        tls_certificate=at(page.tls_certificate),
        tls_key=at(page.tls_key),
        daemons=[
            msgspec.structs.replace(row, token_file=at(row.token_file), secret_key_file=at(row.secret_key_file))
            for row in page.daemons
        ],
    )


def _absolute(folder: Path, path: Path) -> Path:
    if is_address(path):
        return path
    with suppress(RuntimeError):  # nobody of that name
        path = path.expanduser()
    return folder / path


# --- conversion ------------------------------------------------------------------------------------------

_VARIABLE = re.compile(r"(\$)?\$\{([A-Za-z_][A-Za-z0-9_]*)\}")  # with one more $ it stands for itself


_SURROGATES = re.compile("[\ud800-\udfff]")  # stand for bytes of a name that are no UTF-8


def literal(text: str) -> str:
    """A text as it is written in a configuration, so that nothing in it is replaced: `${NAME}` becomes `$${NAME}`."""
    return _VARIABLE.sub(lambda match: f"${match[0]}", text)


class _Loader(yaml.SafeLoader):
    """Refuses a key written twice, which YAML forbids and PyYAML lets pass."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is written twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _hook(kind: type, value: object) -> object:
    text = _text(value)
    if issubclass(kind, Url):
        return Url(_filled_url(text), text)
    filled = _VARIABLE.sub(_from_environment, text)
    return kind(filled, text) if issubclass(kind, Secret) else Path(filled)


def _hook_as_written(kind: type, value: object) -> object:
    text = _text(value)
    return kind(text) if issubclass(kind, Secret) else Path(text)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    if not value:
        raise ValueError("is empty")
    return value


def _filled_url(text: str) -> str:
    """With the values of ${NAME}, percent-encoded where a URL has credentials, or a query."""
    behind = text.rfind("@")
    query = text.find("?", behind + 1)

    def value(match: re.Match[str]) -> str:
        within = "://" in text and (match.start() < behind or 0 <= query < match.start())
        found = _from_environment(match)
        return percent_encoded(found) if within else found

    return _VARIABLE.sub(value, text)


def _from_environment(match: re.Match[str]) -> str:
    if match[1]:
        return match[0][1:]
    value = os.environ.get(match[2])
    if value is None:
        raise ValueError(
            f"the environment variable {match[2]} is not set: set it, or write it into a file `environment` beside "
            "the configuration, and run as a user who may read that"
        )
    return value
