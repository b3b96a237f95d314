"""The configuration: typed, unknown keys refused, every error with the path of its key. config.yaml explains each."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import yaml

from daemon.admission import Mode
from daemon.errors import ConfigError
from daemon.messages import Encoding, is_port
from daemon.redact import Secret, Url
from detectors.factory import Backend
from detectors.port import Precision

PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
PositiveFloat = Annotated[float, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Unit = Annotated[float, msgspec.Meta(ge=0, le=1)]
SourceId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Pace = Literal["realtime", "fast"]
Decode = Literal["auto", "nvdec", "cpu"]


_LEAST_TOKEN = 16


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of config.yaml."""


class ModelConfig(Section, frozen=True):
    path: Path
    backend: Backend = "auto"
    head: str = "auto"
    labels: str | None = None
    input_size: tuple[PositiveInt, PositiveInt] | None = None
    confidence: Unit = 0.25
    iou: Unit = 0.45
    max_detections: PositiveInt = 300
    max_batch: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    threads: Annotated[int, msgspec.Meta(ge=0)] = 0
    precision: Precision = "auto"
    builder_level: Annotated[int, msgspec.Meta(ge=0, le=5)] = 3
    cache: Path | None = None
    open_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 900.0


class GpuConfig(Section, frozen=True):
    device: Annotated[int, msgspec.Meta(ge=0)] = 0
    memory_limit_mib: PositiveInt | None = None
    frame_size: tuple[PositiveInt, PositiveInt] = (1920, 1080)
    mps: Literal["auto", "off"] = "auto"
    avoid_interrupts: bool = True


class SourceBase(Section, frozen=True):
    id: SourceId
    enabled: bool = True
    max_fps: PositiveFloat | None = None
    labels: list[str] | None = None
    confidence: Unit | None = None

    @property
    def asks_gpu(self) -> bool:
        """It is to be decoded on the GPU, if that can be."""
        return False

    @property
    def patience_s(self) -> float:
        """For how long its library may be silent by its own limits; 0 where it has none."""
        return 0.0


class AvConfig(SourceBase, frozen=True, tag="av", kw_only=True):
    url: Url
    pace: Pace = "realtime"
    loop: bool = False
    transport: Literal["tcp", "udp"] = "tcp"
    open_timeout_s: PositiveFloat = 5.0
    read_timeout_s: PositiveFloat = 5.0
    decode: Decode = "auto"
    decode_threads: PositiveInt = 1
    options: dict[str, str] = {}

    @property
    def asks_gpu(self) -> bool:
        return self.decode != "cpu"

    @property
    def patience_s(self) -> float:
        return max(self.open_timeout_s, self.read_timeout_s)


class CameraConfig(SourceBase, frozen=True, tag="camera"):
    device: int | str = 0
    width: PositiveInt | None = None
    height: PositiveInt | None = None
    fps: PositiveFloat | None = None
    fourcc: Annotated[str, msgspec.Meta(min_length=4, max_length=4)] | None = None


class SyntheticConfig(SourceBase, frozen=True, tag="synthetic"):
    width: Annotated[int, msgspec.Meta(ge=1, le=16384)] = 640
    height: Annotated[int, msgspec.Meta(ge=1, le=16384)] = 360
    fps: PositiveFloat = 30.0
    objects: Annotated[int, msgspec.Meta(ge=0, le=64)] = 5
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    frames: PositiveInt | None = None
    pace: Pace = "realtime"


SourceConfig = AvConfig | CameraConfig | SyntheticConfig


class ReconnectConfig(Section, frozen=True):
    initial_s: PositiveFloat = 0.5
    max_s: PositiveFloat = 4.0
    factor: Annotated[float, msgspec.Meta(ge=1)] = 2.0
    jitter: Unit = 0.2


class BoardConfig(Section, frozen=True):
    mode: Literal["live", "lossless"] = "live"
    max_age_ms: PositiveFloat = 1000.0
    depth: PositiveInt = 16
    max_batch: PositiveInt | None = None


class CurveConfig(Section, frozen=True):
    secret_key: Secret | None = None
    secret_key_file: Path | None = None
    clients: Path | None = None


class PublisherConfig(Section, frozen=True):
    endpoint: str = "tcp://127.0.0.1:5556"
    encoding: Encoding = "json"
    high_water_mark: PositiveInt = 1000
    outbox: PositiveInt = 1024
    wait_for_subscriber_s: Seconds = 0.0
    allow_plaintext: bool = False
    curve: CurveConfig | None = None


