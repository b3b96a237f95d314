"""Live pictures of a source, each with the boxes that were found in it: draw_*.py draw them.

It needs lookout-client, av and numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from time import monotonic

import av
import numpy as np

from lookout.client import Subscriber
from lookout.errors import LookoutError
from lookout.messages import Detections
from lookout.packets import PacketSubscriber, VideoPacket
from lookout.pairing import Pairing

PATIENCE_S = 30  # for the first packet
NS = Fraction(1, 10**9)


class Decoder:
    """Packets to pictures: BGR, upright. It begins at a key packet, and again after a loss or in another stream."""

    def __init__(self) -> None:
        self.codec, self.stream, self.next = None, None, 0

    def decode(self, packet: VideoPacket) -> Iterator[tuple[int, np.ndarray]]:
        header = packet.header
        stream = header.instance, header.session, header.codec, header.extradata
        if stream != self.stream or header.index != self.next or self.codec is None:
            self.codec = av.CodecContext.create(header.codec, "r") if header.key else None
            self.stream = stream
            if self.codec is not None and header.extradata:  # parameter sets that no packet may repeat
                self.codec.extradata = header.extradata
        self.next = header.index + 1
        if self.codec is None:
            return
        coded = av.Packet(packet.data)
        coded.pts, coded.dts, coded.time_base = header.pts, header.dts, NS
        try:
            for frame in self.codec.decode(coded):
                yield frame.pts, np.ascontiguousarray(np.rot90(frame.to_ndarray(format="bgr24"), -header.turns))
        except av.FFmpegError:
            self.codec = None


def pictures(endpoint: str, source: str) -> Iterator[tuple[int, np.ndarray, Detections | None]]:
    """Time and picture, and the message of that very picture; None where the daemon had no time for it."""
    decoder, pairing, began = Decoder(), Pairing[tuple[int, np.ndarray]](), monotonic()
    with Subscriber(endpoint, sources=[source]) as messages, PacketSubscriber(endpoint, source) as packets:
        while True:
            packet = packets.receive(0.02)
            for picture in decoder.decode(packet) if packet else ():
                pairing.add_picture(packet.header.session, picture[0], picture)
            if decoder.stream is None and monotonic() - began > PATIENCE_S:
                remedy = "`lookout watch` lists its sources, of which drawn ones and USB cameras have no video"
                raise LookoutError(f"no video of {source} comes from {endpoint}: {remedy}")
            while (message := messages.receive(0)) is not None:
                pairing.add_message(message)
            for (pts, picture), message in pairing.ready():
                yield pts, picture, message
