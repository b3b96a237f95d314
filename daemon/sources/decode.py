"""The port between packets and pictures, and FFmpeg's decoder on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Protocol, cast

import av.error
import msgspec
import numpy as np
import numpy.typing as npt
from av.packet import Packet
from av.sidedata.sidedata import Type
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from daemon.errors import DecodeError
from daemon.sources.buffers import HostMapper, Mapper
from daemon.sources.libav import message_of
from detectors.port import HostImage, Image

NVDEC = "nvdec"  # `Decoder.name` of a GPU's decoder


class UnsuitableError(Exception):
    """The decoder cannot decode this stream, or does not exist on this machine; the text is the reason."""


def pixel_format(stream: VideoStream) -> str | None:
    """FFmpeg's name of the pixel format in the header. Where the header has none PyAV 17.1's `pix_fmt` crashes (PyAV
    #2333)."""
    known = stream.codec_context.format
    return known.name if known else None


class DecodedPicture(msgspec.Struct, frozen=True, gc=False):
    """One decoded picture.

    Attributes:
        pts: of its packet, in units of `time_base`.
        load: converts the picture to the form that lanes accept; called at most once, before the next `decode`.
        interlaced: the picture may come from two packets.
        size: width and height, as in the stream; None if they are known when it is loaded.
        turns: quarter turns clockwise that make it and those that follow it upright; None if it does not say.
    """

    pts: int | None
    time_base: Fraction | None
    load: Callable[[], Image]
    interlaced: bool = False
    size: tuple[int, int] | None = None
    turns: int | None = None


class Decoder(Protocol):
    """Decodes the packets of one connection; used by one thread.

    Attributes:
        name: goes into `VideoFormat.decoder`.
        is_waiting: it did not take the packet of the last `decode`, because it waits for its turn to be opened: only
            for live sources. Keep the packet, and give it again once it `can_begin`.
    """

    @property
    def name(self) -> str: ...
    @property
    def is_waiting(self) -> bool: ...

    def can_begin(self) -> bool:
        """Whether it would take a packet now."""
        ...

    def begin(self, stream: VideoStream) -> None:
        """Start with a stream. The decoder must be new or drained."""
        ...

    def decode(self, packet: Packet[Any]) -> Sequence[DecodedPicture]:
        """The pictures that a packet completes, in display order. An empty packet drains the decoder.

        Raises:
            DecodeError: this packet is lost; go on with the next.
            SourceError: no packet of this connection can be decoded.
        """
        ...

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...


class DecoderPool(Protocol):
    """Decoders of a GPU, reused between connections.

    Attributes:
        memory: GPU memory reserved for the decoders in use, bytes.
        threads: the number of threads that keep the decoder busy with recordings; 0 without a GPU.
    """

    @property
    def threads(self) -> int: ...
    @property
    def memory(self) -> int: ...

    def make_current(self) -> None:
        """Bind the calling thread to the GPU."""
        ...

    def decoder(self, stream: VideoStream, *, low_latency: bool) -> Decoder:
        """A decoder for a stream.

        Args:
            low_latency: give each picture as soon as possible; otherwise optimise for throughput.

        Raises:
            UnsuitableError: says why not.
        """
        ...

    def software(self, stream: VideoStream) -> Decoder:
        """A decoder on the CPU, whose pictures are uploaded where there is a GPU."""
        ...

    def tidy(self) -> None:
        """Now and then: close a decoder that has been unused for long. It may take 20 ms."""
        ...

    def close(self) -> None:
        """Release everything. All readers and lanes must be closed."""
        ...


class DecoderBackend(Protocol):
    """Describes the decoders of a GPU; can be pickled and opened in another process.

    Attributes:
        sessions: decoder sessions that the GPU has room for, None for no limit.
    """

    @property
    def sessions(self) -> int | None: ...

    def without_decoder(self, reason: str) -> DecoderBackend:
        """The same GPU without its decoder, so that the CPU decodes; `reason` is reported."""
        ...

    def open(self, part: float | None = None) -> DecoderPool:
        """Open the decoders.

        Args:
            part: share of the memory for one of several processes, whose pictures other processes can map. None for
                all of it in this process.

        Raises:
            DetectorError: the GPU cannot be used.
        """
        ...

    def mapper(self) -> Mapper:
        """Maps the pictures of other processes."""
        ...

    def estimate(self, codec: str, width: int, height: int, fps: float, *, low_latency: bool) -> tuple[float, int]:
        """Estimated cost of a stream: share of the decoder, and bytes of the GPU."""
        ...


class NoHardwareDecoder:
    """Implements `DecoderPool` and `DecoderBackend` where there is no decoder; `reason` says why."""

    memory = 0
    sessions = None
    threads = 0

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def open(self, part: float | None = None) -> NoHardwareDecoder:  # noqa: ARG002
        return self

    def without_decoder(self, reason: str) -> NoHardwareDecoder:
        return NoHardwareDecoder(reason)

    def mapper(self) -> Mapper:
        return HostMapper()

    def estimate(self, codec: str, width: int, height: int, fps: float, *, low_latency: bool) -> tuple[float, int]:  # noqa: ARG002
        return 0.0, 0

    def make_current(self) -> None:
        """There is no GPU."""

    def decoder(self, stream: VideoStream, *, low_latency: bool) -> Decoder:  # noqa: ARG002
        raise UnsuitableError(self.reason)

    def software(self, stream: VideoStream) -> Decoder:  # noqa: ARG002
        return SoftwareDecoder()

    def tidy(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


class SoftwareDecoder:
    """FFmpeg on the CPU; pictures are BGR in host memory."""

    name = "cpu"
    is_waiting = False

    def __init__(self) -> None:
        self._is_turned = False  # a picture was, so that another may say that it is upright

    def can_begin(self) -> bool:
        return True

    def begin(self, stream: VideoStream) -> None:
        """Packets know their stream, whose decoder may have been drained."""
        if stream.codec_context.is_open:
            stream.codec_context.flush_buffers()

    def decode(self, packet: Packet[Any]) -> Sequence[DecodedPicture]:
        try:
            return [self._picture(frame) for frame in packet.decode() if isinstance(frame, VideoFrame)]
        except av.error.ArgumentError as error:  # among others, a picture that is too large
            raise DecodeError(f"{message_of(error)}; is it larger than options: max_pixels?") from error
        except (av.error.FFmpegError, OSError) as error:
            raise DecodeError(message_of(error)) from error

    def close(self) -> None:
        """Nothing is held."""

    def _picture(self, frame: VideoFrame) -> DecodedPicture:
        turns = None
        if frame.rotation:
            turns, self._is_turned = turns_of_picture(frame), True
        # Reading `side_data` makes the picture refer to itself: then only the garbage collector frees its memory.
        elif self._is_turned and frame.key_frame and Type.DISPLAYMATRIX in frame.side_data:
            turns = 0
        shape = (frame.width, frame.height), turns
        return DecodedPicture(
            frame.pts, frame.time_base, partial(self._load_marked, frame), frame.interlaced_frame, *shape
        )

    def _load_marked(self, frame: VideoFrame) -> Image:
        image = self._load(frame)
        return marked(image) if frame.is_corrupt else image

    def _load(self, frame: VideoFrame) -> Image:
        return bgr_of(frame)


def turns_of_picture(frame: VideoFrame) -> int:
    """Quarter turns clockwise that make a picture upright; FFmpeg counts degrees counter-clockwise."""
    return round(-frame.rotation / 90) % 4


def marked(image: Image) -> Image:
    """The picture, as one that the decoder found errors in."""
    if isinstance(image, HostImage):
        return HostImage(image.bgr, corrupt=True)
    return msgspec.structs.replace(image, corrupt=True)


def bgr_of(frame: VideoFrame) -> HostImage:
    """Convert a picture to BGR in host memory.

    Raises:
        DecodeError: it cannot be converted.
    """
    try:
        return HostImage(cast("npt.NDArray[np.uint8]", frame.to_ndarray(format="bgr24", threads=1)))
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        raise DecodeError(
            f"a picture of {frame.width}x{frame.height} {frame.format.name} cannot be converted to BGR: {error}"
        ) from error
