"""A time of a source as one plain MP4: which bytes of which files, and what stands before them. Nothing is encoded."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from starlette.exceptions import HTTPException

from daemon.clock import utc_text
from daemon.playback.clip_boxes import SampleTable, beginning, media_timescale, sample_description
from daemon.playback.opened import OpenedStore, OpenFile, close_all
from daemon.playback.sending import Part
from daemon.recording.boxes import FRAGMENT_BYTES, BoxError, MovieFragment, SampleEntry, read_movie_fragment
from daemon.recording.footage import wanted
from daemon.recording.records import FragmentRow, Gap
from daemon.recording.timeline import Span

_SECOND: Final = 1_000_000_000
_MOOF_BYTES, _SAMPLE_BYTES = 96, 16  # of `moof` with the beginning of `mdat`, and more for each sample
_JOINT_S: Final = 0.02  # between two fragments of one piece, at most
_MAX_FILES: Final = 128  # stay open while a clip is sent


class Piece(msgspec.Struct, frozen=True):
    """Video without a gap.

    Attributes:
        at: ms within the clip.
        begin, end: UTC ns.
    """

    at: int
    begin: int
    end: int


class ClipPlan:
    """A clip that is ready to be sent.

    Attributes:
        beginning: of the MP4, up to its samples.
        parts: the samples.
        pieces: the first begins with the key picture before the time that was asked.
        gaps: in that time; the clip goes on behind each at once.
    """

    def __init__(self) -> None:
        self._files: list[OpenFile] = []
        self._table = SampleTable()
        self._moov = b""
        self._timescale = 1
        self._session = ""
        self._next = 0  # ticks of the session, where the next fragment should begin
        self.parts: list[Part] = []
        self.pieces: list[Piece] = []
        self.gaps: list[Gap] = []
        self.beginning = b""

    def finish(self, gaps: Iterable[Gap]) -> None:
        """All files were added."""
        self.gaps += gaps
        self.beginning = beginning(self._moov, self._table)

    def add(self, file: OpenFile, begin: int, end: int) -> None:
        """The pictures of a file up to a time, UTC ns. The file is closed with this.

        Raises:
            HTTPException: 409: the video changes here. 400: there are too many files.
            BoxError, OSError: it cannot be read.
        """
        self._files.append(file)
        if len(self._files) > _MAX_FILES:
            raise HTTPException(400, f"the time has more than {_MAX_FILES} files: ask for less")
        found = file.scan()
        rows = wanted(found.fragments, begin, end)
        if not rows:
            return
        self._describe(file.read(0, found.beginning), rows[0].begin)
        base = round(found.head.base_dts * self._timescale / _SECOND)
        for row in rows:
            count = _MOOF_BYTES + _SAMPLE_BYTES * row.packets
            fragment = read_movie_fragment(file.read(row.offset + FRAGMENT_BYTES, count))
            samples = self._cut(row, fragment, end)
            if not samples or not self._join(found.head.session, row, base + fragment.decode_time, samples):
                continue
            size = sum(sample.size for sample in samples)
            self.parts.append(Part(file, row.offset + FRAGMENT_BYTES + fragment.bytes, size))
            length = self._ns(sum(sample.duration for sample in samples))
            last = self.pieces[-1]
            self.pieces[-1] = msgspec.structs.replace(last, end=max(last.end, min(row.end, row.begin + length)))

    def close(self) -> None:
        close_all(self._files)

    def _describe(self, head: bytes, at: int) -> None:
        moov = head[head.index(b"moov") - 4 :]
        if not self._moov:
            self._moov, self._timescale = moov, media_timescale(moov)
        elif (sample_description(moov), media_timescale(moov)) != (sample_description(self._moov), self._timescale):
            raise HTTPException(
                409,
                f"size, codec or its settings change at {utc_text(at)}: ask for what lies before and behind apart",
            )

    def _cut(self, row: FragmentRow, fragment: MovieFragment, end: int) -> list[SampleEntry]:
        """The samples of a fragment that come before a time."""
        at, samples = row.begin, []
        for sample in fragment.samples:
            if at >= end:
                break
            samples.append(sample)
            at += self._ns(sample.duration)
        return samples

    def _join(self, session: str, row: FragmentRow, time: int, samples: Sequence[SampleEntry]) -> bool:
        """Take a fragment: behind the last one, or as the first of a piece; False if no piece can begin with it."""
        missing = time - self._next
        if session == self._session and self._table.samples and abs(missing) <= _JOINT_S * self._timescale:
            self._table.lengthen_last(max(missing, -self._table.samples[-1].duration))
        elif row.key or not self.pieces:
            self._session = session
            self.pieces.append(Piece(self._ns(self._table.ticks) // 1_000_000, row.begin, row.begin))
        else:
            return False
        self._table.add(samples)
        self._next = time + sum(sample.duration for sample in samples)
        return True

    def _ns(self, ticks: int) -> int:
        return ticks * _SECOND // self._timescale


def plan_clip(source: str, begin: int, end: int, opened: OpenedStore) -> ClipPlan | None:
    """The clip of a time, UTC ns; None if nothing is recorded of it.

    Raises:
        HTTPException, BoxError, StoreError, OSError: as `ClipPlan.add`.
    """
    plan = ClipPlan()
    try:
        for facts in opened.files(source, begin, end):
            try:
                file = opened.open(facts)
            except HTTPException:
                continue  # deleted meanwhile
            plan.add(file, begin, end)
        if not plan.parts:
            plan.close()
            return None
        plan.finish(row for row in opened.index.timeline(source, begin, end) if not isinstance(row, Span))
    except BaseException as error:
        plan.close()
        if isinstance(error, (ValueError, ArithmeticError, IndexError, struct.error)):
            raise BoxError(str(error)) from error
        raise
    return plan
