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
EventKind = Literal["object", "zone", "line", "gate", "crowd", "attribute"]
EventPhase = Literal["appeared", "left", "entered", "dwell", "crossed", "passed", "over", "under", "settled", "changed"]
Direction = Literal["forward", "backward"]
ClipState = Literal["recording", "ready", "failed"]
EndReason = Literal["left", "lost", "source_down", "rule_removed", "inactive"]


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The node that runs a source, where several daemons share sources.

    Attributes:
        epoch: higher for each new owner of the source; readers drop messages with a lower one.
        fleet: name of the fleet; epochs of two fleets say nothing about each other.
    """

    node: str
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    fleet: str = ""


class RunLengths(msgspec.Struct, frozen=True, gc=False):
    """A mask as a bitmap in run lengths.

    Attributes:
        size: height and width of the bitmap, bits.
        counts: lengths of runs of zeros and ones in turn, zeros first, down each column from the left one: the
            uncompressed order of COCO.
        origin: x and y in source pixels of the upper left corner of the first bit.
        scale: source pixels for a bit, horizontally and vertically.
    """

    size: tuple[int, int]
    counts: list[Annotated[int, msgspec.Meta(ge=0)]]
    origin: tuple[float, float]
    scale: tuple[float, float]


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """The result of a classifier for one track.

    Attributes:
        value: a label of the classifier; null while no look was sure enough.
        confidence: mean of the looks that gave this value, 0-1, to 0.0001; null without a value.
        votes: number of those looks, among the latest `attempts`.
        settled: enough looks agree; a settled value changes only when enough looks agree on another one.
        at_seq: `seq` of the latest frame that the classifier looked at.
    """

    value: str | None
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None
    votes: Annotated[int, msgspec.Meta(ge=0)]
    settled: bool
    at_seq: int


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
        keypoints: x and y in pixels of the source's picture, to 0.01, and confidence, to 0.0001, of each point; absent
            if the model finds none.
        obb: the box at an angle: centre x and y, width and height in pixels of the source's picture, to 0.01, and the
            angle in radians, to 0.0001, clockwise from the x axis to the width; absent if the model finds none.
        mask: rings of x and y in pixels of the source's picture, to 0.1, or run lengths, as `publisher.masks` says;
            absent if the model finds none, and beyond `publisher.max_masks`.
        attributes: of the track, by name of the classifier; absent before a classifier has looked at it.
    """

    label: str
    class_id: Annotated[int, msgspec.Meta(ge=0)]
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]
    box: tuple[float, float, float, float]
    track_id: int | None = None
    velocity: tuple[float, float] | msgspec.UnsetType = msgspec.UNSET
    age: int | msgspec.UnsetType = msgspec.UNSET
    track_label: str | msgspec.UnsetType = msgspec.UNSET
    keypoints: list[tuple[float, float, float]] | msgspec.UnsetType = msgspec.UNSET
    obb: tuple[float, float, float, float, float] | msgspec.UnsetType = msgspec.UNSET
    mask: list[list[tuple[float, float]]] | RunLengths | msgspec.UnsetType = msgspec.UNSET
    attributes: dict[str, Attribute] | msgspec.UnsetType = msgspec.UNSET


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
    """Which model made the detections.

    Attributes:
        name: of the file.
        digest: the start of the ONNX file's SHA-256, or with a server that of the configuration that it gives.
        id: its name in `models`; absent where the configuration has `model`.
    """

    name: str
    digest: str
    precision: str
    backend: str
    id: str | msgspec.UnsetType = msgspec.UNSET


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
        before_key: it came before the first key picture of a connection to a live source.
        corrupt: the decoder found errors in the picture, and the source's `corrupt` is `drop`.
        late: not decoded, because decoding had fallen behind, or older than a live source's decoder.
        outbox_full: the publisher fell behind.
        detector_error: the detector failed on it.
        detector_unavailable: the server of the model gave no results.
        shutdown: still waiting, or in the detector, when the time to stop was over.
        removed: still waiting when the source was removed or changed.
        fenced: another daemon had, or might have had, the source when it was to be sent.
    """

    superseded: int = 0
    stale: int = 0
    rate_limit: int = 0
    decode_error: int = 0
    before_key: int = 0
    corrupt: int = 0
    late: int = 0
    outbox_full: int = 0
    detector_error: int = 0
    detector_unavailable: int = 0
    shutdown: int = 0
    removed: int = 0
    fenced: int = 0


class Detections(msgspec.Struct, frozen=True, kw_only=True):
    """The detections of one frame. Every analysed frame has a message, with or without boxes.

    Attributes:
        instance: id of the daemon's run; counters start again with a new one.
        session: id of the connection to the source, new at each.
        seq: counter of the source's captured frames, from 0; a gap is a frame dropped by the daemon.
        index: counter of the messages on this topic, from 0; a gap is the subscriber's own loss.
        pts: time on the source's own timeline, null where it has none.
        captured_at: UTC, of the kind that `clock` says.
        owner: null for a daemon that shares its sources with no other.
        corrupt: true if the decoder found errors in the picture; absent otherwise.
        traceparent: W3C's header of the frame's trace, for what is done with the message; absent where the frame is not
            traced.
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
    owner: Owner | None = None
    corrupt: bool | msgspec.UnsetType = msgspec.UNSET
    traceparent: str | msgspec.UnsetType = msgspec.UNSET


