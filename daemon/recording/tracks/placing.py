"""The analysed pictures of one source in one store: each goes to the file that has the picture, or to none.

Boxes come later than the packets of their picture, by the time that the detector takes. And video waits to be wanted,
or to be written. So a frame waits until all packets that came before it are written or released.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from daemon.recording.errors import StoreError, StoreFullError
from daemon.recording.tracks.open_tracks import note_ended, note_open
from daemon.recording.tracks.records import Labels, StateChange, TrackingSettings, TracksHead
from daemon.recording.tracks.stored_frames import StoredFrame
from daemon.recording.tracks.track_file import Stored, TrackFile, TracksBusyError

if TYPE_CHECKING:
    from daemon.recording.assembly import Chunk
    from daemon.recording.open_store import OpenStore
    from daemon.recording.records import FileFacts, FileHead

_BLOCK_FRAMES = 64
_BLOCK_NS = 1_500_000_000  # a frame waits for others so long, and then for the next turn of its source
_LATE_NS = 5_000_000_000  # a file that is closed gets frames for so long
_MAX_PLACES = 8
_BEFORE_NS = 180_000_000_000  # boxes may wait in the ring for longer than video does, of pictures of that time
_FOREVER = 1 << 62


class Origin(msgspec.Struct):
    """Where frames lie in the ring.

    Attributes:
        end: of their record.
        left: frames of it that are neither written nor dropped.
    """

    end: int
    left: int


class _Waiting(msgspec.Struct, frozen=True, eq=False, gc=False):
    item: Stored
    boot: int  # ns, when it was handed over
    origin: Origin


class _Place(msgspec.Struct):
    """A recording that frames may belong to.

    Attributes:
        path: of the video.
        begin_pts, end_pts: of its pictures, ns.
        begin, end: UTC ns.
        begin_boot, end_boot: ns.
        since: when the first of `rows` was added, BOOTTIME ns.
        rows: not written yet, by account.
    """

    path: str
    video: str
    instance: str
    session: str
    begin_pts: int
    end_pts: int
    begin: int
    end: int
    begin_boot: int
    end_boot: int
    since: int = 0
    is_over: bool = False
    rows: dict[str, list[_Waiting]] = {}
    file: TrackFile | None = None


class TrackPlacer:
    """One thread uses it.

    Args:
        same_stream: boxes are of the pictures that are recorded.
        tracking: how the source is tracked; None if it is not.
    """

    def __init__(self, source: str, *, same_stream: bool, tracking: TrackingSettings | None) -> None:
        self._source, self._same_stream, self._tracking = source, same_stream, tracking
        self._waiting: deque[_Waiting] = deque()
        self._places: deque[_Place] = deque()  # the newest last
        self._labels: Labels = {}

    def configure(self, *, same_stream: bool, tracking: TrackingSettings | None) -> None:
        self._same_stream, self._tracking = same_stream, tracking

    @property
    def open(self) -> list[str]:
        """Paths of the recordings whose tracks are open here."""
        return [place.path for place in self._places if place.file is not None]

    def begin(self, to: OpenStore, now: int, instance: str, boot_id: str) -> None:
        """The store is open, perhaps again, and perhaps another process has recorded before; UTC ns."""
        known = {place.path for place in self._places}
        recent = to.index.files(self._source, now - _BEFORE_NS)[-_MAX_PLACES:]
        others = [facts for facts in recent if facts.path not in known]
        if others:
            note_open(to.index, [facts.path for facts in others])  # the index may not know it
        for facts in others:
            to.index.measure(facts.id)
            if facts.boot_id == boot_id:
                self._places.append(_place_of(facts, instance))

    def add(self, item: Stored, boot: int, origin: Origin, labels: Labels) -> None:
        """A frame, or a change of the state, that was handed over at a BOOTTIME, ns."""
        self._labels = labels
        origin.left += 1
        self._waiting.append(_Waiting(item, boot, origin))

    def note_written(self, path: str, head: FileHead, chunk: Chunk) -> None:
        """Pictures were written into a recording."""
        begin_pts = min(sample.pts for sample in chunk.samples)
        end_pts = max(sample.pts + sample.duration for sample in chunk.samples)
        place = self._places[-1] if self._places else None
        if place is None or place.path != path:
            place = _Place(
                path, head.id, head.instance, head.session, begin_pts, end_pts, chunk.begin, chunk.end,
                chunk.begin_boot, chunk.end_boot,
            )  # fmt: skip
            self._places.append(place)
            return
        place.begin_pts, place.end_pts = min(place.begin_pts, begin_pts), max(place.end_pts, end_pts)
        place.end, place.end_boot = chunk.end, chunk.end_boot

    def turn(self, to: OpenStore, now_boot: int, decided_boot: int, written: str | None) -> None:
        """Write what is due.

        Args:
            decided_boot: all packets that came before are written or released; ns.
            written: path of the recording that is being written.

        Raises:
            StoreError: it cannot be written now, and stays.
        """
        while self._waiting and self._decide(self._waiting[0], now_boot, decided_boot):
            self._waiting.popleft()
        for place in self._places:
            if place.path != written and decided_boot - place.end_boot > _LATE_NS:
                place.is_over = True
            if place.rows and (place.is_over or now_boot - place.since >= _BLOCK_NS or _is_long(place)):
                self._write(to, place)
                if place.path != written:  # of a whole recording, which the index has already
                    _measure(to, place)
            if place.is_over:
                _end(to, place)
        while len(self._places) > _MAX_PLACES and self._places[0].is_over and not self._places[0].rows:
            self._places.popleft()

    def finish(self, to: OpenStore) -> None:
        """Everything that is recorded is written: the rest belongs to nothing.

        Raises:
            StoreError: it cannot be written.
        """
        while self._waiting:
            self._decide(self._waiting.popleft(), 0, _FOREVER)
        for place in self._places:
            self._write(to, place)
            _end(to, place)

    def let_go(self) -> None:
        """Close all files as they are; what is not written is forgotten here, and stays in the ring."""
        for place in self._places:
            if place.file is not None:
                place.file.close()
                place.file = None

    def _decide(self, waiting: _Waiting, now_boot: int, decided_boot: int) -> bool:
        """Put the first of those that wait to its recording, or drop it; False if it must wait."""
        item = waiting.item
        if isinstance(item, StateChange):
            place = self._places[-1] if self._places else None
        else:
            place = self._place_for(item, waiting.boot)
        if place is None:
            if decided_boot < waiting.boot:
                return False
            waiting.origin.left -= 1
            return True
        if not place.rows:
            place.since = now_boot
        account = item.info.account if isinstance(item, StoredFrame) else ""
        place.rows.setdefault(account, []).append(waiting)
        return True

    def _place_for(self, frame: StoredFrame, boot: int) -> _Place | None:
        info = frame.info
        pts = info.pts if self._same_stream else None
        for place in reversed(self._places):
            if pts is None:
                fits = place.begin <= info.captured_at < place.end
            else:
                fits = place.begin_pts <= pts < place.end_pts and place.session == info.session
            if fits and place.begin_boot <= boot:
                return place
        return None

    def _write(self, to: OpenStore, place: _Place) -> None:
        if not place.rows:
            return
        if place.file is None:
            try:
                place.file = self._opened(to, place)
            except TracksBusyError:
                return  # tried again
        if place.file is not None:
            last = place.file.last
            for account, rows in place.rows.items():
                known = last.get(account, -1)
                new = [row.item for row in rows if isinstance(row.item, StateChange) or row.item.number > known]
                if new:
                    to.append_tracks(place.file, self._source, new, self._labels)
        for rows in place.rows.values():
            for row in rows:
                row.origin.left -= 1
        place.rows = {}

    def _opened(self, to: OpenStore, place: _Place) -> TrackFile | None:
        tracking = self._tracking
        head = TracksHead(
            video=place.video, source=self._source, instance=place.instance, same_stream=self._same_stream,
            tracking=tracking,
        )  # fmt: skip
        note_open(to.index, [place.path])  # before it is there: this process may be killed
        try:
            return TrackFile.open(to.store, place.path, head)
        except StoreFullError:
            to.make_room(self._source)
            return TrackFile.open(to.store, place.path, head)


def _end(to: OpenStore, place: _Place) -> None:
    """Nothing more is expected."""
    if place.file is not None:
        place.file.finish()
        activity = place.file.activity
        place.file.close()
        place.file = None
        note_ended(to.index, place.path, activity)


def _measure(to: OpenStore, place: _Place) -> None:
    with suppress(StoreError):  # the index counts them when it is made anew
        to.index.measure(place.video)


def _is_long(place: _Place) -> bool:
    return any(len(rows) >= _BLOCK_FRAMES for rows in place.rows.values())


def _place_of(facts: FileFacts, instance: str) -> _Place:
    took = facts.end - facts.begin
    return _Place(
        facts.path, facts.id, instance, facts.session, facts.first_pts, facts.last_pts, facts.begin, facts.end,
        facts.begin_boot, facts.begin_boot + took, is_over=True,
    )  # fmt: skip
