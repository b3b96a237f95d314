"""NVIDIA's video decoder by ctypes: what Lookout needs of libnvcuvid, which comes with the driver.

A parser finds the pictures in a stream, and says by callbacks what decoder they need, when to begin one, and when one
is to be shown. A picture that is begun is not waited for: whether it is done can be asked.

Source: cuviddec.h and nvcuvid.h, Video Codec SDK 12.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_ubyte, c_uint, c_ulonglong, c_void_p
from functools import cache
from typing import Any

from daemon.sources.nvdec.nvcuvid_structs import (
    Callback,
    Caps,
    DecoderParameters,
    Format,
    Packet,
    ParserParameters,
    Processing,
    ShortArea,
    Shown,
    Status,
)

CODECS = {"h264": 4, "mjpeg": 5, "hevc": 8, "vp9": 10, "av1": 11}
_NV12, _WEAVE, _DEDICATED, _420 = 0, 0, 4, 1
_END_OF_STREAM, _HAS_TIME, _END_OF_PICTURE = 0x01, 0x02, 0x08
_NO_TIME = -(1 << 62)  # stands for none: the parser makes up a time that is not given
_TELLS = ("h264", "hevc", "mjpeg")  # whether a picture is done
_IN_PROGRESS, _ERROR = 1, 8
_SHOWN_AT_ONCE, _SHOWN_LATER = 0, 4  # pictures by which showing is delayed, so that nobody waits for one
_MAPPED = 3  # pictures that may be on their way out at once
OUT_OF_MEMORY = 2
# CUDA's codes after which a process can use the GPU no more: an error of its context, such as an illegal address.
_STICKY = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719})

Picture = tuple[int, "int | None"]
"""The number of a decoded picture, and the time of the packet that it began in."""


class NvdecError(Exception):
    """The decoder cannot do it.

    Attributes:
        code: CUDA's, of the call that failed; 0 if it was none.
        sticky: the process can use the GPU no more, and must end.
    """

    def __init__(self, words: str, code: int = 0) -> None:
        super().__init__(f"{words}: CUDA error {code}" if code else words)
        self.code = code
        self.sticky = code in _STICKY


def caps(codec: str) -> Caps:
    """Of 8-bit 4:2:0, on the current context's GPU.

    Raises:
        NvdecError: the driver does not say.
    """
    found = Caps(codec=CODECS[codec], chroma=_420)
    _checked("cuvidGetDecoderCaps", _library().cuvidGetDecoderCaps(byref(found)))
    return found


class Parsed:
    """One stream: a parser and, from its first parameters on, a decoder, for the thread that has the context.

    Args:
        codec: one of `CODECS`.
        stream: CUDA's, by its handle, in which pictures are brought out.
        at_once: each picture is shown as soon as it can be, whether it is done or not.

    Attributes:
        size: width and height, pixels; 0 until a stream is known.
        kept: pictures that the decoder keeps for others to refer to; 0 until then.
    """

    def __init__(self, codec: str, stream: int, *, at_once: bool) -> None:
        self.size, self.kept = (0, 0), 0
        self._library, self._parser, self._decoder = _library(), c_void_p(), c_void_p()
        self._tells = codec in _TELLS
        self._made_for: tuple[int, ...] = ()
        self._shown: list[Picture] = []
        self._problem: Exception | None = None
        # What C holds must stay; and what is asked for each picture is made once.
        self._callbacks = tuple(map(Callback, (self._on_format, self._on_decode, self._on_show)))
        self._packet, self._status = Packet(), Status()
        self._processing = Processing(progressive=1, stream=stream)
        self._pointer, self._pitch = c_ulonglong(), c_uint()
        self._delay = _SHOWN_AT_ONCE if at_once else _SHOWN_LATER
        wanted = ParserParameters(codec=CODECS[codec], surfaces=1, delay=self._delay)
        wanted.on_format, wanted.on_decode, wanted.on_show = self._callbacks
        _checked("cuvidCreateVideoParser", self._library.cuvidCreateVideoParser(byref(self._parser), byref(wanted)))

    def parse(self, address: int, size: int, time: int | None) -> list[Picture]:
        """Begin to decode a whole picture in host memory; those to be shown now, in order.

        Raises:
            NvdecError: the decoder cannot go on.
        """
        self._packet.time = _NO_TIME if time is None else time
        return self._parse(address, size, _END_OF_PICTURE | _HAS_TIME)

    def drain(self) -> list[Picture]:
        """Those not shown yet. What comes after begins anew. Raises as `parse`."""
        return self._parse(0, 0, _END_OF_STREAM)

    def is_done(self, number: int) -> bool:
        """Whether a picture is decoded; of codecs of which that cannot be asked, `map` waits for it.

        Raises:
            NvdecError: it could not be.
        """
        if not self._tells:
            return True
        _checked("cuvidGetDecodeStatus", self._library.cuvidGetDecodeStatus(self._decoder, number, byref(self._status)))
        if self._status.status == _ERROR:
            raise NvdecError("the GPU's decoder found errors in a picture")
        return bool(self._status.status != _IN_PROGRESS)

    def map(self, number: int) -> tuple[int, int]:
        """A picture's address and pitch as NV12 on the device, in the stream's order, until it is given back.

        Raises:
            NvdecError: it cannot be had.
        """
        found = byref(self._pointer), byref(self._pitch), byref(self._processing)
        _checked("cuvidMapVideoFrame", self._library.cuvidMapVideoFrame64(self._decoder, number, *found))
        return self._pointer.value, self._pitch.value

    def unmap(self, pointer: int) -> None:
        """Nothing in the stream reads it any more."""
        _checked("cuvidUnmapVideoFrame", self._library.cuvidUnmapVideoFrame64(self._decoder, c_ulonglong(pointer)))

    def close(self) -> None:
        """All must be given back."""
        parser, self._parser = self._parser, c_void_p()
        decoder, self._decoder = self._decoder, c_void_p()
        if parser:
            self._library.cuvidDestroyVideoParser(parser)
        if decoder:
            self._library.cuvidDestroyDecoder(decoder)
        self._callbacks = ()  # they hold this

    def _parse(self, address: int, size: int, flags: int) -> list[Picture]:
        packet = self._packet
        packet.data, packet.size, packet.flags = address, size, flags
        code = self._library.cuvidParseVideoData(self._parser, byref(packet))
        if problem := self._problem:
            self._problem = None
            raise problem
        _checked("cuvidParseVideoData", code)
        shown, self._shown = self._shown, []
        return shown

    def _on_format(self, _: Any, where: int) -> int:
        """How many pictures the decoder has room for; 0 if there is none."""
        try:
            found = Format.from_buffer_copy((c_ubyte * ctypes.sizeof(Format)).from_address(where))
            if not self._decoder:
                self._make(found)
            elif found.made_for != self._made_for:
                raise NvdecError("the form of its pictures changed where no parameters were seen")
        except Exception as error:  # noqa: BLE001 - none may pass through C
            self._problem = error
            return 0
        return self.kept + self._delay

    def _make(self, found: Format) -> None:
        if found.chroma != _420 or found.luma_depth_minus_8 or found.chroma_depth_minus_8:
            raise NvdecError("only 8-bit 4:2:0 is taken from it")
        self.size, self.kept, self._made_for = found.size, max(1, int(found.surfaces_min)), found.made_for
        width, height = found.size
        area = found.area
        wanted = DecoderParameters(
            width=found.coded_width,
            height=found.coded_height,
            width_max=found.coded_width,
            height_max=found.coded_height,
            surfaces=self.kept + self._delay,
            codec=found.codec,
            chroma=found.chroma,
            depth_minus_8=found.luma_depth_minus_8,
            flags=_DEDICATED,
            area=ShortArea(area.left, area.top, area.left + width, area.top + height),
            format=_NV12,
            deinterlace=_WEAVE,
            target_width=width,
            target_height=height,
            mapped=_MAPPED,
        )
        _checked("cuvidCreateDecoder", self._library.cuvidCreateDecoder(byref(self._decoder), byref(wanted)))

    def _on_decode(self, _: Any, where: int) -> int:
        if self._problem or not self._decoder:  # of another form: the driver would take it, and may crash
            return 0
        if code := self._library.cuvidDecodePicture(self._decoder, c_void_p(where)):
            self._problem = NvdecError("cuvidDecodePicture", code)
        return int(not code)

    def _on_show(self, _: Any, where: int) -> int:
        if where:  # nothing at the end of a stream
            shown = Shown.from_address(where)
            time = shown.time
            self._shown.append((shown.index, None if time == _NO_TIME else time))
        return 1


@cache
def _library() -> ctypes.CDLL:
    """Raises OSError: the driver has none."""
    return ctypes.CDLL("libnvcuvid.so.1")


def _checked(call: str, code: int) -> None:
    if code:
        raise NvdecError(call, code)