class VideoFormat(msgspec.Struct, frozen=True):
    """The video of a connected source.

    Attributes:
        fps: frames a second: a credible claim that the pictures do not contradict, or as measured; null while unknown.
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
        owner: as in `detections`.
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
    owner: Owner | None = None


class Unseen(msgspec.Struct, frozen=True, gc=False):
    """Frames of the source that were lost while an event was decided.

    Attributes:
        frames: their number, from gaps in `seq`.
        longest_gap: the longest gap between two analysed frames, in source time, ns.
    """

    frames: int = 0
    longest_gap: int = 0


class EventAttribute(msgspec.Struct, frozen=True, gc=False):
    """An attribute of a track that has settled, or has changed.

    Attributes:
        name: of the classifier.
        confidence: mean of the looks that gave the value, to 0.0001.
    """

    name: str
    value: str
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something happened: an object appeared or left, a rule found something, or an attribute is known.

    Attributes:
        id: unique over all runs of all daemons.
        number: grows from event to event, over restarts as well; `since` of the HTTP API takes it.
        index: counter of the messages on this topic, from 0; a gap is the subscriber's own loss. 0 in the journal.
        seq, session, pts, at: of the frame in which it began; `at` is its `captured_at`.
        confirmed_seq, confirmed_at: of the frame that confirmed it.
        rule: its name; null for an attribute.
        direction: "forward" over a line is from left to right, seen from its first point towards its second; through a
            gate it is from the first line to the second.
        track: id; null for a crowd.
        label: the track's.
        box: of the track in the confirming frame: x1, y1, x2, y2 in pixels of the source's picture; null for a crowd.
        dwell: source time in the zone so far, ns; null where it means nothing.
        count: tracks in the zone, of a crowd.
        reason: why a stay ended; "inactive" if the rule's schedule did.
        unseen: the frames that were lost while it was decided.
        snapshot: path of its picture in the HTTP API; null where there is none.
        clip: path of its video in the HTTP API of recordings; null where its source is not recorded. The message of
            its clip says when all of it is there.
        attribute: of an event about an attribute; null otherwise.
        owner: as in `detections`.
    """

    schema: Literal["lookout.event/1"] = "lookout.event/1"
    id: str
    number: int
    instance: str
    source: str
    session: str
    index: int
    kind: EventKind
    phase: EventPhase
    seq: int
    pts: int | None
    at: int
    confirmed_seq: int
    confirmed_at: int
    rule: str | None = None
    direction: Direction | None = None
    track: int | None = None
    label: str | None = None
    box: tuple[float, float, float, float] | None = None
    dwell: int | None = None
    count: int | None = None
    reason: EndReason | None = None
    unseen: Unseen = Unseen()
    snapshot: str | None = None
    clip: str | None = None
    attribute: EventAttribute | None = None
    owner: Owner | None = None


class Total(msgspec.Struct, frozen=True, gc=False):
    """Number of events of one kind.

    Attributes:
        rule, direction, label: null where the events have none.
    """

    rule: str | None
    kind: EventKind
    phase: EventPhase
    direction: Direction | None
    label: str | None
    count: int


