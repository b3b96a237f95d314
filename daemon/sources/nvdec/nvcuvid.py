"""NVIDIA's video decoder by ctypes: the part of libnvcuvid that Lookout needs. The library comes with the driver.

The parser splits a stream into pictures. Its callbacks create the decoder, start the decoding of a picture, and report
a picture in display order. Decoding is asynchronous; `is_done` reads the status of a picture.

Source: cuviddec.h and nvcuvid.h, Video Codec SDK 12.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from ctypes import byref, c_ubyte, c_uint, c_ulonglong, c_void_p
from functools import cache
from typing import Any

import structlog

from daemon.sources.nvdec.nvcuvid_structs import (
    Callback,
    Caps,
    ChangeParameters,
    DecoderParameters,
    DecodeStatus,
    DisplayInfo,
    Format,
    Packet,
    ParserParameters,
    Processing,
    ShortArea,
)

log = structlog.get_logger(__name__)
CODECS = {"h264": 4, "mjpeg": 5, "hevc": 8, "vp9": 10, "av1": 11}
_NV12, _WEAVE, _DEDICATED, _420 = 0, 0, 4, 1
_END_OF_STREAM, _HAS_TIME, _END_OF_PICTURE = 0x01, 0x02, 0x08
_NO_TIME = -(1 << 62)  # marks a missing time: the parser would invent one
_REPORTS_STATUS = ("h264", "hevc", "mjpeg")  # the codecs with a decode status
_IN_PROGRESS, _ERRORS = 1, (8, 9)  # decode status; with errors: as they are, and concealed
_NO_DELAY, _THROUGHPUT_DELAY = 0, 4  # display delay, pictures
OUT_OF_MEMORY = 2
# CUDA's sticky errors: the context is lost, for example after an illegal address.
_STICKY = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719})
_has_refused = threading.Event()  # the driver, to change a decoder of this process

DisplayedPicture = tuple[int, "int | None"]
"""The index of a decoded picture, and the time of its packet."""

Enter = Callable[[], AbstractContextManager[object]]


class NvdecError(Exception):
    """A call of the decoder failed.

    Attributes:
        code: CUDA's error code, 0 if no call of CUDA failed.
        sticky: the process cannot use the GPU any more, and must end.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(f"{message}: CUDA error {code}" if code else message)
        self.code = code
        self.sticky = code in _STICKY


def caps(codec: str) -> Caps:
    """The decoder's capabilities for 8-bit 4:2:0, on the current context's GPU.

    Raises:
        NvdecError: the driver gives none.
    """
    found = Caps(codec=CODECS[codec], chroma=_420)
    _checked("cuvidGetDecoderCaps", _library().cuvidGetDecoderCaps(byref(found)))
    return found


