"""Feeds packets to a hardware decoder session, and attaches time base and colour to its pictures."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from av.packet import Packet
from av.video.stream import VideoStream

from daemon.errors import DecodeError
from daemon.sources.bitstream import Bitstream, head
from daemon.sources.decode import NVDEC, DecodedPicture, UnsuitableError, pixel_format
from daemon.sources.nvdec.port import DecoderSession, LoadablePicture, SessionKey, SessionPool

_BT709 = 1  # AVCOL_SPC_BT709; everything else is BT.601, as in FFmpeg's own conversion
_FULL_RANGE = 2  # AVCOL_RANGE_JPEG


class NvdecDecoder:
    """See `daemon.sources.decode.Decoder`. Each set of stream parameters has a session of its own."""

    name = NVDEC

    def __init__(self, pool: SessionPool, codec: str, cost: int, low_latency: bool) -> None:
        self._pool, self._codec, self._cost, self._low_latency = pool, codec, cost, low_latency
        self._session: DecoderSession | None = None
        self._key: SessionKey | None = None
        self._cost_is_known = False  # the session's own figure, not the estimate
        # Drained sessions whose last pictures may still be loaded.
        self._retired: list[tuple[SessionKey, int, DecoderSession]] = []
        self._closed = False

    def begin(self, stream: VideoStream) -> None:
        context = stream.codec_context
        extradata = context.extradata or b""
        self._bitstream = Bitstream(self._codec, extradata)
        # A camera may send its parameter sets in the stream's description only.
        self._parameters = bytes(extradata) if self._bitstream.has_start_codes else b""
        self._time_base = stream.time_base
        full = context.color_range == _FULL_RANGE or (pixel_format(stream) or "").startswith("yuvj")
        self._colour = (context.colorspace == _BT709, full)

    def decode(self, packet: Packet[Any]) -> Sequence[DecodedPicture]:
        if self._retired:
            self._return_retired()
        size, bitstream, is_key = packet.size, self._bitstream, packet.is_keyframe
        if size == 0:
            return self._drain()
        view = memoryview(packet)
        data: bytearray | None = None
        if bitstream.has_lengths:
            data = bitstream.to_annex_b(view, key=is_key)
        elif self._parameters:
            data, self._parameters = bytearray(self._parameters + bytes(view)), b""
        parameters = bitstream.parameters((data or bytes(view)) if is_key else head(data or view))
        pictures = self._change(parameters) if parameters and (self._key is None or self._key[2] != parameters) else []
        if self._session is None:
            raise DecodeError("the stream's parameters have not come yet")
        try:
            if data is None:
                found = self._session.decode(packet.buffer_ptr, size, packet.pts)
            else:
                found = self._session.decode(ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data), packet.pts)
            if not self._cost_is_known:
                self._update_cost(self._session.memory_bytes)
        except UnsuitableError:
            self._discard()
            raise
        return pictures + self._decoded(found) if pictures else self._decoded(found)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pool.release(self._cost)
        with suppress(UnsuitableError):
            if self._session:
                self._session.make_current()  # the closing thread may be another than the reading one
            self._retire()
        self._return_retired()

    def _decoded(self, found: Sequence[LoadablePicture]) -> list[DecodedPicture]:
        base, colour = self._time_base, self._colour
        return [DecodedPicture(time, base, partial(load, *colour)) for load, time in found]

    def _change(self, parameters: bytes) -> list[DecodedPicture]:
        """Take a session for new parameters; returns the pictures left in the previous session."""
        pictures = self._retire()
        self._key = (self._codec, self._low_latency, parameters)
        self._session, self._cost_is_known = self._pool.acquire(self._key, self._cost), False
        return pictures

    def _update_cost(self, memory_bytes: int) -> None:
        """Replace the estimated cost by the session's own figure, once the stream's parameters are known."""
        self._cost_is_known = memory_bytes > 0
        if self._cost_is_known and memory_bytes != self._cost:
            self._pool.change_cost(self._cost, memory_bytes)
            self._cost = memory_bytes

    def _retire(self) -> list[DecodedPicture]:
        pictures = self._drain()
        if self._session and self._key:
            self._retired.append((self._key, self._cost, self._session))
        self._session = self._key = None
        return pictures

    def _drain(self) -> list[DecodedPicture]:
        try:
            return self._decoded(self._session.drain()) if self._session else []
        except UnsuitableError:
            self._discard()
            raise

    def _discard(self) -> None:
        if self._session:
            self._pool.discard(self._cost, self._session)
        self._session = self._key = None

    def _return_retired(self) -> None:
        """Put retired sessions back. Pictures of an earlier call are not loaded any more."""
        for key, cost, session in self._retired:
            self._pool.put_back(key, cost, session)
        self._retired.clear()