class Occupancy(msgspec.Struct, frozen=True, gc=False):
    """Tracks of one label that are in a zone now.

    Attributes:
        rule: null for the picture as a whole.
    """

    rule: str | None
    label: str | None
    count: int


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one source in numbers, at an interval and soon after a change.

    Attributes:
        at: UTC.
        since: UTC; `totals` count from then: over restarts where there is a journal, and with an owner from when it
            became the owner.
        occupancy: zones with tracks in them.
        owner: as in `detections`.
    """

    schema: Literal["lookout.counts/1"] = "lookout.counts/1"
    instance: str
    source: str
    index: int
    at: int
    since: int
    totals: list[Total]
    occupancy: list[Occupancy]
    owner: Owner | None = None


class Packets(msgspec.Struct, frozen=True, kw_only=True):
    """Where the packets of one source are published: the answer to a subscription to exactly `packets/<source>/`.

    Packets are for those who ask: on that endpoint, and of no source that nobody there subscribes to.

    Attributes:
        endpoint: null if packets are not published, and `reason` says why. Its host may be a wildcard.
    """

    schema: Literal["lookout.packets/1"] = "lookout.packets/1"
    instance: str
    source: str
    index: int
    endpoint: str | None
    reason: str | None = None


class Packet(msgspec.Struct, frozen=True, kw_only=True):
    """One packet of a source's video, as the camera sent it; its bytes are a third frame, behind this one.

    Attributes:
        index: counter of the packets of this topic while anybody watches, from 0; a gap is a loss.
        codec, extradata: of the stream, as FFmpeg has them. H.264 and HEVC have start codes if extradata has, or is
            empty; otherwise their units follow their lengths.
        time_base: numerator and denominator of the stream's unit of time, seconds.
        width, height: of the coded picture, which `turns` quarter turns clockwise make upright.
        pts: as in `detections`, null where it has none.
        dts: on the same timeline, null likewise.
        key: a decoder may begin here.
        owner: as in `detections`.
    """

    schema: Literal["lookout.packet/1"] = "lookout.packet/1"
    instance: str
    source: str
    session: str
    index: int
    codec: str
    extradata: bytes
    time_base: tuple[int, int]
    width: int
    height: int
    turns: int
    pts: int | None
    dts: int | None
    key: bool
    owner: Owner | None = None


class Clip(msgspec.Struct, frozen=True, kw_only=True):
    """A recording that events want: it begins, and once more when all of it is on disk.

    Attributes:
        id: of its first event.
        store: name of the store that it is in; each store has its own.
        events: ids, at most 200.
        begin, end: UTC ns; `end` grows with further events while it is recorded.
        covered: ns of it that are on disk.
        state: failed if nothing of it is.
        path: of the video at the HTTP API of recordings.
        owner: as in `detections`.
    """

    schema: Literal["lookout.clip/1"] = "lookout.clip/1"
    instance: str
    source: str
    index: int
    id: str
    store: str
    events: list[str]
    begin: int
    end: int
    covered: Annotated[int, msgspec.Meta(ge=0)]
    state: ClipState
    path: str
    owner: Owner | None = None


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """A store of recordings can be written to again, or no more.

    Attributes:
        at: UTC ns.
        cause: why nothing can be written, a cause of gaps; null if it can.
        reason: in words.
        bytes: of its recordings; 0 while it is away.
        free_bytes: of its disk, null where it is not known.
    """

    schema: Literal["lookout.store/1"] = "lookout.store/1"
    instance: str
    index: int
    at: int
    store: str
    cause: str | None
    reason: str | None
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    free_bytes: int | None


class Percentiles(msgspec.Struct, frozen=True):
    """Of one stage over the interval, ns."""

    p50: int
    p95: int
    p99: int
    max: int


class AccountMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The frames of a source at one of the models that look at it; as in `SourceMetrics`."""

    published_fps: float
    captured: int
    published: int
    dropped: Dropped
    in_flight: int
    latency: dict[str, Percentiles] | None


class ModelMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One of several models: rates over the interval, counters since the start, of the sources that it looks at now.

    Attributes:
        name, digest, precision, backend: as in `detections`.
        sources: that it looks at.
        latency: by stage, null when the interval had no frame.
    """

    name: str
    digest: str
    precision: str
    backend: str
    sources: int
    published_fps: float
    captured: int
    published: int
    dropped: Dropped
    in_flight: int
    latency: dict[str, Percentiles] | None


class SourceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One source: rates over the interval, counters since the start. A frame at which several models look counts once
    for each.

    Attributes:
        in_flight: captured, and neither published nor dropped yet: captured = published + dropped + in_flight.
        latency: by stage, null when the interval had no frame.
        passed_over: packets of video that are no frames of the source, by kind. `other_video`: of a video stream that
            is not read. `attached_picture`: of a cover or a thumbnail. `no_picture`: parameter sets and the like,
            without a picture. `not_shown`: pictures that the recording does not show.
        models: that look at it, by name; the sum is above. Empty where the configuration has `model`.
    """

    state: State
    captured_fps: float
    published_fps: float
    captured: int
    published: int
    dropped: Dropped
    in_flight: int
    latency: dict[str, Percentiles] | None
    passed_over: dict[str, int] = {}
    models: dict[str, AccountMetrics] = {}


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
    """The outbox, and how many subscriptions are held by subscribers.

    Attributes:
        fenced: messages of other kinds than `detections` that were not sent, because another daemon had the source.
    """

    outbox: int
    outbox_limit: int
    subscriptions: int
    fenced: int = 0


