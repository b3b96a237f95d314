"""Builds messages from results, and numbers them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET
from msgspec.structs import replace as _replace

from daemon.clock import Clock
from daemon.pipeline.ledger import MAX_GONE, Ledger
from daemon.pipeline.outbox import Note, Report, Result
from daemon.publish.box_text import BoxText, fastest_box_text
from daemon.publish.masks import MaskEncoder
from daemon.publish.ownership_fence import Grants, may_send
from daemon.publish.subscribers import matching
from detectors.detections import Detections, joined, no_tracks
from lookout.messages import (
    KINDS,
    Clip,
    Counts,
    Detection,
    Event,
    ImageSize,
    Latency,
    Message,
    Metrics,
    Owner,
    Packets,
    Status,
    Store,
    topic,
)
from lookout.messages import Detections as DetectionsMessage

Boxes = list[Detection] | msgspec.Raw
Choose = Callable[[Result, Latency], str | None]
_AT_ONCE = 32  # frames whose boxes are made ahead


class MessageBuilder:
    """Numbers the messages of each topic, and keeps the last status of each source.

    Args:
        choose: gives the `traceparent` of a frame that is traced, None for others; None where nobody traces.

    Attributes:
        instance: id of the daemon's run.
    """

    def __init__(self, instance: str, ledger: Ledger, clock: Clock, choose: Choose | None = None) -> None:
        self.instance, self._ledger, self._clock, self._choose = instance, ledger, clock, choose
        self._topics: dict[str, bytes] = {}  # of detections, by source
        self._index: Counter[bytes] = Counter()
        self._last_status: dict[bytes, Status] = {}
        self._notes: dict[bytes, str] = {}  # by topic of the status
        self._gone: dict[str, None] = {}  # removed sources with counters, longest removed first

    def detections(self, result: Result, boxes: Boxes, owner: Owner | None = None) -> tuple[bytes, DetectionsMessage]:
        """Topic and message of one frame. Its total latency ends now."""
        frame, times = result.frame, result.times
        name = self._topics.get(frame.source)
        if name is None:
            name = self._topics[frame.source] = topic("detections", frame.source)
        index = self._index[name]
        self._index[name] = index + 1
        latency = Latency(
            decode=frame.decode,
            wait=result.taken - frame.captured_ns,
            preprocess=times.preprocess,
            infer=times.infer,
            postprocess=times.postprocess,
            total=self._clock.monotonic_ns() - frame.captured_ns,
        )
        message = DetectionsMessage(
            instance=self.instance,
            source=frame.source,
            session=frame.session,
            seq=frame.seq,
            index=index,
            pts=frame.pts,
            captured_at=frame.captured_at,
            clock=frame.clock,
            image=ImageSize(frame.width, frame.height, frame.pixel_aspect),
            model=result.served.model,
            detections=boxes,  # type: ignore[arg-type]  # or their JSON
            latency=latency,
            dropped=self._ledger.totals(frame.account or frame.source),
            owner=owner,
            corrupt=frame.corrupt or UNSET,
            traceparent=UNSET if self._choose is None else self._choose(result, latency) or UNSET,
        )
        return name, message

    def report(self, report: Report) -> Message | None:
        """The report's message with its index; None if the report is about a removed source."""
        message = report.message
        if message is None:
            self._last_status.pop(report.topic, None)
            self._notes.pop(report.topic, None)
            self._gone[report.source] = None
            self._forget_oldest()
            return None
        name = report.topic
        if isinstance(message, Status):
            self._last_status[name] = message
            self._gone.pop(message.source, None)
            message = self._with_note(name, message)
        return self.numbered(name, message)

    def noted(self, note: Note) -> Status | None:
        """The last status of a source with a new note; None if it is not up, and the note waits until it is."""
        name = note.topic
        if note.text is None:
            self._notes.pop(name, None)
        else:
            self._notes[name] = note.text
        status = self._last_status.get(name)
        if status is None or status.format is None:
            return None
        return self._with_note(name, _replace(status, at=self._clock.utc_ns()))

    def _with_note(self, name: bytes, status: Status) -> Status:
        text = self._notes.get(name)
        if text is None or status.format is None:
            return status
        return _replace(status, format=_replace(status.format, notes=(*status.format.notes, text)))

    def hold_back(self, name: bytes, status: Status) -> None:
        """Remember a status that may not be sent now."""
        self._last_status[name] = status

    def last_statuses(self, prefixes: Collection[bytes], grants: Grants | None) -> list[tuple[bytes, Message]]:
        """The last status of each source whose topic has one of these prefixes, as far as it may be sent."""
        found = [(name, self._last_status[name]) for name in matching([*self._last_status], prefixes)]
        sent = [(name, self._with_note(name, status)) for name, status in found if may_send(grants, status)]
        return [(name, self.numbered(name, status)) for name, status in sent]

    def numbered(self, name: bytes, message: Status | Event | Counts | Metrics | Packets | Clip | Store) -> Message:
        """The message with the next index of its topic."""
        index = self._index[name]
        self._index[name] = index + 1
        return _replace(message, index=index)  # structs are frozen

    def _forget_oldest(self) -> None:
        """Forget the counters of the longest removed sources beyond `MAX_GONE`."""
        while len(self._gone) > MAX_GONE:
            source = next(iter(self._gone))
            del self._gone[source]
            self._topics.pop(source, None)
            for kind in (*KINDS, "packets"):
                self._index.pop(topic(kind, source), None)


