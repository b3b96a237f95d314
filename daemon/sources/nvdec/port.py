"""What the pool, the sessions and the decoders of one GPU share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from av.video.frame import VideoFrame

from detectors.port import DeviceImage

Load = Callable[[bool, bool], DeviceImage]
"""Brings a picture out of the decoder's own memory, which its next call overwrites; arguments as in DeviceImage: bt709,
full_range. It may raise DecodeError."""


Shown = tuple[Load, "int | None"]
"""A picture to be shown, and the time of the packet it came from."""


class Session(Protocol):
    """One hardware decoder; used by one thread at a time."""

    def make_current(self) -> None:
        """The calling thread uses it from here on."""
        ...

    def decode(self, address: int, size: int, time: int | None) -> list[Shown]:
        """The pictures that a packet in host memory completes, in the order they are to be shown.

        Args:
            time: at which this packet's is, in any unit; None if that is not known.

        Raises:
            UnsuitableError: it cannot decode this; to be used no more.
        """
        ...

    def drain(self) -> list[Shown]:
        """The pictures still in it; afterwards it is as new, for the same parameters. Raises as `decode`."""
        ...

    @property
    def needs(self) -> int:
        """Bytes of the GPU, with its pictures; 0 until a stream has told what form they have."""
        ...

    @property
    def all_free(self) -> bool:
        """Nobody holds a picture of it."""
        ...

    def close(self) -> None: ...


class UploadTarget(Protocol):
    """Room for pictures of one size on the GPU; used by one thread at a time."""

    def put(self, frame: VideoFrame, bt709: bool, full_range: bool) -> DeviceImage:
        """Enqueue a picture's way there.

        Raises:
            DecodeError: it cannot be had.
        """
        ...

    @property
    def all_free(self) -> bool:
        """Nobody holds a picture of it."""
        ...

    def close(self) -> None: ...


class Holder(Protocol):
    """What may be closed when its pictures are home: a session, or room for pictures."""

    @property
    def all_free(self) -> bool: ...
    def close(self) -> None: ...


MakeSession = Callable[[str, bool], Session]
"""A new one for a codec; and whether a picture is to come as soon as it can."""

Key = tuple[str, bool, bytes]
"""Codec, low latency, parameters: sessions are exchangeable where these are the same, for each is made for one form of
picture."""


class Sessions(Protocol):
    """Lends sessions to decoders; see `daemon.sources.nvdec.pool.Pool`."""

    def acquire(self, key: Key, cost: int) -> Session: ...
    def give(self, key: Key, cost: int, session: Session) -> None: ...
    def discard(self, cost: int, session: Session) -> None: ...
    def amend(self, cost: int, needs: int) -> None: ...
    def release(self, cost: int) -> None: ...
