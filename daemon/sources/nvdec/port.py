"""Types that the pool, the sessions and the decoders of one GPU share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from av.video.frame import VideoFrame

from daemon.sources.decode import UnsuitableError
from detectors.port import DeviceImage

Load = Callable[[bool, bool], DeviceImage]
"""Copies a picture out of the decoder's own memory, which the decoder's next call overwrites. Arguments as in
DeviceImage: bt709, full_range. Raises DecodeError."""

LoadablePicture = tuple[Load, "int | None"]
"""A picture in display order, and the time of its packet."""

SessionKey = tuple[str, bool, bytes]
"""Codec, low latency, parameter sets. Sessions with equal keys are interchangeable. One of other parameter sets serves
them, too, and fast if it has room for them."""


class NoRoomError(UnsuitableError):
    """The GPU has no room for another decoder."""

    def __init__(self) -> None:
        super().__init__("the GPU has no room for another decoder session")


class NeedsTurnError(UnsuitableError):
    """The session of a live source cannot go on to a stream without opening a decoder, and has no turn for it."""

    def __init__(self) -> None:
        super().__init__("its decoder must be opened anew")


class DecoderSession(Protocol):
    """One hardware decoder; used by one thread at a time."""

    def make_current(self) -> None:
        """Bind the calling thread to the session's GPU."""
        ...

    def can_begin(self) -> bool:
        """Whether `decode` needs no other's turn: the driver opens decoders one by one. A turn that is found is kept
        until the next `decode` or `drain`."""
        ...

    def decode(self, address: int, size: int, time: int | None) -> list[LoadablePicture]:
        """The pictures that a packet in host memory completes, in display order.

        Args:
            time: of the packet, in any unit; None if unknown.

        Raises:
            UnsuitableError: the session cannot decode this stream and must not be used again.
            NoRoomError: likewise, because the GPU is full.
            NeedsTurnError: likewise, because a decoder must be opened in place of the one that there is. Give the
                packet to a new session once that `can_begin`.
        """
        ...

    def drain(self) -> list[LoadablePicture]:
        """The pictures still in the decoder. The session is then ready for a new stream of the same codec, once these
        have been loaded. Raises as `decode`."""
        ...

    @property
    def room(self) -> tuple[int, int]:
        """Width and height of the largest pictures for which another decoder need not be opened; 0 until the stream's
        parameters are known, and where the driver changes no decoder."""
        ...

    @property
    def memory_bytes(self) -> int:
        """GPU memory of the decoder and its surfaces; 0 until the stream's first picture, since the last `drain`."""
        ...

    @property
    def all_free(self) -> bool:
        """Whether all surfaces have been returned."""
        ...

    def close(self) -> None: ...


class UploadTarget(Protocol):
    """GPU memory for pictures of one size that the CPU decodes; used by one thread at a time."""

    def put(self, frame: VideoFrame, bt709: bool, full_range: bool) -> DeviceImage:
        """Enqueue the upload of a picture.

        Raises:
            DecodeError: the upload failed.
        """
        ...

    @property
    def all_free(self) -> bool:
        """Whether all surfaces have been returned."""
        ...

    def close(self) -> None: ...


class PictureOwner(Protocol):
    """A session or an upload target: it may be closed once its surfaces have been returned."""

    @property
    def all_free(self) -> bool: ...
    def close(self) -> None: ...


class DecoderDevice(Protocol):
    """The GPU under a pool.

    Attributes:
        surfaces: pictures of each source that may be in use at once.
        threads: see `daemon.sources.decode.DecoderPool`.
    """

    @property
    def surfaces(self) -> int: ...
    @property
    def threads(self) -> int: ...
    def make_current(self) -> None: ...

    def open_session(self, codec: str, low_latency: bool) -> DecoderSession:
        """Raises UnsuitableError."""
        ...

    def open_target(self, width: int, height: int) -> UploadTarget:
        """Raises DetectorError."""
        ...

    def close(self) -> None: ...


class SessionPool(Protocol):
    """Lends sessions to decoders; see `daemon.sources.nvdec.pool.NvdecPool`."""

    def acquire(self, key: SessionKey, cost: int, size: tuple[int, int]) -> DecoderSession: ...
    def make_room(self) -> bool: ...
    def put_back(self, key: SessionKey, cost: int, session: DecoderSession) -> None: ...
    def discard(self, cost: int, session: DecoderSession) -> None: ...
    def change_cost(self, old: int, new: int) -> None: ...
    def release(self, cost: int) -> None: ...
