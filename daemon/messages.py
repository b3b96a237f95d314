"""The wire, version 1: every message as a typed struct, topics, encoding and decoding.

Two ZeroMQ frames: topic, payload. A payload is JSON or MessagePack with the same fields; the first byte tells
them apart. Fields may be added within version 1, so a reader ignores those it does not know. All times and
durations are integer nanoseconds, all boxes are in pixels of the source's picture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

Encoding = Literal["json", "msgpack"]
State = Literal["connecting", "up", "stalled", "down", "ended"]


class Detection(msgspec.Struct, frozen=True, gc=False):
    """One box.

    Attributes:
        box: x1, y1, x2, y2 in pixels of the source's picture, to 0.01.
        confidence: 0-1, to 0.0001.
        track_id: of the object, from 1 for each source and instance; null until its track is confirmed, and where the
            source is not tracked.
        velocity: of the centre of the track's box, x and y, pixels a second, to 0.01; absent without a `track_id`.
        age: ns of source time since the track began; likewise.
        track_label: the track's own label, by the votes of its boxes; likewise.
    """

    label: str
    class_id: Annotated[int, msgspec.Meta(ge=0)]
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]
    box: tuple[float, float, float, float]
    track_id: int | None = None
    velocity: tuple[float, float] | msgspec.UnsetType = msgspec.UNSET
    age: int | msgspec.UnsetType = msgspec.UNSET
    track_label: str | msgspec.UnsetType = msgspec.UNSET


class FrameClock(msgspec.Struct, frozen=True, gc=False):
    """The kind of clock behind `captured_at`: arrival here, the camera's NTP time, or the playback of a recording.

    Attributes:
        error: ns the time may be off, null where it is not known.
    """

    kind: Literal["arrival", "ntp", "file"]
    error: int | None = None


class ImageSize(msgspec.Struct, frozen=True, gc=False):
    """Size of the source's picture, pixels, upright.

    Attributes:
        pixel_aspect: width of a pixel over its height: a picture of 720x576 is shown 1024 wide if this is 1.422.
    """

    width: int
    height: int
    pixel_aspect: float = 1.0


class Model(msgspec.Struct, frozen=True, gc=False):
    """Which model made the detections; `digest` is the start of the ONNX file's SHA-256."""

    name: str
    digest: str
    precision: str
    backend: str


class Latency(msgspec.Struct, frozen=True, gc=False):
    """Where one frame's time went, ns.

    Attributes:
        decode: decoding and bringing the picture into BGR, before `captured_at`.
        wait: captured to taken by a lane.
        preprocess, infer, postprocess: of the whole batch the frame was in.
        total: captured to sent: when this message is made, after which at most 31 more are before all go to the socket.
    """

    decode: int
    wait: int
    preprocess: int
    infer: int
    postprocess: int
    total: int


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """Frames of the source that were captured but not published, by cause, since the daemon started.

    Attributes:
        superseded: a newer frame of the source came before a lane was free.
        stale: older than `board.max_age_ms` when a lane was free.
        rate_limit: above the source's `max_fps`, or what `admission: degrade` leaves it.
        decode_error: the picture could not be decoded.
        late: not decoded, because decoding had fallen behind.
        outbox_full: the publisher fell behind.
        detector_error: the detector failed on it.
        shutdown: still waiting, or in the detector, when the time to stop was over.
        removed: still waiting when the source was removed or changed.
    """

    superseded: int = 0
    stale: int = 0
    rate_limit: int = 0
    decode_error: int = 0
    late: int = 0
    outbox_full: int = 0
    detector_error: int = 0
    shutdown: int = 0
    removed: int = 0


class Detections(msgspec.Struct, frozen=True, kw_only=True):
    """The detections of one frame. Every analysed frame has a message, with or without boxes.

    Attributes:
        instance: id of the daemon's run; counters start again with a new one.
        session: id of the connection to the source, new at each.
        seq: counter of the source's captured frames, from 0; a gap is a frame dropped by the daemon.
        index: counter of the messages on this topic, from 0; a gap is the subscriber's own loss.
        pts: time on the source's own timeline, null where it has none.
        captured_at: UTC, of the kind that `clock` says.
    """

    schema: Literal["lookout.detections/1"] = "lookout.detections/1"
    instance: str
    source: str
    session: str
    seq: int
    index: int
    pts: int | None
    captured_at: int
    clock: FrameClock
    image: ImageSize
    model: Model
    detections: list[Detection]
    latency: Latency
    dropped: Dropped


