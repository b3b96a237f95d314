"""The facts of analysed pictures: on their way to a recorder, and as they are read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.outbox import Served
from detectors.detections import TrackNews
from lookout.messages import Attribute, State

Attributes = Mapping[str, Attribute]
Labels = dict[int, Served]
"""Models with their labels, by number."""


class PackedNews(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`detectors.detections.TrackNews`; the boxes are bytes."""

    earlier: dict[int, bytes]
    lost: list[int]
    forgotten: list[int]

    @staticmethod
    def of(news: TrackNews) -> PackedNews:
        return PackedNews({id: boxes.tobytes() for id, boxes in news.earlier.items()}, news.lost, news.forgotten)

    def unpacked(self) -> TrackNews:
        earlier = {id: np.frombuffer(boxes, np.float32).reshape(-1, 4) for id, boxes in self.earlier.items()}
        return TrackNews(earlier, self.lost, self.forgotten)


class Handed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Frames of a batch with their boxes, from a lane to a recorder.

    Attributes:
        served: number of the model's labels.
        indexes: of each frame; see `SeenFrame`.
        counts: boxes of each frame.
        tracked: whether each frame's source is.
        xyxy, confidence, class_id: of the boxes of all frames, as in `detectors.detections.Detections`.
        id, track_class, track_xyxy: likewise, as in `detectors.detections.Tracks`; empty if no frame is tracked.
        news, attributes: of the frames that have some, by their place.
    """

    served: int
    frames: list[FrameInfo]
    indexes: list[int]
    counts: list[int]
    tracked: list[bool]
    xyxy: bytearray
    confidence: bytearray
    class_id: bytearray
    id: bytearray
    track_class: bytearray
    track_xyxy: bytearray
    news: dict[int, PackedNews]
    attributes: dict[int, list[dict[str, Attribute] | None]]


class StateChange(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """A source has another state, which ends what rules know of it.

    Attributes:
        monotonic: ns, by the clock of `FrameInfo.captured_ns`.
        utc: ns.
    """

    source: str
    state: State
    monotonic: int
    utc: int


ToTracks = Handed | StateChange
decode_message = msgspec.msgpack.Decoder(ToTracks).decode


class SeenTracks(msgspec.Struct, frozen=True, eq=False):
    """The tracks of a frame, as rules look at them; implements `daemon.analytics.track.SeenTracks`.

    Attributes:
        id: (n,) int64; 0 for a box without a confirmed track.
        class_id: (n,) int32, the track's own class.
        xyxy: (n, 4) float32, the filtered box in source pixels, to the last bit; that of the detector without a track.
        news: None for none.
    """

    id: npt.NDArray[np.int64]
    class_id: npt.NDArray[np.int32]
    xyxy: npt.NDArray[np.float32]
    news: TrackNews | None = None


class SeenFrame(msgspec.Struct, frozen=True, eq=False):
    """An analysed picture.

    Attributes:
        frame: without `decode` and `lateness`. A gap in `seq` is a frame that was dropped before it was analysed.
        index: counter of the analysed frames of a source and a model, from 0 for each run of the daemon. A gap is a
            frame that was analysed and is not in the file: it lies outside of the video, or was lost on the way.
        served: the model and its labels.
        xyxy: (n, 4) float64, source pixels, to 0.01, as the wire has them.
        confidence: (n,) float64, to 0.0001, likewise.
        class_id: (n,) int32.
        tracks: None if the source was not tracked.
        attributes: of each box, None where nothing is known; None if no box has some.
    """

    frame: FrameInfo
    index: int
    served: Served
    xyxy: npt.NDArray[np.float64]
    confidence: npt.NDArray[np.float64]
    class_id: npt.NDArray[np.int32]
    tracks: SeenTracks | None
    attributes: Sequence[Attributes | None] | None

    @property
    def objects(self) -> int:
        """Tracks; boxes where nothing is tracked."""
        return len(self.xyxy) if self.tracks is None else int(np.count_nonzero(self.tracks.id))


class TrackingSettings(msgspec.Struct, frozen=True, array_like=True):
    """How a source was tracked: what rules need beside the tracks.

    Attributes:
        lost_after_ns, confirm_hits: see `daemon.analytics.source_rules.RuleSet`.
    """

    lost_after_ns: int
    confirm_hits: int


class TracksHead(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a file of tracks tells at its beginning.

    Attributes:
        video: id of the recording.
        same_stream: boxes are of the pictures that are recorded, by session and pts. Otherwise they are of another
            stream of the camera, and belong together by `captured_at`, with the error of its clock.
        tracking: when it was begun; None if the source was not tracked.
        time_unit: s.
        box_unit: px, of the boxes as the wire has them.
        confidence_unit: likewise.
    """

    version: int = 1
    video: str
    source: str
    instance: str
    same_stream: bool
    tracking: TrackingSettings | None
    time_unit: float = 1e-9
    box_unit: float = 0.01
    confidence_unit: float = 0.0001
