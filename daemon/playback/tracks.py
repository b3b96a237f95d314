"""Boxes beside recordings, of exactly the pictures of a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from daemon.http.answers import json_answer
from daemon.http.operation import Answer, Operation, array, record
from daemon.playback.listings import INTEGER, LONGEST_NS, REASONS
from daemon.playback.opened import OpenedStore
from daemon.playback.queries import FROM, STORE, TO, Query, Times, source_of
from daemon.playback.stores import Stores
from daemon.recording.boxes import BoxError
from daemon.recording.records import FileFacts, FragmentRow
from daemon.recording.tracks.records import SeenFrame
from daemon.recording.tracks.track_records import TracksError, head_in, tracks_in
from lookout.messages import Attribute

_TIME_NS: Final = 60_000_000_000  # of an answer
_FRAMES, _BOXES = 10_000, 60_000  # of an answer


class SeenBox(msgspec.Struct, frozen=True, gc=False):
    """As `Detection` of the wire has it; attributes are left out where none is known.

    Attributes:
        track_label: the track's own, where it is another one.
    """

    box: tuple[float, float, float, float]
    track_id: int | None
    label: str
    confidence: float
    track_label: str | msgspec.UnsetType = msgspec.UNSET
    attributes: dict[str, Attribute] | msgspec.UnsetType = msgspec.UNSET


class PictureTracks(msgspec.Struct, frozen=True):
    """An analysed picture.

    Attributes:
        pts: ns of the session, as `fragments` has it.
        at: UTC ns, when it was recorded.
        width, height: of the picture that the boxes are in, px.
        model: the name of it, where the file has boxes of several.
    """

    pts: int | None
    at: int
    width: int
    height: int
    boxes: list[SeenBox]
    model: str | msgspec.UnsetType = msgspec.UNSET


class FileTracks(msgspec.Struct, frozen=True, kw_only=True):
    """The boxes beside a file, and its analysed pictures in a time.

    Attributes:
        id: of the video, for `files/{id}`.
        session: of the video.
        same_stream: boxes are of the recorded pictures, by pts. Otherwise they are of another stream of the camera,
            with its own pts and size, and belong together by `at`.
    """

    id: str
    session: str
    same_stream: bool
    labels: list[str]
    frames: list[PictureTracks]


class StoreTracks(msgspec.Struct, frozen=True):
    """
    Attributes:
        damaged: files whose boxes cannot be read, or not all of them, with the reason.
        next: `from` of what follows, if there was too much for one answer.
    """

    store: str
    files: list[FileTracks]
    damaged: dict[str, str]
    next: str | None


class TrackListing:
    """Answers of files of tracks."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def operations(self) -> list[Operation]:
        tracks = record("Tracks", {"source": {"type": "string"}, "from": INTEGER, "to": INTEGER, "failed": REASONS,
                        "stores": array(StoreTracks).content}, StoreTracks)  # fmt: skip
        return [
            Operation("GET", "/api/v1/recordings/{source}/tracks", self._tracks, "view", "Boxes of recorded pictures",
                      {200: Answer("By store", tracks)}, (400, 404, 503), (FROM, TO, STORE)),
        ]  # fmt: skip

    async def _tracks(self, request: Request) -> Response:
        source, query = source_of(request), Query(request, FROM, TO, STORE)
        times = query.times(LONGEST_NS)
        answers = await self._stores.of_source(source, partial(_of_store, source, times), query.text("store"))
        rows = [StoreTracks(name, *found) for name, found in answers.found.items()]
        return json_answer(
            {"source": source, "from": times.begin, "to": times.end, "stores": rows, "failed": answers.failed}
        )


class _Seen(NamedTuple):
    at: int
    frame: SeenFrame