class BoxEncoder:
    """How boxes become what they are on the wire."""

    def __init__(self, masks: MaskEncoder) -> None:
        self._masks = masks
        self._text: BoxText | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether boxes are written as JSON at once."""
        return self._text is not None

    def compile(self, cache: Path | None) -> None:
        """Write boxes as JSON from now on, where numba is installed; all sinks must send that. Any thread may call it.

        Args:
            cache: see `fastest_box_text`.
        """
        self._text = fastest_box_text(cache)

    def boxes_of(self, results: Sequence[Result]) -> Iterator[Boxes]:
        """See `boxes_of`."""
        return boxes_of(results, self._masks, self._text)


def boxes_of(results: Sequence[Result], masks: MaskEncoder, text: BoxText | None = None) -> Iterator[Boxes]:
    """The boxes of each frame as they are on the wire, as JSON if `text` can.

    They are made some frames ahead: together they cost half, and they are still in the processor's cache when they are
    sent.
    """
    for start in range(0, len(results), _AT_ONCE):
        # Results of two models may follow each other.
        for served, group in groupby(results[start : start + _AT_ONCE], key=attrgetter("served")):
            found = [result.detections for result in group]
            texts = None if text is None else text.of(found, served.labels)
            yield from _rounded(found, served.labels, masks) if texts is None else texts


def _rounded(found: Sequence[Detections], labels: tuple[str, ...], masks: MaskEncoder) -> Iterator[list[Detection]]:
    classes = joined([one.class_id for one in found]).tolist()
    columns = (
        [labels[class_id] for class_id in classes],
        classes,
        _column([one.confidence for one in found], 4),
        _column([one.xyxy for one in found], 2),
    )
    boxes = map(Detection, *columns, *_more_columns(found, _track_columns(found, labels), masks))
    for one in found:
        yield list(islice(boxes, len(one.confidence)))


def _column(parts: Sequence[npt.NDArray[np.float32]], digits: int) -> list[Any]:
    """The numbers of all frames, rounded."""
    rounded: list[Any] = joined(parts).astype(np.float64).round(digits).tolist()
    return rounded


def _track_columns(found: Sequence[Detections], labels: tuple[str, ...]) -> list[list[Any]]:
    """Ids, velocities, ages and labels of all boxes; nothing if no source is tracked."""
    if all([one.tracks is None for one in found]):  # noqa: C419 - a list costs less
        return []
    tracks = [no_tracks(one) if one.tracks is None else one.tracks for one in found]
    ids = joined([one.id for one in tracks]).tolist()
    columns: list[list[Any]] = [
        ids,
        _column([one.velocity for one in tracks], 2),
        joined([one.age for one in tracks]).tolist(),
        [labels[class_id] for class_id in joined([one.class_id for one in tracks]).tolist()],
    ]
    for place in [place for place, track_id in enumerate(ids) if not track_id]:
        for column, absent in zip(columns, (None, UNSET, UNSET, UNSET)):
            column[place] = absent
    return columns


def _more_columns(found: Sequence[Detections], tracks: list[list[Any]], masks: MaskEncoder) -> list[list[Any]]:
    """The columns of tracks, and after them those of key points, boxes at an angle, masks and attributes where a frame
    has them."""
    plain = all([one.keypoints is None and one.obb is None and one.masks is None for one in found])  # noqa: C419 - a list costs less
    known = any([one.attributes is not None for one in found])  # noqa: C419 - likewise
    if plain and not known:
        return tracks
    count = sum(len(one) for one in found)
    attributes = [_attributes(found)] if known else []
    if plain and tracks:
        return [*tracks, *([UNSET] * count for _ in range(3)), *attributes]
    return [
        *(tracks or [[absent] * count for absent in (None, UNSET, UNSET, UNSET)]),
        [row for one in found for row in _or_unset(one, None if one.keypoints is None else _points(one.keypoints))],
        [row for one in found for row in _or_unset(one, None if one.obb is None else _at_an_angle(one.obb))],
        masks.column(found),
        *attributes,
    ]


def _attributes(found: Sequence[Detections]) -> list[Any]:
    """The attributes of each box."""
    rows = [row for one in found for row in ([None] * len(one) if one.attributes is None else one.attributes)]
    return [UNSET if row is None else row for row in rows]


def _or_unset(one: Detections, rows: list[Any] | None) -> list[Any]:
    return [UNSET] * len(one) if rows is None else rows


def _points(keypoints: npt.NDArray[np.float32]) -> list[list[list[float]]]:
    """Rounded; zeros for a point that is nowhere, because JSON has no NaN."""
    points = keypoints.astype(np.float64)
    points[~np.isfinite(points).all(axis=2)] = 0
    points[..., :2] = np.round(points[..., :2], 2)
    points[..., 2] = np.round(points[..., 2], 4)
    rows: list[list[list[float]]] = points.tolist()
    return rows


def _at_an_angle(obb: npt.NDArray[np.float32]) -> list[list[float]]:
    rows = obb.astype(np.float64)
    rows[:, :4] = np.round(rows[:, :4], 2)
    rows[:, 4] = np.round(rows[:, 4], 4)
    rounded: list[list[float]] = rows.tolist()
    return rounded
