"""The port between packets and pictures, and the decoder that every machine has."""

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
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from daemon.errors import DecodeError
from daemon.sources.buffers import HostMapper, Mapper
from daemon.sources.connection import message_of
from detectors.port import HostImage, Image

NVDEC = "nvdec"  # the name of decoders of a GPU


class UnsuitableError(Exception):
    """A decoder that is not for this stream, or not on this machine; the text is the reason."""


def pixel_format(stream: VideoStream) -> str | None:
    """FFmpeg's name of it, as the header says. Where it does not, PyAV 17.1's own `pix_fmt` crashes (PyAV #2333)."""
    known = stream.codec_context.format
    return known.name if known else None


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """One picture out of a decoder.

    Attributes:
        pts: of the packet it came from, in units of `time_base`.
        load: brings it into the form lanes accept; called at most once, before the next `decode`.
        interlaced: it may have come from two packets.
    """

    pts: int | None
    time_base: Fraction | None
    load: Callable[[], Image]
    interlaced: bool = False


class Decoder(Protocol):
    """Decodes the packets of one connection; used by one thread.

    Attributes:
        name: what decodes, for the format.
    """

    @property
    def name(self) -> str: ...

    def begin(self, stream: VideoStream) -> None:
        """Packets of this stream come next; another one's have come before only if it was drained."""
        ...

    def decode(self, packet: Packet[Any]) -> Sequence[Decoded]:
        """The pictures that a packet completes, in the order they are to be shown; the empty one at the end drains.

        Raises:
            DecodeError: this packet is lost; go on with the next.
            SourceError: no packet of this connection can be decoded.
        """
        ...

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...


class DecoderPool(Protocol):
    """Decoders of a GPU, kept from one connection to the next.

    Attributes:
        memory: bytes of the GPU that the decoders in use are planned to take.
        threads: that keep it busy with recordings; more only wait for each other. 0 where there is none.
    """

    @property
    def threads(self) -> int: ...
    @property
    def memory(self) -> int: ...

    def make_current(self) -> None:
        """The calling thread looks at pictures from here on."""
        ...

    def decoder(self, stream: VideoStream, *, low_latency: bool) -> Decoder:
        """One for this stream.

        Args:
            low_latency: a picture is to come as soon as it can, rather than as many as possible a second.

        Raises:
            UnsuitableError: says why not.
        """
        ...

    def software(self, stream: VideoStream) -> Decoder:
        """What decodes a stream on the CPU, and leaves pictures where the detector has them soonest."""
        ...

    def close(self) -> None:
        """Release all; every reader and lane is closed before."""
        ...


class DecoderBackend(Protocol):
    """Decoders of a GPU, as another process is told of them; can be pickled.

    Attributes:
        sessions: decoders that there is room for at once, None for any number.
    """

    @property
    def sessions(self) -> int | None: ...

    def without_decoder(self, reason: str) -> DecoderBackend:
        """The same GPU, for pictures that the CPU decodes, and why it does."""
        ...

    def open(self, part: float | None = None) -> DecoderPool:
        """All of it for this process; or a part for one of several, whose pictures lie where others see them.

        Raises:
            DetectorError: it cannot be had.
        """
        ...

    def mapper(self) -> Mapper:
        """Where pictures of other processes are to be seen."""
        ...

    def estimate(self, codec: str, width: int, height: int, fps: float, *, low_latency: bool) -> tuple[float, int]:
        """Of one stream that it decodes: the share of the decoder, and bytes of the GPU."""
        ...


class NoHardwareDecoder:
    """There is none to use or to offer; the reason says why."""

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
        """There are no pictures."""

    def decoder(self, stream: VideoStream, *, low_latency: bool) -> Decoder:  # noqa: ARG002
        raise UnsuitableError(self.reason)

    def software(self, stream: VideoStream) -> Decoder:  # noqa: ARG002
        return SoftwareDecoder()

    def close(self) -> None:
        """Nothing is held."""


class SoftwareDecoder:
    """FFmpeg on the CPU; pictures are BGR in host memory."""

    name = "cpu"

    def begin(self, stream: VideoStream) -> None:
        """A stream brings its own."""

    def decode(self, packet: Packet[Any]) -> Sequence[Decoded]:
        try:
            return [
                Decoded(frame.pts, frame.time_base, partial(self._load, frame), frame.interlaced_frame)
                for frame in packet.decode()
                if isinstance(frame, VideoFrame)
            ]
        except av.error.ArgumentError as error:  # of a decoder that has refused the size, among others
            raise DecodeError(f"{message_of(error)}; is it larger than options: max_pixels?") from error
        except (av.error.FFmpegError, OSError) as error:
            raise DecodeError(message_of(error)) from error

    def close(self) -> None:
        """Nothing is held."""

    def _load(self, frame: VideoFrame) -> Image:
        return bgr_of(frame)


def bgr_of(frame: VideoFrame) -> HostImage:
    """A picture in host memory.

    Raises:
        DecodeError: it has no such form.
    """
    try:
        return HostImage(cast("npt.NDArray[np.uint8]", frame.to_ndarray(format="bgr24", threads=1)))
    except (av.error.FFmpegError, ValueError, MemoryError) as error:
        raise DecodeError(
            f"a picture of {frame.width}x{frame.height} {frame.format.name} has no BGR form: {error}"
        ) from error