class VideoFormat(msgspec.Struct, frozen=True):
    """The video of a connected source.

    Attributes:
        decoder: name of the decoder.
        decoder_reason: the reason for a CPU decoder where the GPU's was asked for, if possible; null otherwise.
        pixel_aspect: width of a pixel over its height.
        notes: hints for the person who set the source up, one line each.
    """

    codec: str
    width: int
    height: int
    fps: float | None
    decoder: str
    decoder_reason: str | None = None
    pixel_aspect: float = 1.0
    notes: tuple[str, ...] = ()


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A source changed its state; the last one is sent again when somebody subscribes.

    Attributes:
        reason: why it is stalled, down or ended, or up at less than its full rate; null otherwise.
        retry_in_s: seconds to the next try, when down.
        format: when up.
    """

    schema: Literal["lookout.status/1"] = "lookout.status/1"
    instance: str
    source: str
    session: str | None
    index: int
    at: int
    state: State
    reason: str | None = None
    retry_in_s: float | None = None
    format: VideoFormat | None = None


class Percentiles(msgspec.Struct, frozen=True):
    """Of one stage over the interval, ns."""

    p50: int
    p95: int
    p99: int
    max: int


class SourceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One source: rates over the interval, counters since the start.

    Attributes:
        in_flight: captured, and neither published nor dropped yet: captured = published + dropped + in_flight.
        latency: by stage, null when the interval had no frame.
    """

    state: State
    captured_fps: float
    published_fps: float
    captured: int
    published: int
    dropped: Dropped
    in_flight: int
    latency: dict[str, Percentiles] | None


class ProcessMetrics(msgspec.Struct, frozen=True):
    """The daemon's processes, those that capture among them; 100 % is one core."""

    cpu_percent: float
    rss_bytes: int
    threads: int
    open_files: int


class GpuMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU through NVML; a value is null where the device cannot tell, and `reasons` says why.

    Attributes:
        utilisation, decoder_utilisation, memory_controller_utilisation: percent.
        energy_j: since the driver was loaded.
        clock_mhz: of its processors.
        throttled: what holds the clock down now; empty if nothing does but idleness or somebody's own setting.
        processes: that compute on it.
    """

    name: str
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    process_memory_bytes: int | None
    utilisation: int | None
    decoder_utilisation: int | None
    power_w: float | None
    energy_j: float | None
    memory_controller_utilisation: int | None = None
    clock_mhz: int | None = None
    throttled: list[str] | None = None
    processes: int | None = None
    reasons: dict[str, str]


class PublisherMetrics(msgspec.Struct, frozen=True):
    """The outbox, and how many subscriptions are held by subscribers."""

    outbox: int
    outbox_limit: int
    subscriptions: int


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's own figures, every `monitor.interval_s`.

    Attributes:
        fps: published frames a second over the interval, all sources.
        gpus: null where there is none to ask, and `gpus_reason` says why.
    """

    schema: Literal["lookout.metrics/1"] = "lookout.metrics/1"
    instance: str
    index: int
    at: int
    interval_s: float
    uptime_s: float
    fps: float
    latency: dict[str, Percentiles] | None
    sources: dict[str, SourceMetrics]
    process: ProcessMetrics
    gpus: list[GpuMetrics] | None
    gpus_reason: str | None
    publisher: PublisherMetrics


Message = Detections | Status | Metrics
_TYPES: dict[str, type[Any]] = {"detections": Detections, "status": Status, "metrics": Metrics}
_JSON = {kind: msgspec.json.Decoder(cls) for kind, cls in _TYPES.items()}
_MSGPACK = {kind: msgspec.msgpack.Decoder(cls) for kind, cls in _TYPES.items()}


def is_port(text: str) -> bool:
    """Whether there is a TCP port of that number; ZeroMQ takes 70000 for 4464."""
    return len(text) <= 5 and text.isascii() and text.isdecimal() and int(text) < 1 << 16


def topic(kind: str, source: str = "") -> bytes:
    """`detections/cam1/`: topics end in / so that a subscription to cam1 does not match cam10."""
    return f"{kind}/{source}/".encode() if source else f"{kind}/".encode()


def encoder(encoding: Encoding) -> Callable[[Message], bytes]:
    """The function that makes a payload."""
    return msgspec.json.Encoder().encode if encoding == "json" else msgspec.msgpack.Encoder().encode


def decode(topic: bytes, payload: bytes) -> Message:
    """The message of a topic and payload.

    Raises:
        ValueError: the topic is not one of version 1, or the payload does not fit it.
    """
    kind = topic.partition(b"/")[0].decode(errors="replace")
    if kind not in _TYPES:
        raise ValueError(f"topic {topic!r} is not one of the wire's: {', '.join(_TYPES)}")
    decoder = _JSON[kind] if payload[:1] == b"{" else _MSGPACK[kind]
    try:
        message: Message = decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise ValueError(f"payload on {topic!r} does not fit the wire: {error}") from error
    return message


def schemas() -> dict[str, bytes]:
    """JSON Schema of each message, by file name."""
    return {
        f"{kind}.schema.json": msgspec.json.format(msgspec.json.encode(_normalised(msgspec.json.schema(cls))), indent=2)
        + b"\n"
        for kind, cls in _TYPES.items()
    }


def _normalised(schema: Any) -> Any:
    """The same text from every Python (3.13 strips docstrings) and msgspec (each orders unions its own way)."""
    if isinstance(schema, dict):
        normalised = {key: _normalised(value) for key, value in schema.items()}
        if isinstance(normalised.get("description"), str):
            normalised["description"] = cleandoc(normalised["description"])
        if "anyOf" in normalised:
            normalised["anyOf"].sort(key=str)
        return normalised
    return [_normalised(item) for item in schema] if isinstance(schema, list) else schema


if __name__ == "__main__":
    for name, text in schemas().items():
        (Path(sys.argv[1]) / name).write_bytes(text)