class StreamDecoder:
    """The parser and the decoder of one stream, for the thread that holds the context.

    Args:
        codec: one of `CODECS`.
        stream: handle of the CUDA stream on which pictures are mapped.
        low_latency: display each picture at once, decoded or not.
        mapped: pictures that may be mapped at once; each takes the memory of a picture.
        turn: entered while the decoder is made, which the driver does for one stream of the host at a time. An error
            of it ends the stream.

    Attributes:
        size: width and height, pixels; 0 until the stream's parameters are known.
        dpb_size: pictures in the stream's picture buffer; 0 until then.
        room: coded width and height, and pictures of a stream's buffer, for which the decoder was made; 0 until then.
            Each stream that fits is decoded without making another, which takes 50 ms.
    """

    def __init__(
        self,
        codec: str,
        stream: int,
        *,
        low_latency: bool,
        mapped: int = 1,
        turn: Enter | None = None,
    ) -> None:
        self._mapped = mapped
        self.size, self.dpb_size, self.room = (0, 0), 0, (0, 0, 0)
        self._library, self._parser, self._decoder = _library(), c_void_p(), c_void_p()
        self._reports_status = codec in _REPORTS_STATUS
        self._layout: tuple[int, ...] = ()
        self._is_empty = True  # no picture of the stream has come since it began
        self._displayed: list[DisplayedPicture] = []
        self._error: Exception | None = None
        # The library keeps the callbacks' addresses. The structs are reused for every picture.
        self._callbacks = tuple(map(Callback, (self._on_format, self._on_decode, self._on_display)))
        self._packet, self._status = Packet(), DecodeStatus()
        self._processing = Processing(progressive=1, stream=stream)
        self._pointer, self._pitch = c_ulonglong(), c_uint()
        self._turn = turn or nullcontext
        self._delay = _NO_DELAY if low_latency else _THROUGHPUT_DELAY
        wanted = ParserParameters(codec=CODECS[codec], surfaces=1, delay=self._delay)
        wanted.on_format, wanted.on_decode, wanted.on_display = self._callbacks
        _checked("cuvidCreateVideoParser", self._library.cuvidCreateVideoParser(byref(self._parser), byref(wanted)))

    def parse(self, address: int, size: int, time: int | None) -> list[DisplayedPicture]:
        """Start to decode a whole picture in host memory. Returns the pictures to be displayed now, in order.

        Raises:
            NvdecError: the decoder cannot go on.
        """
        self._packet.time = _NO_TIME if time is None else time
        return self._parse(address, size, _END_OF_PICTURE | _HAS_TIME)

    def drain(self) -> list[DisplayedPicture]:
        """The pictures not displayed yet. The next packet begins a new stream, of which every picture must be unmapped
        before. Raises as `parse`."""
        shown = self._parse(0, 0, _END_OF_STREAM)
        self._is_empty = True
        return shown

    def is_done(self, number: int) -> bool:
        """Whether a picture is decoded. True for codecs without a status: `map` waits for their pictures."""
        if not self._reports_status:
            return True
        _checked("cuvidGetDecodeStatus", self._library.cuvidGetDecodeStatus(self._decoder, number, byref(self._status)))
        return bool(self._status.status != _IN_PROGRESS)

    @property
    def is_made(self) -> bool:
        """Whether the driver has made a decoder; the first picture needs one."""
        return bool(self._decoder)

    @property
    def has_picture(self) -> bool:
        """Whether a picture of the stream has come: `size`, `dpb_size` and `room` are those for it."""
        return not self._is_empty

    @property
    def found_errors(self) -> bool:
        """Whether the decoder found errors in the picture of the last `is_done`; False for codecs without a status."""
        return self._status.status in _ERRORS

    def map(self, number: int) -> tuple[int, int]:
        """Address and pitch of a picture as NV12 on the device, in stream order, until `unmap`.

        Raises:
            NvdecError: the picture cannot be mapped.
        """
        found = byref(self._pointer), byref(self._pitch), byref(self._processing)
        _checked("cuvidMapVideoFrame", self._library.cuvidMapVideoFrame64(self._decoder, number, *found))
        return self._pointer.value, self._pitch.value

    def unmap(self, pointer: int) -> None:
        """Release a mapped picture; no work on the stream may read it any more."""
        _checked("cuvidUnmapVideoFrame", self._library.cuvidUnmapVideoFrame64(self._decoder, c_ulonglong(pointer)))

    def close(self) -> None:
        """Every picture must be unmapped."""
        parser, self._parser = self._parser, c_void_p()
        if parser:
            self._library.cuvidDestroyVideoParser(parser)
        self._destroy()
        self._callbacks = ()  # they refer to this object

    def _parse(self, address: int, size: int, flags: int) -> list[DisplayedPicture]:
        packet: Packet = self._packet
        packet.data, packet.size, packet.flags = address, size, flags
        code = self._library.cuvidParseVideoData(self._parser, byref(packet))
        if problem := self._error:
            self._error = None
            raise problem
        _checked("cuvidParseVideoData", code)
        shown, self._displayed = self._displayed, []
        return shown

    def _on_format(self, _: Any, where: int) -> int:
        """Returns the number of pictures that the decoder has room for; 0 on error."""
        try:
            found = Format.from_buffer_copy((c_ubyte * ctypes.sizeof(Format)).from_address(where))
            if not self._decoder:
                self._make(found)
            elif found.layout != self._layout:
                if not self._is_empty:
                    raise NvdecError("the picture format changed where no parameters were seen")
                self._change(found)
        except Exception as error:  # noqa: BLE001 - no exception may cross C
            self._error = error
            return 0
        return self.dpb_size + self._delay

    def _change(self, found: Format) -> None:
        """Decode another stream from now on: by the same decoder, if it has room."""
        _check_supported(found)
        width, height, dpb_size = self.room
        fits = found.coded_width <= width and found.coded_height <= height and found.surfaces_min <= dpb_size
        if fits and found.layout[:-1] == self._layout[:-1]:  # of another buffer alone
            self._note(found)
        elif not (fits and self._changes(found)):
            self._make(found)

    def _changes(self, found: Format) -> bool:
        """Whether the driver changes the decoder to another format.

        Raises:
            NvdecError: the process cannot use the GPU any more.
        """
        (width, height), area = found.size, _area(found)
        wanted = ChangeParameters(
            width=found.coded_width,
            height=found.coded_height,
            target_width=width,
            target_height=height,
            surfaces=self.room[2] + self._delay,
            area=area,
        )
        code = self._library.cuvidReconfigureDecoder(self._decoder, byref(wanted))
        if code in _STICKY:
            raise NvdecError("cuvidReconfigureDecoder", code)
        if code:
            _note_refusal(code)
            return False
        self._note(found)
        return True

    def _note(self, found: Format) -> None:
        self.size, self.dpb_size, self._layout = found.size, max(1, int(found.surfaces_min)), found.layout

    def _make(self, found: Format) -> None:
        """Make a decoder, in place of the one that there may be."""
        _check_supported(found)
        width, height = found.size
        dpb_size = max(1, int(found.surfaces_min))
        wanted = DecoderParameters(
            width=found.coded_width,
            height=found.coded_height,
            width_max=found.coded_width,
            height_max=found.coded_height,
            surfaces=dpb_size + self._delay,
            codec=found.codec,
            chroma=found.chroma,
            depth_minus_8=found.luma_depth_minus_8,
            flags=_DEDICATED,
            area=_area(found),
            format=_NV12,
            deinterlace=_WEAVE,
            target_width=width,
            target_height=height,
            mapped=self._mapped,
        )
        with self._turn():
            self._destroy()
            code = self._library.cuvidCreateDecoder(byref(self._decoder), byref(wanted))
        _checked("cuvidCreateDecoder", code)
        self._note(found)
        self.room = found.coded_width, found.coded_height, dpb_size

    def _destroy(self) -> None:
        decoder, self._decoder = self._decoder, c_void_p()
        if decoder:
            self._library.cuvidDestroyDecoder(decoder)

    def _on_decode(self, _: Any, where: int) -> int:
        if self._error or not self._decoder:  # after a format change the driver may crash
            return 0
        self._is_empty = False
        if code := self._library.cuvidDecodePicture(self._decoder, c_void_p(where)):
            self._error = NvdecError("cuvidDecodePicture", code)
        return int(not code)

    def _on_display(self, _: Any, where: int) -> int:
        if where:  # null at the end of a stream
            shown = DisplayInfo.from_address(where)
            time = shown.time
            self._displayed.append((shown.index, None if time == _NO_TIME else time))
        return 1


def _check_supported(found: Format) -> None:
    if found.chroma != _420 or found.luma_depth_minus_8 or found.chroma_depth_minus_8:
        raise NvdecError("only 8-bit 4:2:0 is decoded")


def _area(found: Format) -> ShortArea:
    """The part of a picture that is shown."""
    (width, height), area = found.size, found.area
    return ShortArea(area.left, area.top, area.left + width, area.top + height)


def refuses_changes() -> bool:
    """Whether the driver has refused to change a decoder in this process."""
    return _has_refused.is_set()


def _note_refusal(code: int) -> None:
    if _has_refused.is_set():
        return
    _has_refused.set()
    log.warning("the driver changes no decoder to another size: new ones are made", error=code)


@cache
def _library() -> ctypes.CDLL:
    """Raises OSError: the driver has no decoder library."""
    return ctypes.CDLL("libnvcuvid.so.1")


def _checked(call: str, code: int) -> None:
    if code:
        raise NvdecError(call, code)
