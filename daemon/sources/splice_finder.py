"""Finds where a recording's file goes on in another container."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from av.packet import Packet

from daemon.errors import SourceError
from daemon.sources.part import Part
from daemon.sources.splices import (
    Splice,
    begins_at,
    begins_like,
    change_of_codec,
    other_codec,
    tables_before,
)

_FLV_HEADER = b"FLV\x01\x05\0\0\0\x09\0\0\0\0"
_BEGINNING = 8  # bytes of a packet that tell its first unit
_FLV_TAG_BYTES = 15  # besides its content
_MAX_SPLICES = 512  # a file with more is no recording


class SpliceFinder:
    """Looks at the packets of a file before they are passed on.

    Attributes:
        count: splices found.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.count = 0

    def before(self, part: Part, packet: Packet[Any], ahead: Packet[Any]) -> Splice | None:
        """The splice before a packet of the video; None if it goes on as it was.

        Args:
            ahead: the last packet that has been read.

        Raises:
            SourceError: there are too many. So do the other two.
        """
        return self._counted(self._of_new_stream(part) or self._of_codec(part, ahead) or self._of_header(part, packet))

    def before_stream(self, part: Part, packets: Sequence[Packet[Any]]) -> Splice | None:
        """The splice before the first packets of another stream of the part, if the part has not seen its beginning, or
        has seen it with another codec."""
        stream, context = packets[0].stream, packets[0].stream.codec_context
        if packets[0].pos is None:
            return None
        at, end = part.place_of(packets[0]), part.place_of(packets[-1])
        begin = max(0, part.position)
        change = change_of_codec(self._path, begin, stream.id, context.name) if "mpegts" in part.formats else None
        if change:
            return self._counted(Splice(change.tables, change.begin - 1, end=end, id=stream.id))
        if context.width:
            return None
        return self._counted(Splice(begin_before(self._path, part, at), at - 1, end=end, id=stream.id))

    def at_end(self, part: Part) -> Splice | None:
        """The splice at the end of a part; None at the end of the recording."""
        if (until := part.splice.until) is not None:
            return self._counted(Splice(until, until - 1))
        if part.position < 0:
            return None
        begins = begins_at(self._path, part.formats, part.position + part.size, None)
        return self._counted(self._of_new_stream(part) or (None if begins is None else Splice(begins)))

    def _counted(self, splice: Splice | None) -> Splice | None:
        if splice and self.count >= _MAX_SPLICES:
            raise SourceError(f"the video of {self._path} goes on in more than {_MAX_SPLICES} places")
        self.count += splice is not None
        return splice

    def _of_new_stream(self, part: Part) -> Splice | None:
        """Where a container begins in which the streams that have appeared are known."""
        if not part.new_streams or part.position <= part.splice.read_to:
            return None
        if "flv" not in part.formats:
            return Splice(begin_before(self._path, part), part.position, is_same=True)
        with self._path.open("rb") as file:
            file.seek(part.position + 1)
            after = part.position + _FLV_TAG_BYTES + int.from_bytes(file.read(3), "big")
        return Splice(after, head=_FLV_HEADER)

    def _of_codec(self, part: Part, ahead: Packet[Any]) -> Splice | None:
        """Where a container begins whose stream has the codec of a packet, if that is not this one's.

        FFmpeg gives such packets as the same stream, and the last ones before them lost or mixed up.
        """
        if not part.is_delayed:
            return None
        codec, data = part.codec, memoryview(ahead)
        if not ahead.is_keyframe and begins_like(bytes(data[:_BEGINNING]), codec):
            return None
        at = part.place_of(ahead)
        if other_codec(bytes(data), codec) is None or at <= part.splice.read_to + 1:  # or the container has not seen it
            return None
        begin = max(0, part.position)
        change = change_of_codec(self._path, begin, part.stream.id, codec) if "mpegts" in part.formats else None
        return Splice(change.tables, change.begin - 1, end=change.end) if change else Splice(at, at - 1, end=at)

    def _of_header(self, part: Part, packet: Packet[Any]) -> Splice | None:
        """Where another recording begins, with a header of its own."""
        dts, last = packet.dts, part.dts
        goes_back = dts is not None and last is not None and dts < last
        if part.position < 0 or not (goes_back or packet.is_keyframe):
            return None
        at, end = part.place_of(packet), part.position + part.size
        if not goes_back and at <= end:
            return None
        # Fragments of MP4 may say where their content was in a file of its own.
        begins = begins_at(self._path, part.formats, end, at if at > end else None)
        return None if begins is None else Splice(begins)


def begin_before(path: Path, part: Part, at: int | None = None) -> int:
    """Where a container may begin that shows the packet at a byte of a file, by default the last packet."""
    at = max(0, part.position) if at is None else at
    return tables_before(path, at) if "mpegts" in part.formats else at
