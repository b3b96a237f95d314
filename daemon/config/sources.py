"""Keys of sources, of their tracking, and of their connections."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import msgspec

from daemon.config.section import Hits, InputSize, Pixels, Rate, Seconds, Section, SourceId, Unit, absolute
from daemon.config.text import literal
from daemon.errors import ConfigError
from daemon.redact import Secret, Url
from daemon.rule_config import RuleConfig, check_rules
from daemon.url_config import check_url
from daemon.view_config import Roi, RoiConfig, Tiles, check_views, roi_of, tiling_of
from detectors.views import Tiling

Pace = Literal["realtime", "fast"]
Decode = Literal["auto", "nvdec", "cpu"]
Turn = Literal[0, 90, 180, 270]  # degrees clockwise


class TrackingConfig(Section, frozen=True):
    enabled: bool = False
    floor: Unit = 0.1
    start: Unit | None = None
    timeout_s: Seconds = 1.0
    memory_s: Seconds = 3.0
    confirm_hits: Hits = 3
    groups: list[list[str]] = []


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
        written = absolute(Path(literal(str(folder))), Path(self.url.written))
        return msgspec.structs.replace(self, url=Url(str(absolute(folder, path)), str(written)))


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


def check_groups(tracking: TrackingConfig) -> None:
    seen: set[str] = set()
    for index, group in enumerate(tracking.groups):
        for label in group:
            if label in seen:
                raise ConfigError(f"tracking.groups[{index}]: {label!r} is named twice; a label has one group")
            seen.add(label)


def check_reconnect(reconnect: ReconnectConfig) -> None:
    if reconnect.max_s < reconnect.initial_s:
        raise ConfigError("reconnect.max_s: is below reconnect.initial_s")
    if reconnect.refused_max_s < reconnect.refused_s:
        raise ConfigError("reconnect.refused_max_s: is below reconnect.refused_s")


def check_source(source: SourceConfig, where: str) -> None:
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
