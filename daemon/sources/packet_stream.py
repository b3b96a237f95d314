"""A live connection whose packets nobody decodes."""

from __future__ import annotations

from typing import Any

from av.packet import Packet
from av.video.stream import VideoStream

from daemon.config.sources import AvConfig
from daemon.sources.logins import LOGINS
from daemon.sources.packet_info import PacketDescriber
from daemon.sources.packets import Demuxer
from daemon.sources.port import PacketInfo
from daemon.sources.shape import turns_of


class PacketStream:
    """One connection, used by one thread.

    Raises:
        SourceError: it cannot be made; a LoginRefusedError is one.
    """

    def __init__(self, config: AvConfig) -> None:
        self._turns = turns_of(config, live=True)
        with LOGINS.attempt(config):
            self._demuxer = Demuxer(config, live=True)
        self._begin(self._demuxer.stream)

    def next(self) -> tuple[PacketInfo, Packet[Any]]:
        """The next packet, which is valid until the next call.

        Raises:
            SourceError: the connection broke, or no data came within the read time limit.
        """
        while (packet := self._demuxer.next()) is None or not packet.size:
            pass  # another stream begins
        if packet.stream is not self._stream:
            self._demuxer.begin_stream()
            self._begin(packet.stream)
        if packet.is_keyframe:
            self._describer.note_key(packet)
        return self._describer.describe(packet, self._demuxer.placed), packet

    def close(self) -> None:
        """A second call does nothing."""
        self._demuxer.close()

    def _begin(self, stream: VideoStream) -> None:
        self._stream, self._describer = stream, PacketDescriber(stream)
        self._describer.set_turns(self._turns)
