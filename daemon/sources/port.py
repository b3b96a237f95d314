"""The port every source implements: a Source says how to connect, a Reader is one connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
from av.packet import Packet

from daemon.messages import FrameClock, VideoFormat
from detectors.port import Image


class Picture(msgspec.Struct, frozen=True, gc=False):
    """One decoded picture.

    Attributes:
        pts: presentation time on the source's own timeline, ns, or None.
        decode: ns spent decoding it so far; the time `load` takes is added by who calls it.
        load: brings it into the form lanes accept; called at most once, before the next `read`. It may raise
            DecodeError. A picture that is skipped is never loaded.
        sent_at: when it was taken by the camera's own clock, UTC ns, or None where the camera does not say.
        in_burst: it may come together with others, as from a live stream with B-frames, and not because it is late.
    """

    pts: int | None
    decode: int
    load: Callable[[], Image]
    sent_at: int | None = None
    in_burst: bool = False


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """One picture that was not decoded, because there is no time for all.

    Attributes:
        cause: what the frame is counted as, a field of `daemon.messages.Dropped`.
    """

    cause: Literal["late", "rate_limit"]


@dataclass
class DecodeBudget:
    """The time there is for decoding a source. The capture sets it; a reader that can skip pictures obeys it.

    Attributes:
        late: ns by which the last picture came later than it should; a reader may skip pictures to catch up.
        skip_ratio: share of the pictures to be skipped in any case, 0 to 1, those first that no others need.
    """

    late: int = 0
    skip_ratio: float = 0.0


class Reader(Protocol):
    """One connection to a source, used by one thread."""

    @property
    def format(self) -> VideoFormat: ...

    def read(self) -> Picture | Skipped | None:
        """The next picture, or None at the end of a recording. Returns or raises within the source's read time limit.

        Raises:
            DecodeError: one picture is lost; read on.
            SourceError: the connection is over.
        """
        ...

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...


class PacketTap(Protocol):
    """Sees every packet of a connection between the demuxer and the decoder, also those that are skipped.

    The capture's thread calls it: it must return at once, and keep what it wants to keep by itself. A packet is
    encoded video as the camera sent it; its times are in `packet.time_base`.
    """

    def __call__(self, packet: Packet[Any]) -> None: ...


class Source(Protocol):
    """Where to connect and how.

    Attributes:
        once: a recording with an end, not started again when it broke off in the middle. Otherwise the source is
            connected again for ever.
        live: pictures come when they come; who does not take them in time falls behind.
        paced: play it at its own pace; the capture thread waits until each picture is due.
        goes_on: what was opened last is one of several recordings, and another is to be opened after it.
        clock: what the time of capture is worth where pictures do not say when they were taken.
    """

    @property
    def once(self) -> bool: ...
    @property
    def live(self) -> bool: ...
    @property
    def paced(self) -> bool: ...
    @property
    def goes_on(self) -> bool: ...
    @property
    def clock(self) -> FrameClock: ...

    def open(self, budget: DecodeBudget | None = None) -> Reader:
        """Connect within the source's time limit.

        Args:
            budget: changes while the reader is read; None to decode all.

        Raises:
            SourceError: says why not, without credentials.
        """
        ...


def next_picture(reader: Reader) -> Picture | None:
    """The next picture of a reader, without those that it skips; None at the end of a recording. Raises as `read`."""
    while isinstance(picture := reader.read(), Skipped):
        pass
    return picture
