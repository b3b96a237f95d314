"""Keys of sources, of their tracking, and of their connections."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import msgspec

from daemon.config.section import (
    MAX_MODELS,
    Hits,
    InputSize,
    Pixels,
    Rate,
    Seconds,
    Section,
    SourceId,
    Unit,
    absolute,
    literal,
)
from daemon.redact import Secret, Url
from daemon.rule_config import RuleConfig
from daemon.view_config import Roi, RoiConfig, Tiles, TilesConfig, roi_of, tiles_of

Pace = Literal["realtime", "fast"]
Decode = Literal["auto", "nvdec", "cpu"]
RecordMode = Literal["off", "events", "continuous"]
Roll = Annotated[float, msgspec.Meta(ge=0, le=120)]  # seconds before or after an event
Gibibytes = Annotated[float, msgspec.Meta(gt=0, le=1 << 24)]
Turn = Literal[0, 90, 180, 270]  # degrees clockwise


class TrackingConfig(Section, frozen=True):
    enabled: bool = False
    """of all sources that do not say otherwise"""
    floor: Unit = 0.1
    """the tracker looks at boxes down to this confidence; a weak box is published only if it belongs to a confirmed
    track"""
    start: Unit | None = None
    """a weaker box does not begin a track; null: the source's own threshold"""
    timeout_s: Seconds = 1.0
    """an object that is not seen for so long is gone, in the source's own time: zones are left"""
    memory_s: Seconds = 3.0
    """it gets its id again if it comes back within so long; a longer timeout_s is longer here, too"""
    confirm_hits: Hits = 3
    """a track gets its id after so many boxes in a row"""
    groups: list[list[str]] = []
    """labels that may be of one object, such as [[car, truck, bus]]; each other label is on its own"""


class SourceTracking(Section, frozen=True):
    """A source's own settings; None for those of `tracking`."""

    enabled: bool = True
    """false: as tracking: false"""
    floor: Unit | None = None
    """like tracking.floor"""
    start: Unit | None = None
    """like tracking.start"""
    timeout_s: Seconds | None = None
    """like tracking.timeout_s"""
    memory_s: Seconds | None = None
    """like tracking.memory_s"""
    confirm_hits: Hits | None = None
    """like tracking.confirm_hits"""
    model: SourceId | None = None
    """the model whose boxes are tracked, and whose labels its rules mean; needed where several look at it"""


class SourceRecord(Section, frozen=True):
    """A source's own settings; None for those of `record`."""

    mode: RecordMode | None = None
    """like record.mode"""
    url: Url | None = None
    """record this stream instead of the one that is analysed, such as the camera's main stream; user and password are
    those of the source"""
    max_gib: Gibibytes | None = None
    """of its recordings in each store"""
    stores: Annotated[list[SourceId], msgspec.Meta(min_length=1, max_length=8)] | None = None
    """names of stores; null: all"""
    pre_s: Roll | None = None
    """like record.pre_s"""
    post_s: Roll | None = None
    """like record.post_s"""


