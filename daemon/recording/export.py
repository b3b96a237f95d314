"""A time of a source as one MP4 that every player takes. Nothing is encoded again: it begins with a key picture."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import av
import av.error
import msgspec

from daemon.clock import utc_text
from daemon.errors import LookoutError
from daemon.progress import Tell
from daemon.recording.footage import Footage, footage
from daemon.recording.index import IndexReader
from daemon.recording.records import Gap
from daemon.recording.store import Store
from daemon.recording.timeline import Span

_SECOND: Final = 1_000_000_000
_TICKS: Final = 90_000
_JOINT: Final = _TICKS // 50  # between two files of one piece, at most


class Piece(msgspec.Struct, frozen=True):
    """Video without a gap.

    Attributes:
        at: ns within the export.
        begin, end: UTC ns.
    """

    at: int
    begin: int
    end: int
    session: str


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an export.

    Attributes:
        begin, end: UTC ns, of its first and last picture; the first is the key picture before the time that was asked.
        gaps: in the time that was asked; the export goes on behind each at once.
        files: ids of the recordings that it comes from.
    """

    source: str
    begin: int
    end: int
    packets: int
    bytes: int
    pieces: list[Piece]
    gaps: list[Gap]
    files: list[str]


def export(
    store: Store, index: IndexReader, source: str, begin: int, end: int, out: Path, tell: Tell | None = None
) -> Exported:
    """Write what is recorded of a time to a file, which is there whole or not at all.

    Args:
        begin, end: UTC ns.
        tell: called after each file, with seconds of the time.

    Raises:
        LookoutError: nothing is recorded, the video changes within, or a file cannot be read or written.
    """
    begun = out.with_name(f".{out.name}.{os.getpid()}")
    writer = _Writer(begun)
    try:
        try:
            for piece in footage(store, index, source, begin, end):
                with closing(piece):
                    writer.add(piece, end)
                if tell is not None and writer.pieces:
                    tell((writer.pieces[-1].end - begin) / 1e9, (end - begin) / 1e9)
        finally:
            writer.close()
        if not writer.packets:
            causes = "; ".join(_told(row) for row in index.timeline(source, begin, end) if isinstance(row, Gap))
            raise LookoutError(f"{source}: nothing is recorded of that time" + (f": {causes}" if causes else ""))
        os.replace(begun, out)
    except (av.error.FFmpegError, OSError) as error:
        raise LookoutError(f"{out} cannot be written: {getattr(error, 'strerror', None) or error}") from error
    finally:
        with suppress(OSError):
            begun.unlink(missing_ok=True)
    pieces = writer.pieces
    gaps = [row for row in index.timeline(source, begin, end) if not isinstance(row, Span)]
    return Exported(
        source=source, begin=pieces[0].begin, end=pieces[-1].end, packets=writer.packets, bytes=out.stat().st_size,
        pieces=pieces, gaps=gaps, files=writer.files,
    )  # fmt: skip


def _told(gap: Gap) -> str:
    return f"{gap.cause} from {utc_text(gap.begin)}" + (f" ({gap.detail})" if gap.detail else "")


class _Writer:
    """The file that comes out.

    Attributes:
        packets: written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._output: Any = None
        self._track: Any = None
        self._moov = b""
        self._session = ""
        self._shift = self._next = 0  # ticks: from the session's timeline to that of the export; where it goes on
        self.packets = 0
        self.pieces: list[Piece] = []
        self.files: list[str] = []

    def add(self, footage: Footage, end: int) -> None:
        """The pictures of a file up to a time, UTC ns."""
        with av.open(footage.reader(), format="mp4") as video:
            stream: Any = video.streams.video[0]
            if self._output is None:
                self._begin(stream, footage)
            elif footage.moov() != self._moov:
                at = utc_text(footage.rows[0].begin)
                raise LookoutError(
                    f"{footage.head.source}: size, codec or its settings change at {at}: export what lies before and"
                    " behind apart"
                )
            self._copy(video.demux(stream), footage, end)

    def close(self) -> None:
        if self._output is not None:
            self._output.close()
            self._output = None

    def _begin(self, stream: Any, footage: Footage) -> None:
        self._moov = footage.moov()
        self._output = av.open(str(self._path), "w", format="mp4", options={"movflags": "faststart"})
        self._track = self._output.add_stream_from_template(stream)
        self._track.time_base = Fraction(1, _TICKS)

    def _copy(self, packets: Any, footage: Footage, end: int) -> None:
        base, is_joined = round(footage.head.base_dts * _TICKS / _SECOND), False
        for found in packets:
            packet: Any = found
            if not packet.size:
                continue
            unit = packet.time_base
            dts, pts = base + _ticks(packet.dts, unit), base + _ticks(packet.pts, unit)
            utc = footage.utc(pts * _SECOND // _TICKS)
            if footage.utc(dts * _SECOND // _TICKS) >= end:
                break
            length = max(1, _ticks(packet.duration or 0, unit))
            if not is_joined:
                follows = footage.head.session == self._session and -length < 2 * (dts + self._shift - self._next)
                if not (follows and dts + self._shift - self._next <= _JOINT):
                    if not packet.is_keyframe:
                        continue
                    self._shift, self._session = self._next - dts, footage.head.session
                    self.pieces.append(Piece(self._next * _SECOND // _TICKS, utc, utc, self._session))
                self.files.append(footage.head.id)
                is_joined = True
            packet.dts, packet.pts, packet.duration = dts + self._shift, pts + self._shift, length
            packet.time_base, packet.stream = Fraction(1, _TICKS), self._track
            self._next = max(self._next, packet.dts + length)
            last = self.pieces[-1]
            until = max(last.end, utc + length * _SECOND // _TICKS)
            self.pieces[-1] = msgspec.structs.replace(last, end=until)
            self._output.mux(packet)
            self.packets += 1


def _ticks(time: int, unit: Fraction) -> int:
    return round(time * unit * _TICKS)
