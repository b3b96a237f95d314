"""Packets into a hardware decoder, and pictures with their times out of it."""

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
from daemon.sources.decode import NVDEC, Decoded, UnsuitableError, pixel_format
from daemon.sources.nvdec.port import Key, Session, Sessions, Shown

_BT709 = 1  # AVCOL_SPC_BT709; what is not said is BT.601, as it is for FFmpeg's own conversion
_FULL_RANGE = 2  # AVCOL_RANGE_JPEG


class NvdecDecoder:
    """See `daemon.sources.decode.Decoder`. A session is taken with the first parameters, and another with others."""

    name = NVDEC

    def __init__(self, pool: Sessions, codec: str, cost: int, low_latency: bool) -> None:
        self._pool, self._codec, self._cost, self._low_latency = pool, codec, cost, low_latency
        self._session: Session | None = None
        self._key: Key | None = None
        self._is_known = False  # what the session takes
        # Drained, but for pictures that may still be loaded.
        self._retired: list[tuple[Key, int, Session]] = []
        self._closed = False

    def begin(self, stream: VideoStream) -> None:
        context = stream.codec_context
        extradata = context.extradata or b""
        self._bitstream = Bitstream(self._codec, extradata)
        # A camera may tell its parameters when it describes the stream, and never again.
        self._first = bytes(extradata) if self._bitstream.has_start_codes else b""
        self._time_base = stream.time_base
        full = context.color_range == _FULL_RANGE or (pixel_format(stream) or "").startswith("yuvj")
        self._colour = (context.colorspace == _BT709, full)

    def decode(self, packet: Packet[Any]) -> Sequence[Decoded]:
        if self._retired:
            self._return_retired()
        size, bitstream, is_key = packet.size, self._bitstream, packet.is_keyframe
        if size == 0:
            return self._drain()
        view = memoryview(packet)
        data: bytearray | None = None
        if bitstream.has_lengths:
            data = bitstream.to_annex_b(view, key=is_key)
        elif self._first:
            data, self._first = bytearray(self._first + bytes(view)), b""
        parameters = bitstream.parameters((data or bytes(view)) if is_key else head(data or view))
        shown = self._change(parameters) if parameters and (self._key is None or self._key[2] != parameters) else []
        if self._session is None:
            raise DecodeError("nothing before it says how to decode it")
        try:
            if data is None:
                found = self._session.decode(packet.buffer_ptr, size, packet.pts)
            else:
                found = self._session.decode(ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data), packet.pts)
            if not self._is_known:
                self._account(self._session.needs)
        except UnsuitableError:
            self._discard()
            raise
        return shown + self._shown(found) if shown else self._shown(found)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pool.release(self._cost)
        with suppress(UnsuitableError):
            if self._session:
                self._session.make_current()  # another thread than the one that reads may close
            self._retire()
        self._return_retired()

    def _shown(self, found: Sequence[Shown]) -> list[Decoded]:
        base, colour = self._time_base, self._colour
        return [Decoded(time, base, partial(load, *colour)) for load, time in found]

    def _change(self, parameters: bytes) -> list[Decoded]:
        """Another session, for these; what is still in the one before comes out."""
        shown = self._retire()
        self._key = (self._codec, self._low_latency, parameters)
        self._session, self._is_known = self._pool.acquire(self._key, self._cost), False
        return shown

    def _account(self, needs: int) -> None:
        """What the stream's parameters make of it, once they are seen, instead of what is usual."""
        self._is_known = needs > 0
        if self._is_known and needs != self._cost:
            self._pool.amend(self._cost, needs)
            self._cost = needs

    def _retire(self) -> list[Decoded]:
        shown = self._drain()
        if self._session and self._key:
            self._retired.append((self._key, self._cost, self._session))
        self._session = self._key = None
        return shown

    def _drain(self) -> list[Decoded]:
        try:
            return self._shown(self._session.drain()) if self._session else []
        except UnsuitableError:
            self._discard()
            raise

    def _discard(self) -> None:
        if self._session:
            self._pool.discard(self._cost, self._session)
        self._session = self._key = None

    def _return_retired(self) -> None:
        """Nobody will load pictures of an earlier call any more."""
        for key, cost, session in self._retired:
            self._pool.give(key, cost, session)
        self._retired.clear()
