"""The packets of one video, wherever in a connection or a file it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

import av.error
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from daemon.config.sources import AvConfig
from daemon.errors import SourceError
from daemon.sources.connection import connect, open_range, prepare
from daemon.sources.file_range import FileRange
from daemon.sources.libav import LOCAL
from daemon.sources.part import Part, demuxed, last_packet
from daemon.sources.splice_finder import SpliceFinder, begin_before
from daemon.sources.splices import Splice, change_of_codec, other_codec
from daemon.sources.video_streams import can_be_decoded, choose

_REWINDABLE = {"mp4", "matroska"}  # formats with an index, so that a seek finds the first packet
_STREAM_ID: Final = "mpegts_stream_id"  # of packets of transport streams
_SOUND = range(0xC0, 0xE0)  # such identifiers of sound (ISO/IEC 13818-1, 2.4.3.7)
_SILENCE_S = 2.0  # of the video, while sound goes on
_AHEAD = 4  # packets that are read before their codec is believed


class VideoPackets:
    """Reads a connection, or a recording that may be joined of several.

    A packet of size 0 ends the packets of one stream: the decoder gives what it holds, and the next packet is of
    another stream.

    Args:
        passed_over: counts packets by kind; see `lookout.messages.SourceMetrics`.

    Attributes:
        part: in use.
        stream: of the last packet.
        notes, hls, has_datagrams: see `Connection`.
        is_spliced: the packets are of several streams or containers.
        path: of the file, None if it has none.

    Raises:
        SourceError: it cannot be opened.
    """

    def __init__(self, config: AvConfig, passed_over: Counter[str], *, live: bool) -> None:
        self._config, self._passed_over = config, passed_over
        path = Path(config.url.path)
        self.path = path if config.url.scheme in LOCAL and not live and path.is_file() else None
        self._finder = SpliceFinder(self.path) if self.path else None
        self.is_spliced = False
        self._open, self._stale = ExitStack(), ExitStack()  # containers since `stream` began, and those before them
        found = connect(config)
        self._open.callback(found.close)
        self.notes, self.stream = found.notes, found.stream
        self.hls, self.has_datagrams = found.hls, found.has_datagrams
        self.part = Part(found.container, found.stream, Splice(0), passed_over, with_sound=live)
        self._last_s = monotonic()  # when the last packet of the video came

    def close(self) -> None:
        with self._stale, self._open:
            pass

    def seek_to_start(self) -> bool:
        """Go back to the first packet without reopening, which costs as much as 500 packets; False if impossible."""
        if self.is_spliced or not _REWINDABLE & self.part.formats:
            return False
        try:
            self.part.container.seek(self.stream.start_time or 0, stream=self.stream)
        except (av.error.FFmpegError, OSError):
            return False
        self.part = Part(self.part.container, self.stream, Splice(0), self._passed_over)
        return True

    def __iter__(self) -> Iterator[Packet[Any]]:
        """The packets, to the end of the recording.

        Raises:
            FFmpegError, OSError: the connection broke.
            SourceError: the video goes on as something that cannot be read.
        """
        while splice := (yield from self._read()):
            self.is_spliced = True
            if self.path is not None:
                yield from self._cross(splice, self.path)
        yield last_packet(self.stream)

    def _read(self) -> Generator[Packet[Any], None, Splice | None]:
        """The packets of this part; returns where to go on."""
        finder, part = self._finder, self.part
        for packet, ahead in part.pairs(_AHEAD if finder else 0):
            if packet.stream_index in part.sound:
                self._check_silence(part)
                continue
            if packet.stream_index == part.stream.index:
                if finder is None:
                    self._check_codec(packet)
                    self._last_s = monotonic()
                elif splice := finder.before(part, packet, ahead):
                    return splice
                if part.selection.passes(packet):
                    yield self._noted(packet)
                    continue
            for run in part.selection.select(packet):
                if splice := (yield from self._pass_on(run)):
                    return splice
        for run in part.selection.finish():
            if splice := (yield from self._pass_on(run)):
                return splice
        return finder.at_end(part) if finder else None

    def _pass_on(self, packets: Sequence[Packet[Any]]) -> Generator[Packet[Any], None, Splice | None]:
        """Pass packets of one stream on, which may be another of this part; or return where to go on instead."""
        part, stream = self.part, packets[0].stream
        if packets[0].stream_index != part.stream.index:
            if self._finder and (splice := self._finder.before_stream(part, packets)):
                return splice
            yield from self._change(stream, part.place_of(packets[-1]))
        for packet in packets:
            yield self._noted(packet)
        return None

    def _noted(self, packet: Packet[Any]) -> Packet[Any]:
        """A packet that is passed on, as one of `stream`."""
        self.part.note(packet)
        if self.stream is not self.part.stream:
            packet.stream = self.stream
        return packet

    def _change(self, stream: VideoStream, end: int) -> Iterator[Packet[Any]]:
        """Go on with another stream of this part, whose packets are known up to a byte."""
        if self.path:
            yield from self._tail(self.path, end)
        yield last_packet(self.stream)
        prepare(stream, self._config)
        self.is_spliced = True
        self.stream = stream
        self.part.change(stream)

    def _check_codec(self, packet: Packet[Any]) -> None:
        """Raises:
        SourceError: a packet is of another codec, so the connection must be made anew.
        """
        if not self.part.is_delayed:
            return
        codec = self.part.codec
        if packet.is_keyframe and (other := other_codec(bytes(packet), codec)):
            raise SourceError(f"the video of {self._config.url} changes from {codec} to {other}")
        if packet.has_sidedata(_STREAM_ID) and bytes(packet.get_sidedata(_STREAM_ID))[0] in _SOUND:
            raise SourceError(f"the streams of {self._config.url} have changed places")

    def _check_silence(self, part: Part) -> None:
        """Raises:
        SourceError: the video goes on in a stream that this connection does not show.
        """
        if part.new_streams and monotonic() - self._last_s > _SILENCE_S:
            raise SourceError(f"the video of {self._config.url} goes on in another stream")

    # --- splices of a file -------------------------------------------------------------------------------------------

    def _cross(self, splice: Splice, path: Path) -> Iterator[Packet[Any]]:
        """Open the container that begins at a splice, after the last packets before it."""
        before = self.part
        if splice.end is not None:
            yield from self._tail(path, splice.end)
        with ExitStack() as opened:
            container, splice = self._open_splice(path, splice, opened)
            wanted = before.stream.id if splice.id is None else splice.id
            stream = _stream_of(container, wanted) or choose(container)
            if stream is None:
                raise SourceError(f"{self._config.url} goes on with a video that this FFmpeg does not decode")
            if splice.is_same and stream.id == wanted:
                self._open.push(opened.pop_all())
            else:
                yield last_packet(self.stream)
                self._stale.close()  # no packet of it is in use any more
                self._stale, self._open = self._open, opened.pop_all()
                prepare(stream, self._config)
                self.stream = stream
        self.part = Part(container, stream, splice, self._passed_over)

    def _open_splice(self, path: Path, splice: Splice, opened: ExitStack) -> tuple[InputContainer, Splice]:
        """The container that begins at a splice, as far as the stream that goes on has its codec."""
        container = self._open_range(
            FileRange(path, splice.begin, None, splice.head), opened, all_tables=splice.is_same
        )
        part = self.part
        stream = _stream_of(container, part.stream.id) if splice.is_same else None
        if stream is None or stream.codec_context.name == part.codec or "mpegts" not in part.formats:
            return container, splice
        change = change_of_codec(path, splice.begin, stream.id, part.codec)
        if change is None:
            return container, splice
        splice = replace(splice, until=change.tables)
        return self._open_range(FileRange(path, splice.begin, splice.until), opened, all_tables=True), splice

    def _tail(self, path: Path, end: int) -> Iterator[Packet[Any]]:
        """The packets before a byte of the file that the demuxer holds until the next one of their stream begins."""
        part = self.part
        if not part.is_delayed:
            return
        begin, has_begun = begin_before(path, part), False
        with ExitStack() as closing:
            container = self._open_range(FileRange(path, begin, end), closing)
            stream = _stream_of(container, part.stream.id)
            for packet in demuxed(container, stream) if stream else ():
                has_begun = has_begun or (packet.pos is not None and packet.pos + begin > part.position)
                if has_begun and packet.size:
                    part.note_read(max(part.position, begin + (packet.pos or 0)))
                    yield _moved(packet, self.stream)

    def _open_range(self, file: FileRange, closing: ExitStack, *, all_tables: bool = False) -> InputContainer:
        closing.callback(file.close)
        name = self.part.container.format.name.partition(",")[0]
        container = open_range(self._config, file, name, all_tables=all_tables)
        closing.callback(container.close)
        return container


def _moved(packet: Packet[Any], stream: VideoStream) -> Packet[Any]:
    packet.stream = stream
    return packet


def _stream_of(container: InputContainer, id: int) -> VideoStream | None:
    """The video stream of an identifier, if it can be decoded."""
    streams = (stream for stream in container.streams.video if stream.id == id and can_be_decoded(stream))
    return next(streams, None)