def _of_store(source: str, times: Times, opened: OpenedStore) -> tuple[list[FileTracks], dict[str, str], str | None]:
    end = min(times.end, times.begin + _TIME_NS)
    found: list[FileTracks] = []
    damaged: dict[str, str] = {}
    frames, boxes = _FRAMES, _BOXES
    for facts, file in opened.tracks_of(opened.files(source, times.begin, end)):
        if facts.begin >= end:
            break
        try:
            head = head_in(file)
            at_of = _times_of(facts, opened) if head.same_stream else _captured_at
        except HTTPException:
            continue  # deleted meanwhile
        except (TracksError, BoxError) as error:
            damaged[facts.id] = str(error)
            continue
        seen: list[_Seen] = []
        try:
            for frame in _frames(facts, file):
                at = at_of(frame)
                if times.begin <= at < end:
                    seen.append(_Seen(at, frame))
        except TracksError as error:
            if facts.reason is not None:  # it may be in the middle of a write
                damaged[facts.id] = str(error)
        seen.sort(key=lambda one: one.at)
        kept = _kept(seen, frames, boxes)
        if kept < len(seen):
            end = seen[kept].at
            if not kept and not found:  # or the next request would be the same
                damaged[facts.id] = "it has more boxes of one moment than an answer may have"
                end += 1
        if kept:
            found.append(_file(facts, seen[:kept], same_stream=head.same_stream))
            frames -= kept
            boxes -= sum(len(one.frame.xyxy) for one in seen[:kept])
    return found, damaged, str(end) if end < times.end else None


def _frames(facts: FileFacts, file: int) -> Iterator[SeenFrame]:
    return (item for item in tracks_in(file, facts.id) if isinstance(item, SeenFrame))


def _kept(seen: Sequence[_Seen], frames: int, boxes: int) -> int:
    """How many of them may be told; those of one moment are told together."""
    kept = 0
    for one in seen:
        boxes -= len(one.frame.xyxy)
        if kept == frames or boxes < 0:
            first = one.at
            while kept and seen[kept - 1].at == first:
                kept -= 1
            return kept
        kept += 1
    return kept


def _captured_at(frame: SeenFrame) -> int:
    return frame.frame.captured_at


def _times_of(facts: FileFacts, opened: OpenedStore) -> Callable[[SeenFrame], int]:
    """When a picture was recorded, UTC ns, by the fragment that its pts is in.

    Raises:
        HTTPException, BoxError, StoreError, OSError: as `OpenedStore.open` and `OpenFile.scan`.
    """
    with closing(opened.open(facts)) as file:
        rows: list[FragmentRow] = sorted(file.scan().fragments, key=lambda row: row.pts)
    begins = [row.pts for row in rows]

    def at_of(frame: SeenFrame) -> int:
        pts = frame.frame.pts
        if pts is None or not rows:
            return frame.frame.captured_at
        row = rows[max(0, bisect_right(begins, pts) - 1)]
        return row.begin + pts - row.pts

    return at_of


def _file(facts: FileFacts, seen: Sequence[_Seen], *, same_stream: bool) -> FileTracks:
    models = {one.frame.served.model.name for one in seen}
    labels = dict.fromkeys(label for one in seen for label in one.frame.served.labels)
    return FileTracks(
        id=facts.id,
        session=facts.session,
        same_stream=same_stream,
        labels=[*labels],
        frames=[_picture(one, names_model=len(models) > 1) for one in seen],
    )


def _picture(one: _Seen, *, names_model: bool) -> PictureTracks:
    frame = one.frame
    info, labels, count = frame.frame, frame.served.labels, len(frame.xyxy)
    classes = frame.class_id.tolist()
    ids, own = (frame.tracks.id.tolist(), frame.tracks.class_id.tolist()) if frame.tracks else ([0] * count, classes)
    looks = frame.attributes or [None] * count
    boxes = [
        SeenBox(
            box, id or None, _label(labels, label), confidence,
            _label(labels, track_label) if track_label != label else msgspec.UNSET,
            dict(attributes) if attributes else msgspec.UNSET,
        )
        for box, id, label, track_label, confidence, attributes
        in zip(frame.xyxy.tolist(), ids, classes, own, frame.confidence.tolist(), looks)
    ]  # fmt: skip
    model = frame.served.model.name if names_model else msgspec.UNSET
    return PictureTracks(info.pts, one.at, info.width, info.height, boxes, model)


def _label(labels: Sequence[str], number: int) -> str:
    return labels[number] if 0 <= number < len(labels) else str(number)