class CropsDropped(msgspec.Struct, frozen=True):
    """Looks of a classifier that were not done, by cause, since the start.

    Attributes:
        busy: too many were waiting, or their pictures found no room.
        failed: the classifier failed.
        unavailable: the server of the classifier gave no results.
        removed: the source was removed before the look was done.
        shutdown: still waiting when the daemon stopped.
    """

    busy: int = 0
    failed: int = 0
    unavailable: int = 0
    removed: int = 0
    shutdown: int = 0


class ClassifierMetrics(msgspec.Struct, frozen=True):
    """The looks of one classifier at boxes, since the start: requested = classified + dropped + pending.

    Attributes:
        failure: why it looks at nothing more; null while it works.
    """

    requested: int
    classified: int
    dropped: CropsDropped
    pending: int
    failure: str | None = None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's own figures, every `monitor.interval_s`.

    Attributes:
        fps: published frames a second over the interval, all sources.
        classifiers: by name.
        models: by name; empty where the configuration has `model`.
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
    classifiers: dict[str, ClassifierMetrics] = {}
    models: dict[str, ModelMetrics] = {}


Message = Detections | Status | Event | Counts | Metrics | Packets | Clip | Store
_TYPES: dict[str, type[Any]] = {
    "detections": Detections,
    "status": Status,
    "events": Event,
    "counts": Counts,
    "metrics": Metrics,
    "packets": Packets,
    "clips": Clip,
    "stores": Store,
}
KINDS = (
    "detections",
    "status",
    "events",
    "counts",
    "metrics",
    "clips",
    "stores",
)  # that a subscriber may want of all sources
_HEADERS = {"packet": Packet}  # of messages on other endpoints
_PACKET_JSON, _PACKET_MSGPACK = msgspec.json.Decoder(Packet), msgspec.msgpack.Decoder(Packet)
_JSON = {kind: msgspec.json.Decoder(cls) for kind, cls in _TYPES.items()}
_MSGPACK = {kind: msgspec.msgpack.Decoder(cls) for kind, cls in _TYPES.items()}


def watched_source(topic: bytes) -> str | None:
    """The source of a subscription to exactly `packets/<source>/`; None for any other, which asks for no packets."""
    kind, _, source = topic.partition(b"/")
    name = source[:-1]
    if kind != b"packets" or source[-1:] != b"/" or not name or b"/" in name:
        return None
    return name.decode(errors="replace")


def is_port(text: str) -> bool:
    """Whether there is a TCP port of that number; ZeroMQ takes 70000 for 4464."""
    return len(text) <= 5 and text.isascii() and text.isdecimal() and int(text) < 1 << 16


def kind_of(message: Message) -> str:
    """The first part of a message's topic."""
    return next(kind for kind, cls in _TYPES.items() if isinstance(message, cls))


def topic(kind: str, source: str = "") -> bytes:
    """`detections/cam1/`: topics end in / so that a subscription to cam1 does not match cam10."""
    return f"{kind}/{source}/".encode() if source else f"{kind}/".encode()


def encoder(encoding: Encoding) -> Callable[[Message | Packet], bytes]:
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


def decode_packet(header: bytes) -> Packet:
    """The header of a packet.

    Raises:
        ValueError: it does not fit the wire's version 1.
    """
    decoder: Any = _PACKET_JSON if header[:1] == b"{" else _PACKET_MSGPACK
    try:
        found: Packet = decoder.decode(header)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the header of a packet does not fit the wire: {error}") from error
    return found


def schemas() -> dict[str, bytes]:
    """JSON Schema of each message, by file name."""
    return {
        f"{kind}.schema.json": msgspec.json.format(msgspec.json.encode(_normalised(msgspec.json.schema(cls))), indent=2)
        + b"\n"
        for kind, cls in (_TYPES | _HEADERS).items()
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
