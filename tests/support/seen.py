"""Boxes beside recordings without a daemon."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.outbox import Served
from daemon.recording.records import FileFacts
from daemon.recording.store import Store
from daemon.recording.tracks.records import Handed, TracksHead
from daemon.recording.tracks.stored_frames import StoredFrame, frames_of
from daemon.recording.tracks.track_file import TrackFile
from lookout.messages import Attribute, FrameClock, Model

LABELS = ("person", "car")
SERVED = Served(Model("model.onnx", "0123456789ab", "fp32", "ort"), LABELS)
_CLOCK = FrameClock("arrival", 1000)


@dataclass
class Seen:
    """An analysed picture.

    Attributes:
        at: UTC ns.
        ids: of its boxes, 0 for one without a track; their corners follow from their place.
        attributes: of each box.
    """

    pts: int | None
    at: int
    ids: Sequence[int] = ()
    attributes: Sequence[dict[str, Attribute] | None] = field(default_factory=list)

    @property
    def boxes(self) -> list[list[float]]:
        return [[10.25 * place, 20.5, 10.25 * place + 30, 60.0] for place in range(len(self.ids))]


def stored(seen: Sequence[Seen], session: str, *, tracked: bool = True, first: int = 0) -> list[StoredFrame]:
    """As a recorder gets them from a lane.

    Args:
        first: number of the first frame.
    """
    infos = [
        FrameInfo("door", session, first + place, one.pts, one.at, one.at, _CLOCK, 0, 320, 180)
        for place, one in enumerate(seen)
    ]
    ids = [id for one in seen for id in one.ids]
    corners = [box for one in seen for box in one.boxes]
    classes = [id % 2 for id in ids]
    handed = Handed(
        1, infos, [*range(first, first + len(seen))], [len(one.ids) for one in seen], [tracked] * len(seen),
        bytearray(np.array(corners, np.float32).tobytes()),
        bytearray(np.full(len(ids), 0.75, np.float32).tobytes()),
        bytearray(np.array(classes, np.int32).tobytes()),
        bytearray(np.array(ids, np.int64).tobytes()),
        bytearray(np.array(classes, np.int32).tobytes()),
        bytearray(np.array(corners, np.float32).tobytes()),
        {}, {place: [*one.attributes] for place, one in enumerate(seen) if one.attributes},
    )  # fmt: skip
    return frames_of([handed])[0]


def write_seen(
    store: Store,
    facts: FileFacts,
    parts: Iterable[Sequence[Seen]],
    *,
    same_stream: bool = True,
    tracked: bool = True,
    ends: bool = True,
) -> None:
    """The file of tracks beside a recording; each part is a block of it.

    Args:
        ends: nothing more is expected.
    """
    head = TracksHead(video=facts.id, source=facts.source, instance="test", same_stream=same_stream, tracking=None)
    file = TrackFile.open(store, facts.path, head)
    assert file is not None
    with closing(file):
        first = 0
        for part in parts:
            file.append(stored(part, facts.session, tracked=tracked, first=first), {1: SERVED})
            first += len(part)
        if ends:
            file.finish()