class MonitorConfig(Section, frozen=True):
    interval_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0  # every frame of it is held, for percentiles
    stall_after_s: PositiveFloat = 2.0
    stuck_after_s: PositiveFloat = 30.0
    frames_file: Path | None = None


class HttpConfig(Section, frozen=True):
    enabled: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9105
    token: Secret | None = None
    token_file: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_sources: PositiveInt = 256
    schemes: tuple[str, ...] = ("rtsp", "rtsps", "http", "https", "rtmp", "rtmps")
    allow_local: bool = False
    sources_file: Path | None = None

    def secret(self) -> Secret | None:
        """The token, wherever it is.

        Raises:
            ConfigError: its file cannot be read, or it is too short to be one.
        """
        token = self.token
        if self.token_file is not None:
            try:
                token = Secret(self.token_file.read_text(encoding="utf-8").strip())
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"http.token_file: {self.token_file} cannot be read: {error}") from error
        if token is not None and len(token.reveal()) < _LEAST_TOKEN:
            raise ConfigError(
                f"http.token: is shorter than {_LEAST_TOKEN} characters: `openssl rand -hex 32` makes one"
            )
        return token


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
    admission: Mode = "off"
    reconnect: ReconnectConfig = ReconnectConfig()
    board: BoardConfig = BoardConfig()
    publisher: PublisherConfig = PublisherConfig()
    monitor: MonitorConfig = MonitorConfig()
    http: HttpConfig = HttpConfig()
    log: LogConfig = LogConfig()

    @property
    def active(self) -> list[SourceConfig]:
        """The sources that are enabled."""
        return [source for source in self.sources if source.enabled]


def load(path: Path) -> Config:
    """Read, convert and check a configuration file; relative paths in it are relative to its folder.

    Raises:
        ConfigError: with the file, the path of the key, and what to do.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            f"config {path} does not exist: pass one with -c, or copy the config.yaml that explains every key"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config {path} cannot be read: {error}") from error
    try:
        return _anchor(parse(text), path.resolve().parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(text: str) -> Config:
    """A configuration from YAML text; see `load`."""
    try:
        raw = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader, see below
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise ConfigError("is not a mapping of keys: it needs at least `model` and `sources`")
    if raw.get("admission") is False:  # what YAML 1.1 makes of a plain `off`
        raw["admission"] = "off"
    if isinstance(raw.get("gpu"), dict) and raw["gpu"].get("mps") is False:
        raw["gpu"]["mps"] = "off"
    for where in _environment_outside_secrets(raw):
        raise ConfigError(f"{where}: ${{NAME}} is only replaced in URLs and secrets; write the value itself")
    return check(_convert(raw, Config))


def source_of(raw: object) -> SourceConfig:
    """One source from a mapping, as it stands in `sources`.

    Raises:
        ConfigError: with the key.
    """
    found: SourceConfig = _convert(raw, SourceConfig)  # type: ignore[arg-type]
    _check_id(found.id, "id")
    return found


def check(config: Config, *, may_be_empty: bool = False) -> Config:
    """What types cannot say: ids, references between keys, and what would be unsafe."""
    if not config.active and not may_be_empty:
        raise ConfigError("sources: none is enabled; add one, such as {id: demo, type: synthetic}")
    seen: set[str] = set()
    for index, source in enumerate(config.sources):
        _check_id(source.id, f"sources[{index}].id")
        if source.id in seen:
            raise ConfigError(f"sources[{index}].id: {source.id!r} is used twice; each source needs its own")
        seen.add(source.id)
    if config.reconnect.max_s < config.reconnect.initial_s:
        raise ConfigError("reconnect.max_s: is below reconnect.initial_s")
    if config.admission != "off" and config.board.mode == "lossless":
        raise ConfigError("admission: leaves frames out, which board.mode: lossless forbids; set one of them otherwise")
    _check_publisher(config.publisher)
    _check_http(config.http)
    return config


def _check_id(id: str, where: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", id):
        raise ConfigError(f"{where}: {id!r} may hold letters, digits, '_', '.' and '-' only")


def _check_http(http: HttpConfig) -> None:
    if not http.enabled:
        return
    if http.token is not None and http.token_file is not None:
        raise ConfigError("http: set one of token and token_file")
    if (http.tls_certificate is None) != (http.tls_key is None):
        raise ConfigError("http: tls_certificate and tls_key go together")
    has_token = http.token is not None or http.token_file is not None
    if not _is_loopback(f"{http.host}:0") and not has_token:
        raise ConfigError(f"http.host: {http.host} can be reached by the whole network: set http.token or token_file")


def _check_publisher(publisher: PublisherConfig) -> None:
    scheme, _, address = publisher.endpoint.partition("://")
    if scheme not in ("tcp", "ipc") or not address:
        raise ConfigError(f"publisher.endpoint: {publisher.endpoint!r} must start with tcp:// or ipc://")
    port = address.rpartition(":")[2]
    if scheme == "tcp" and port != "*" and not is_port(port):
        raise ConfigError(f"publisher.endpoint: {publisher.endpoint!r} must end with a port, 0 to 65535, or with *")
    curve = publisher.curve
    if curve and (curve.secret_key is None) == (curve.secret_key_file is None):
        raise ConfigError(
            "publisher.curve: set one of secret_key and secret_key_file (`lookout keys new` makes a pair)"
        )
    if scheme == "tcp" and not curve and not publisher.allow_plaintext and not _is_loopback(address):
        raise ConfigError(
            f"publisher.endpoint: {publisher.endpoint} can be read by the whole network: set publisher.curve "
            "(`lookout keys new` makes keys), or allow_plaintext: true if that is meant"
        )


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", "lo")


def _anchor(config: Config, folder: Path) -> Config:
    """Relative paths made absolute."""

    def at(path: Path | None) -> Path | None:
        return None if path is None else folder / path

    labels = config.model.labels
    if labels not in (None, "coco"):
        labels = str(folder / str(labels))
    publisher = config.publisher
    if publisher.curve:
        curve = msgspec.structs.replace(
            publisher.curve, secret_key_file=at(publisher.curve.secret_key_file), clients=at(publisher.curve.clients)
        )
        publisher = msgspec.structs.replace(publisher, curve=curve)
    sources = [
        msgspec.structs.replace(source, url=Url(str(folder / source.url.reveal())))
        if isinstance(source, AvConfig) and not source.url.scheme
        else source
        for source in config.sources
    ]
    return msgspec.structs.replace(
        config,
        model=msgspec.structs.replace(
            config.model, path=folder / config.model.path, labels=labels, cache=at(config.model.cache)
        ),
        sources=sources,
        publisher=publisher,
        monitor=msgspec.structs.replace(config.monitor, frames_file=at(config.monitor.frames_file)),
        http=msgspec.structs.replace(
            config.http,
            token_file=at(config.http.token_file),
            tls_certificate=at(config.http.tls_certificate),
            tls_key=at(config.http.tls_key),
            sources_file=at(config.http.sources_file),
        ),
        log=msgspec.structs.replace(config.log, file=at(config.log.file)),
    )


# --- conversion ------------------------------------------------------------------------------------------

_T = TypeVar("_T")
_ENVIRONMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_KEYS = ("url", "secret_key", "token")


class _Loader(yaml.SafeLoader):
    """Refuses a key written twice, which YAML forbids and PyYAML lets pass."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is written twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _convert(raw: object, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(raw, kind, dec_hook=_hook)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error))) from error


