"""Describes the packets of a stream to those who watch it, and follows the parameter sets in them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, cast

import av.error
from av.codec.context import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream

from daemon.sources.bitstream import Bitstream
from daemon.sources.port import PacketInfo

_NANOSECOND = Fraction(1, 1_000_000_000)
_HEAD_BYTES = 4096  # of a key picture, with all parameter sets before it
_NEW_EXTRADATA: Final = "new_extradata"  # AV_PKT_DATA_NEW_EXTRADATA


class PacketDescriber:
    """Facts of a stream, as of its last key picture. A camera may send other parameter sets between day and night.

    Args:
        stream: with its decoder's options.

    Attributes:
        size: width and height of its pictures, as they are in the stream.
        pixel_aspect: width of a pixel over its height.
    """

    def __init__(self, stream: VideoStream) -> None:
        context = stream.codec_context
        self._turns = 0
        self.size = context.width, context.height
        self.pixel_aspect = _aspect(stream.sample_aspect_ratio)
        self._context, self._extradata = context, context.extradata or b""
        self._bits = Bitstream(context.name, context.extradata)
        self._sets: bytes | None = None  # in the last key picture that had any
        self._unit = stream.time_base

    def set_turns(self, turns: int) -> None:
        """Set the quarter turns clockwise that make a picture upright."""
        self._turns = turns

    def set_size(self, size: tuple[int, int]) -> None:
        self.size = size

    def note_key(self, packet: Packet[Any]) -> bool:
        """Follow the parameter sets of a key picture, before it is described; whether they are others now."""
        if packet.has_sidedata(_NEW_EXTRADATA):
            extradata = bytes(packet.get_sidedata(_NEW_EXTRADATA))
        else:
            extradata = self._bits.parameter_sets(bytes(memoryview(packet)[:_HEAD_BYTES]))
            if not extradata or extradata == self._sets:
                return False
            known, self._sets = self._sets, extradata
            if known is None and self._bits.has_sets(extradata, self._extradata):
                return False
        self._extradata = extradata
        if found := _decode_shape(self._context, extradata, packet):
            self.size, self.pixel_aspect = found
        return True

    def describe(self, packet: Packet[Any], place: Callable[[int | None, Fraction], int | None]) -> PacketInfo:
        """A packet.

        Args:
            place: gives the time of a timestamp in a unit.
        """
        unit = packet.time_base or self._unit or _NANOSECOND
        times = place(packet.pts, unit), place(packet.dts, unit)
        kind = self._context.name, self._extradata, (unit.numerator, unit.denominator)
        return PacketInfo(*kind, *self.size, self._turns, *times, packet.is_keyframe)


def _decode_shape(
    context: VideoCodecContext, extradata: bytes, packet: Packet[Any]
) -> tuple[tuple[int, int], float] | None:
    """Size and pixel aspect of a key picture, which is decoded here; None if it cannot be."""
    try:
        decoder = cast("VideoCodecContext", CodecContext.create(context.name, "r"))
        decoder.options, decoder.extradata, decoder.thread_count = dict(context.options), extradata, 1
        frames = [*decoder.decode(Packet(bytes(packet))), *decoder.decode(None)]
    except (av.error.FFmpegError, OSError, ValueError):
        return None
    return ((frames[0].width, frames[0].height), _aspect(decoder.sample_aspect_ratio)) if frames else None


def _aspect(ratio: Fraction | None) -> float:
    return round(float(ratio or 1), 6)
