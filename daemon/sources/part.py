"""One container of a connection or a file, and the packets of its video."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import av.error
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard, Stream
from av.video.stream import VideoStream

from daemon.sources.selection import Selection
from daemon.sources.splices import Splice
from daemon.sources.video_streams import NewStreams, others_of

_GROWING = {"mpegts", "mpeg", "flv"}  # formats whose streams may begin anywhere
_DELAYED = {"mpegts", "mpeg"}  # formats in which a packet ends where the next of its stream begins
_MAX_TRIES = 1 << 20  # each over 64 KiB without a packet
_UNCHECKED = {"hevc", "vvc"}  # codecs whose decoders do not report errors in pictures


class Part:
    """Reads a container, which may be a part of a file.

    Args:
        splice: where it begins.
        passed_over: counts packets by kind; see `lookout.messages.SourceMetrics`.
        with_sound: give packets of sound, too, where streams may begin anywhere.

    Attributes:
        sound: indices of the streams of sound whose packets are given.
        stream: the video that is read, of which the container's other streams may take over.
        codec: of the stream.
        formats: FFmpeg's names of its format.
        is_delayed: its demuxer holds a packet until the next of its stream begins.
        new_streams: whether video streams have appeared that the container does not show.
        position, size: of the last packet, bytes of the file; -1 before the first.
        dts: of the last packet.
    """

    def __init__(
        self,
        container: InputContainer,
        stream: VideoStream,
        splice: Splice,
        passed_over: Counter[str],
        *,
        with_sound: bool = False,
    ) -> None:
        self.container, self.splice = container, splice
        self.change(stream)
        self.formats = set(container.format.name.split(","))
        self.is_delayed = bool(self.formats & _DELAYED)
        grows = bool(self.formats & _GROWING)
        self.new_streams = NewStreams(container) if grows else None
        self.selection = Selection(stream, passed_over, has_one_timeline=not grows)
        self.position, self.size = splice.read_to, 0
        self.dts: int | None = None
        self._shift, self._passed_over = splice.begin - len(splice.head), passed_over
        self._marks_next = False
        self._others: tuple[Stream, ...] = others_of(container, stream)
        self.sound = {other.index for other in container.streams.audio} if with_sound and grows else set[int]()
        self._others += tuple(other for other in container.streams if other.index in self.sound)
        self._read_to: dict[int, int] = {}  # of streams whose last packets were read elsewhere; bytes of the file
        for other in container.streams:
            if other not in self._others and other is not stream:
                other.discard = Discard.all

    def change(self, stream: VideoStream) -> None:
        """Go on with another stream."""
        self.stream, self.codec = stream, stream.codec_context.name

    def pairs(self, ahead: int) -> Iterator[tuple[Packet[Any], Packet[Any]]]:
        """The packets of all video streams, each with one of `stream` that comes later, or at the end with itself.

        Args:
            ahead: packets of `stream` that are read ahead if the demuxer delays them.

        Raises:
            FFmpegError, OSError: the connection broke.
        """
        if not self.is_delayed:
            for packet in self._demuxed():
                yield packet, packet
            return
        waiting: deque[Packet[Any]] = deque()
        try:
            for packet in self._demuxed():
                if packet.stream_index == self.stream.index:
                    if self._marks_next or packet.is_corrupt or packet.is_keyframe:
                        self._mark(packet, waiting)
                    waiting.append(packet)
                    if len(waiting) > ahead:
                        yield waiting.popleft(), packet
                    continue
                yield from _alone(waiting)
                yield packet, packet
        except (av.error.FFmpegError, OSError):
            yield from _alone(waiting)
            raise
        yield from _alone(waiting)

    def _mark(self, packet: Packet[Any], waiting: Sequence[Packet[Any]]) -> None:
        """Mark a packet as corrupt if packets of the transport were lost in it, and the decoder will not notice.

        FFmpeg marks the packet before it. The last one before a key picture may be whole: there recordings are joined.
        """
        is_marked, self._marks_next = self._marks_next, packet.is_corrupt
        packet.is_corrupt = is_marked and self.codec in _UNCHECKED
        if waiting and packet.is_keyframe:
            waiting[-1].is_corrupt = False

    def place_of(self, packet: Packet[Any]) -> int:
        """Where a packet begins, or where the last one did if that is unknown; byte of the file."""
        return self.position if packet.pos is None else packet.pos + self._shift

    def note(self, packet: Packet[Any]) -> None:
        """Note that a packet of `stream` has been passed on."""
        self.dts = packet.dts
        if packet.pos is not None:
            self.position, self.size = packet.pos + self._shift, packet.size

    def note_read(self, position: int) -> None:
        """Note that the packets of `stream` up to a byte of the file have been read elsewhere."""
        self._read_to[self.stream.index] = position

    def _has_been_read(self, packet: Packet[Any], begin: int, read_to: Mapping[int, int]) -> bool:
        return packet.pos is not None and packet.pos + self._shift <= read_to.get(packet.stream_index, begin)

    def _demuxed(self) -> Iterator[Packet[Any]]:
        begin, read_to = self.splice.read_to, self._read_to
        for packet in demuxed(self.container, self.stream, *self._others):
            if (begin >= 0 or read_to) and self._has_been_read(packet, begin, read_to):
                continue
            if packet.size:
                yield packet
            else:  # AVI has such packets where nothing has changed
                self._passed_over["no_picture"] += 1


def _alone(waiting: deque[Packet[Any]]) -> Iterator[tuple[Packet[Any], Packet[Any]]]:
    """Each packet with itself."""
    while waiting:
        yield waiting[0], waiting.popleft()


def demuxed(container: InputContainer, *streams: Stream) -> Iterator[Packet[Any]]:
    """The packets of some streams, without those that drain their decoders.

    Raises:
        FFmpegError, OSError: the connection broke.
    """
    packets, tries = container.demux(*streams), 0
    while True:
        try:
            packet = next(packets, None)
        except av.error.BlockingIOError:  # a transport stream in which nothing is found for long
            tries += 1
            if tries > _MAX_TRIES:
                raise
            packets = container.demux(*streams)
            continue
        except (av.error.EOFError, IndexError):  # IndexError: PyAV, at the end, if a stream has appeared
            return
        if packet is None or (packet.size == 0 and packet.dts is None):
            return
        yield packet


def last_packet(stream: VideoStream) -> Packet[Any]:
    """An empty packet, which drains the stream's decoder."""
    packet: Packet[Any] = Packet()
    packet.stream = stream
    if stream.time_base:
        packet.time_base = stream.time_base
    return packet
