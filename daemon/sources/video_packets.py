"""The packets of one video, wherever in a connection or a file it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av.error
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard
from av.video.stream import VideoStream

from daemon.config import AvConfig
from daemon.errors import SourceError
from daemon.sources.connection import connect, open_rest, prepare
from daemon.sources.joints import begins_at, change_of_codec, is_of_another_codec
from daemon.sources.rest import Rest
from daemon.sources.selection import Selection
from daemon.sources.video_streams import Appearances, can_be_decoded, choose, others_of

_GROWING = {"mpegts", "mpeg", "flv"}  # formats whose streams may begin anywhere
_DELAYED = {"mpegts", "mpeg"}  # formats in which a packet ends where the next of its stream begins
_REWINDABLE = {"mp4", "matroska"}  # formats with an index, so that a seek finds the first packet
_FLV_HEADER = b"FLV\x01\x05\0\0\0\x09\0\0\0\0"
_FLV_TAG_BYTES = 15  # besides its content
_REACH = 2 << 20  # bytes before a joint that hold the tables of a stream
_MAX_JOINTS = 64  # their containers stay open


@dataclass(frozen=True)
class _Joint:
    """Where a file goes on in a container of its own.

    Attributes:
        begin: byte of the file.
        read_to: packets that begin up to this byte are passed over, or have been read.
        same: the stream goes on.
        end: byte where the packets before it end, None if the demuxer holds none of them.
    """

    begin: int
    read_to: int = -1
    same: bool = False
    end: int | None = None


class VideoPackets:
    """Reads a connection, or a recording that may be joined of several.

    A packet of size 0 ends the packets of one stream: the decoder gives what it holds, and the next packet is of
    another stream.

    Args:
        passed_over: counts packets by kind; see `daemon.messages.SourceMetrics`.

    Attributes:
        container: in use.
        stream: of the last packet.
        notes: see `Connection`.
        joints: number of streams and containers that followed the first one.
        path: of the file, None if it has none.

    Raises:
        SourceError: it cannot be opened.
    """

    def __init__(self, config: AvConfig, passed_over: Counter[str], *, live: bool) -> None:
        self._config, self._passed_over, self._live = config, passed_over, live
        path = Path(config.url.reveal().removeprefix("file://"))
        self.path = path if config.url.scheme in ("", "file") and not live and path.is_file() else None
        self.joints = 0
        self._open = ExitStack()
        found = connect(config)
        self._open.callback(found.container.close)
        self.notes, self.stream = found.notes, found.stream
        self._use(found.container, found.stream, _Joint(0))

    def close(self) -> None:
        self._open.close()

    def part(self) -> Rest | None:
        """The last container's part of the file, None if there is no file; to be closed."""
        return None if self.path is None else Rest(self.path, self._joint.begin)

    @property
    def has_unread(self) -> bool:
        """Whether video streams have appeared that are not read."""
        return bool(self._appearances)

    def seek_to_start(self) -> bool:
        """Go back to the first packet without reopening, which costs as much as 500 packets; False if impossible."""
        if self.joints or not _REWINDABLE & self._formats:
            return False
        try:
            self.container.seek(self.stream.start_time or 0, stream=self.stream)
        except (av.error.FFmpegError, OSError):
            return False
        self._use(self.container, self.stream, _Joint(0))
        return True

    def __iter__(self) -> Iterator[Packet[Any]]:
        """The packets, to the end of the recording.

        Raises:
            FFmpegError, OSError: the connection broke.
            SourceError: the video goes on as something that cannot be read.
        """
        while joint := (yield from self._read()):
            self.joints += 1
            if not joint.same:
                yield from self._finish(joint)
            self._enter(joint)
        yield self._last()

    # --- one container -----------------------------------------------------------------------------------------------

    def _use(self, container: InputContainer, stream: VideoStream, joint: _Joint, before: int = 0) -> None:
        self.container, self._native, self._joint, self._shift = container, stream, joint, joint.begin - before
        self._formats = set(container.format.name.split(","))
        self._others = others_of(container, stream)
        for other in container.streams:
            if other not in self._others and other is not stream:
                other.discard = Discard.all
        grows = bool(self._formats & _GROWING)
        self._selection = Selection(stream, self._passed_over, has_one_timeline=not grows)
        self._appearances = Appearances(container) if grows else None
        self._has_codes = bool(self._formats & _DELAYED)
        self._position, self._size = joint.read_to, 0  # of the last packet, bytes
        self._dts: int | None = None  # of the last packet
        self._passed_on: dict[int, int] = {}  # position of the last packet of each stream

    def _read(self) -> Generator[Packet[Any], None, _Joint | None]:
        """The packets of this container; returns where to go on."""
        for packet in self._demuxed():
            read_to = self._passed_on.get(packet.stream_index, self._joint.read_to)
            if packet.pos is not None and packet.pos + self._shift <= read_to:
                continue
            if packet.stream_index == self._native.index:
                if self._has_codes and packet.is_keyframe and self._is_of_another_codec(packet):
                    return self._joint_of_codec(packet)
                if self.path and (joint := self._joint_before(packet, self.path)):
                    return joint
            yield from self._pass_on(self._selection.take(packet))
        yield from self._pass_on(self._selection.finish())
        return self._joint_at_end(self.path) if self.path else None

    def _demuxed(self) -> Iterator[Packet[Any]]:
        packets = self.container.demux(self._native, *self._others)
        while True:
            try:
                packet = next(packets, None)
            except (av.error.EOFError, IndexError):  # IndexError: PyAV, at the end, if a stream has appeared
                return
            if packet is None or (packet.size == 0 and packet.dts is None):
                return
            if packet.size:
                yield packet
            else:  # AVI has such packets where nothing has changed
                self._passed_over["no_picture"] += 1

    def _pass_on(self, packets: Sequence[Packet[Any]]) -> Iterator[Packet[Any]]:
        if packets and self._selection.stream is not self._native:
            yield from self._change(self._selection.stream, packets[-1].pos)
        for packet in packets:
            if packet.pos is not None:
                self._position, self._size = packet.pos + self._shift, packet.size
                self._passed_on[packet.stream_index] = self._position
            self._dts = packet.dts
            if self.stream is not self._native:
                packet.stream = self.stream
            yield packet

    def _change(self, stream: VideoStream, end: int | None) -> Iterator[Packet[Any]]:
        """Go on with another stream of this container, whose packets are known up to a byte."""
        if self.path and end is not None:
            yield from self._tail(self.path, end + self._shift)
        yield self._last()
        prepare(stream, self._config)
        self.joints += 1
        self.stream = self._native = stream

    def _last(self) -> Packet[Any]:
        packet: Packet[Any] = Packet()
        packet.stream = self.stream
        if self.stream.time_base:
            packet.time_base = self.stream.time_base
        return packet

    # --- joints of a file --------------------------------------------------------------------------------------------

    def _joint_before(self, packet: Packet[Any], path: Path) -> _Joint | None:
        """Whether the file goes on in another container before a packet."""
        if packet.pos is None or self.joints >= _MAX_JOINTS:
            return None
        at, end = packet.pos + self._shift, self._position + self._size
        if self._appearances and self._position > self._joint.read_to:
            return self._joint_of_appearance(path)
        goes_back = packet.dts is not None and self._dts is not None and packet.dts < self._dts
        if not (packet.is_keyframe or goes_back) or self._position < 0 or at <= end:
            return None
        begins = begins_at(path, self._formats, end, at)
        return None if begins is None else _Joint(begins)

    def _is_of_another_codec(self, packet: Packet[Any]) -> bool:
        return is_of_another_codec(bytes(packet), self._native.codec_context.name)

    def _joint_of_codec(self, packet: Packet[Any]) -> _Joint:
        """Where a container begins whose stream has the codec of a packet.

        Raises:
            SourceError: the connection must be made anew.
        """
        if self.path is None or packet.pos is None:
            raise SourceError(f"the video of {self._config.url} is of another codec now")
        at, codec = packet.pos + self._shift, self._native.codec_context.name
        # In a transport stream the packet may begin with the last picture of the other codec.
        change = change_of_codec(self.path, at, self._native.id, codec) if "mpegts" in self._formats else None
        return _Joint(change.tables, change.begin - 1, end=change.end) if change else _Joint(at, at - 1, end=at)

    def _joint_at_end(self, path: Path) -> _Joint | None:
        if self.joints >= _MAX_JOINTS:
            return None
        if self._appearances and self._position > self._joint.read_to:
            return self._joint_of_appearance(path)
        if self._position < 0:
            return None
        begins = begins_at(path, self._formats, self._position + self._size, None)
        return None if begins is None else _Joint(begins)

    def _joint_of_appearance(self, path: Path) -> _Joint:
        """Where a container begins in which the streams that have appeared are known."""
        if "flv" not in self._formats:
            return _Joint(max(0, self._position - _REACH), self._position, same=True)
        with path.open("rb") as file:
            file.seek(self._position + 1)
            return _Joint(self._position + _FLV_TAG_BYTES + int.from_bytes(file.read(3), "big"))

    def _enter(self, joint: _Joint) -> None:
        """Open the container that begins at a joint."""
        if self.path is None:
            return
        before = _FLV_HEADER if "flv" in self._formats else b""
        container = self._open_rest(self.path, joint.begin, None, before, self._open)
        same = next((other for other in container.streams.video if other.id == self._native.id), None)
        stream = same if same is not None and can_be_decoded(same) else choose(container)
        if stream is None:
            raise SourceError(f"{self._config.url} goes on with a video that this FFmpeg does not decode")
        if not (joint.same and stream is same):
            prepare(stream, self._config)
            self.stream = stream
        self._use(container, stream, joint, len(before))

    def _finish(self, joint: _Joint) -> Iterator[Packet[Any]]:
        """The last packets of a stream that ends at a joint."""
        if self.path and joint.end is not None:
            yield from self._tail(self.path, joint.end)
        yield self._last()

    def _tail(self, path: Path, end: int) -> Iterator[Packet[Any]]:
        """The packets that the demuxer holds until the next one of their stream begins."""
        if not self._formats & _DELAYED:
            return
        begin = max(0, self._position - _REACH)
        with ExitStack() as closing:
            container = self._open_rest(path, begin, end, b"", closing)
            stream = next((other for other in container.streams.video if other.id == self._native.id), None)
            for packet in container.demux(stream) if stream else ():
                if packet.size and packet.pos is not None and packet.pos + begin > self._position:
                    self._passed_on[self._native.index] = packet.pos + begin
                    packet.stream = self.stream
                    yield packet

    def _open_rest(self, path: Path, begin: int, end: int | None, before: bytes, closing: ExitStack) -> InputContainer:
        file = Rest(path, begin, end, before)
        closing.callback(file.close)
        container = open_rest(self._config, file, self.container.format.name.partition(",")[0])
        closing.callback(container.close)
        return container