def _hook(kind: type, value: object) -> object:
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    if not value:
        raise ValueError("is empty")
    return kind(_ENVIRONMENT.sub(_from_environment, value)) if issubclass(kind, Secret) else Path(value)


def _from_environment(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if value is None:
        raise ValueError(f"the environment variable {match[1]} is not set")
    return value


def _explain(message: str) -> str:
    """msgspec's "text - at `$.sources[0].url`" as "sources[0].url: text", with a guess at a misspelt key."""
    text, _, where = message.partition(" - at `")
    path = where.rstrip("`").lstrip("$").lstrip(".")
    unknown = re.search(r"unknown field `(.+)`", text)
    if unknown:
        close = difflib.get_close_matches(unknown[1], _known_keys(), n=1)
        text = f"unknown key `{unknown[1]}`" + (
            f"; did you mean `{close[0]}`?" if close else "; config.yaml lists every key"
        )
    if path == "type" or path.endswith(".type"):
        text += "; known are av, camera and synthetic"
    text = text.replace("Object missing required field", "missing key").replace("Object contains", "has")
    return f"{path}: {text}" if path else text


def _known_keys() -> list[str]:
    pending: list[type[msgspec.Struct]] = [Section]
    keys: set[str] = set()
    while pending:
        kind = pending.pop()
        keys.update(kind.__struct_fields__)
        pending.extend(kind.__subclasses__())
    return sorted(keys | {"type"})


def _environment_outside_secrets(value: object, path: str = "") -> Iterator[str]:
    """Paths of the strings that hold ${NAME} where it is not replaced."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _environment_outside_secrets(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _environment_outside_secrets(item, f"{path}[{index}]")
    elif isinstance(value, str) and _ENVIRONMENT.search(value) and path.rpartition(".")[2] not in _SECRET_KEYS:
        yield path