class SourceBase(Section, frozen=True):
    id: SourceId
    """letters, digits, '_', '.', '-'; the topic is detections/ID/"""
    enabled: bool = True
    """false: as if it were not here"""
    model: SourceId | Annotated[list[SourceId], msgspec.Meta(min_length=1, max_length=MAX_MODELS)] | None = None
    """where there are several models: the name of one in `models`, or several, such as [people, plates], which all look
    at each frame"""
    max_fps: Rate | None = None
    """frames above this rate are skipped, and counted as rate_limit"""
    labels: list[str] | None = None
    """publish these only, such as [person, car]"""
    confidence: Unit | None = None
    """this source's own threshold"""
    tracking: bool | SourceTracking | None = None
    """true or false for this source, or a mapping of its own settings, such as {timeout_s: 3}; null: as
    the section `tracking` says"""
    rules: list[RuleConfig] = []
    """of zones, lines and gates that tracks enter, cross and pass: docs/analytics.md"""
    roi: Roi | None = None
    """a polygon such as [[0.2, 0.5], [0.8, 0.5], [1, 1], [0, 1]], in shares of the picture. The model sees its hull;
    boxes whose centre lies outside are left out. Or a mapping of points, frame_size (for pixels) and anchor (center,
    bottom or top): docs/models.md"""
    tiles: Tiles | None = None
    """such as 2x2, for small objects in large pictures: the model sees the tiles and the whole, five pictures for a
    frame. Or {columns: 2, rows: 2, overlap: 0.1, whole: true}"""
    input_size: InputSize | None = None
    """640, or [1280, 736] for a wide picture, of a model with a dynamic input size; null: model.input_size"""
    record: RecordMode | SourceRecord | None = None
    """off, events or continuous, or a mapping of its own settings, such as {mode: continuous, url:
    "rtsp://192.0.2.10/main"}; null: as the section `record` says"""

    @property
    def recording(self) -> SourceRecord:
        """Its own settings of recording; those that are None are as `record` says."""
        own = self.record
        return SourceRecord(mode=own) if isinstance(own, str) or own is None else own

    @property
    def has_several_models(self) -> bool:
        return isinstance(self.model, list) and len(self.model) > 1

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
    def tiling(self) -> TilesConfig | None:
        """The tiles; None for none."""
        return tiles_of(self.tiles)

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
    """RTSP and everything else that FFmpeg reads."""

    url: Url
    """a path or file:// is a recording, a folder or a pattern (/recordings/2026-*/*.mp4) several, played by name one
    after the other"""
    user: Secret | None = None
    """beside the URL, in any signs: viewer, or "${CAMERA_USER}"; never shown"""
    password: Secret | None = None
    """such as "${CAMERA_PASSWORD}", which is taken from the environment"""
    kind: Literal["auto", "recording", "live"] = "auto"
    """recording: it has an end, which a file has, or live; of a URL only you can know"""
    transport: Literal["auto", "tcp", "udp"] = "auto"
    """of RTSP: tcp, or udp where the server has no other"""
    open_timeout_s: Seconds = 5.0
    """seconds to connect, at most"""
    read_timeout_s: Seconds = 5.0
    """no data for so long: the connection is given up and made anew"""
    rotate: Literal["auto"] | Turn = "auto"
    """degrees clockwise, 0, 90, 180 or 270; auto: as a recording says of itself, which telephones do"""
    decode: Decode = "auto"
    """the GPU's decoder where it can, cpu otherwise, and says why; or nvdec, cpu"""
    decode_threads: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    """on the CPU: more is faster for one large picture, and later by as many frames"""
    corrupt: Literal["drop", "mark"] = "drop"
    """pictures that the decoder finds errors in: drop, or mark (published with "corrupt": true)"""
    options: dict[str, Secret] = {}
    """FFmpeg's own, such as {probesize: "500000"}"""
    pace: Pace = "realtime"
    """recordings: at their own pace, or fast"""
    loop: bool = False
    """recordings: begin again at the end"""

    @property
    def is_live(self) -> bool:
        """A file is a recording, and a URL is live, unless `kind` says so."""
        return self.url.scheme not in ("", "file") if self.kind == "auto" else self.kind == "live"

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
    """USB and other V4L2 cameras."""

    device: int | str = 0
    """number, or a path such as /dev/video0"""
    width: Pixels | None = None
    """ask the camera for this, null: as it gives"""
    height: Pixels | None = None
    """likewise"""
    fps: Rate | None = None
    """likewise"""
    fourcc: Annotated[str, msgspec.Meta(min_length=4, max_length=4)] | None = None
    """such as MJPG"""
    rotate: Turn = 0
    """degrees clockwise: 90, 180, 270"""

    @property
    def opened_here(self) -> int | str:
        return self.device


class SyntheticConfig(SourceBase, frozen=True, tag="synthetic"):
    """A drawn street that needs no camera."""

    width: Pixels = 640
    """of the picture, pixels"""
    height: Pixels = 360
    """likewise"""
    fps: Rate = 30.0
    """frames a second"""
    objects: Annotated[int, msgspec.Meta(ge=0, le=64)] = 5
    """in the picture"""
    bands: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    """fewer than objects, such as 2: objects cross and hide each other"""
    seed: Annotated[int, msgspec.Meta(ge=0, le=1 << 32)] = 0
    """another seed draws another street"""
    frames: Annotated[int, msgspec.Meta(ge=1, le=1 << 48)] | None = None
    """end after so many"""
    pace: Pace = "realtime"
    """or fast: as fast as lanes take them"""

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
    """before the first try"""
    max_s: Seconds = 4.0
    """between two tries, at most"""
    refused_s: Seconds = 60.0
    """a source that refuses the login is tried so rarely, because more tries may lock the account"""
    refused_max_s: Seconds = 900.0
    """after so long, times factor, up to this; a reload, or another login, is tried at once"""
    factor: Annotated[float, msgspec.Meta(ge=1, le=100)] = 2.0
    """of the time from one try to the next"""
    jitter: Unit = 0.2
    """up to this share shorter, at random, so that cameras do not all come back at once"""
