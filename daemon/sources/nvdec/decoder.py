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
from daemon.sources.nvdec.port import (
    DecoderSession,
    LoadablePicture,
    NeedsTurnError,
    NoRoomError,
    SessionKey,
    SessionPool,
)

_BT709 = 1  # AVCOL_SPC_BT709; everything else is BT.601, as in FFmpeg's own conversion
_FULL_RANGE = 2  # AVCOL_RANGE_JPEG
_UNKNOWN = (0, 0)  # a size for which a session of other parameters is not taken


class NvdecDecoder:
    """See `daemon.sources.decode.Decoder`."""

    name = NVDEC

    def __init__(self, pool: SessionPool, codec: str, cost: int, low_latency: bool) -> None:
        self._pool, self._codec, self._cost, self._low_latency = pool, codec, cost, low_latency
        self._session: DecoderSession | None = None
        self._key: SessionKey | None = None
        self._has_begun = False  # the session has begun with this stream, and `_cost` is its own figure
        # Drained sessions whose last pictures may still be loaded.
        self._retired: list[tuple[SessionKey, int, DecoderSession]] = []
        self._closed = False
        self.is_waiting = False

    def begin(self, stream: VideoStream) -> None:
        context = stream.codec_context
        self._size = context.width, context.height
        extradata = context.extradata or b""
        self._bitstream = Bitstream(self._codec, extradata)
        # A camera may send its parameter sets in the stream's description only.
        self._parameters = bytes(extradata) if self._bitstream.has_start_codes else b""
        self._time_base = stream.time_base
        full = context.color_range == _FULL_RANGE or (pixel_format(stream) or "").startswith("yuvj")
        self._colour = (context.colorspace == _BT709, full)

    def can_begin(self) -> bool:
        return self._session is None or self._session.can_begin()

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
            data = bytearray(self._parameters + bytes(view))
        parameters = bitstream.parameters((data or bytes(view)) if is_key else head(data or view))
        pictures = self._change(parameters) if parameters and (self._key is None or self._key[2] != parameters) else []
        if self._session is None:
            raise DecodeError("the stream's parameters have not come yet")
        if data is None:
            found = self._decode(packet.buffer_ptr, size, packet.pts)
        else:
            found = self._decode(ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data), packet.pts)
        if self._has_begun:  # until then another session may have to begin with the next packet
            self._parameters = b""
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

    def _decode(self, address: int, size: int, time: int | None) -> list[LoadablePicture]:
        """Decode by the session; where the GPU has no room for its decoder, in place of one that is idle. Nothing is
        decoded while a live source `is_waiting`: then a session whose decoder does not serve the stream gives way."""
        while session := self._session:
            self.is_waiting = self._low_latency and not (self._has_begun or session.can_begin())
            if self.is_waiting:
                break
            try:
                found = session.decode(address, size, time)
                if not self._has_begun:
                    self._update_cost(session.memory_bytes)
                return found
            except NoRoomError:
                key = self._key
                self._discard()
                if key is None or not self._pool.make_room():
                    raise
                self._take(key, self._size)
            except NeedsTurnError:
                key = self._key
                self._discard()
                if key is None:
                    raise
                self._take(key, _UNKNOWN)
            except UnsuitableError:
                self._discard()
                raise
        return []

    def _change(self, parameters: bytes) -> list[DecodedPicture]:
        """Be ready for new parameters; returns the pictures left in the previous session."""
        key = (self._codec, self._low_latency, parameters)
        pictures = self._drain() if self._has_begun else []
        if self._session and self._key and pictures:  # they are loaded from it
            self._retired.append((self._key, self._cost, self._session))
            self._session = None
        if self._session:
            self._key, self._has_begun = key, False
        else:
            self._take(key, self._size)
        return pictures

    def _take(self, key: SessionKey, size: tuple[int, int]) -> None:
        self._session, self._has_begun = self._pool.acquire(key, self._cost, size), False
        self._key = key

    def _update_cost(self, memory_bytes: int) -> None:
        """Replace the estimated cost by the session's own figure, once the stream's parameters are known."""
        self._has_begun = memory_bytes > 0
        if self._has_begun and memory_bytes != self._cost:
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
