"""The port that every source implements: a Source can connect, a Reader is one connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
from av.packet import Packet

from detectors.port import Image
from lookout.messages import FrameClock, VideoFormat


class Picture(msgspec.Struct, frozen=True, gc=False):
    """One decoded picture.

    Attributes:
        pts: presentation time on the source's own timeline, ns, or None.
        decode: decode time so far, ns; the caller of `load` adds the time of `load`.
        load: converts the picture to the form that lanes accept; called at most once, before the next `read`. Raises
            DecodeError. A picture that the rate limit skips is never loaded.
        sent_at: when the camera took it, by the camera's clock, UTC ns, or None.
        in_burst: it may come together with others, as in a live stream with B-frames, without being late.
    """

    pts: int | None
    decode: int
    load: Callable[[], Image]
    sent_at: int | None = None
    in_burst: bool = False


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """One picture that was not decoded, for lack of time.

    Attributes:
        cause: the drop cause, a field of `lookout.messages.Dropped`.
    """

    cause: Literal["late", "rate_limit"]


@dataclass
class DecodeBudget:
    """The decode time of a source. The capture sets it; a reader that can skip pictures obeys it.

    Attributes:
        late: lateness of the last picture, ns; a reader may skip pictures to catch up.
        skip_ratio: share of the pictures to be skipped in any case, 0 to 1; non-reference pictures go first.
    """

    late: int = 0
    skip_ratio: float = 0.0

    def set_late(self, late: int) -> None:
        self.late = late

    def set_skip_ratio(self, ratio: float) -> None:
        self.skip_ratio = ratio


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


class PacketInfo(msgspec.Struct, frozen=True, gc=False):
    """A packet without its bytes; see `lookout.messages.Packet`."""

    codec: str
    extradata: bytes
    time_base: tuple[int, int]
    width: int
    height: int
    turns: int
    pts: int | None
    dts: int | None
    key: bool


class PacketTap(Protocol):
    """Called with every packet of a connection between the demuxer and the decoder, also with packets that are skipped.

    The capture's thread calls it: it must return at once. A packet is encoded video as the camera sent it; its
    timestamps are in units of `packet.time_base`.
    """

    def __call__(self, packet: Packet[Any]) -> None: ...


@runtime_checkable
class PacketReader(Protocol):
    """A reader of a source that has packets.

    Attributes:
        awaits_decoder: packets that have come wait until others have their decoders.
    """

    @property
    def awaits_decoder(self) -> bool: ...

    def set_tap(self, tap: PacketTap | None) -> None:
        """Have a tap called with each packet, None for no tap; any thread may call it."""
        ...

    def take_passed_over(self) -> Mapping[str, int]:
        """The packets since the last call that are no frames, by kind; see `lookout.messages.SourceMetrics`."""
        ...

    def describe(self, packet: Packet[Any]) -> PacketInfo:
        """A packet that the tap was called with, before it returns."""
        ...


@runtime_checkable
class BurstyReader(Protocol):
    """A reader of a live stream, whose pictures may come in bursts.

    Attributes:
        can_wait: pictures that are not read wait at the sender, or in files.
        segment_s: seconds of the longest segment of HLS; 0 for another stream.
        is_behind: more segments wait than need be.
    """

    @property
    def can_wait(self) -> bool: ...
    @property
    def segment_s(self) -> float: ...
    @property
    def is_behind(self) -> bool: ...


class Source(Protocol):
    """Connects to a camera or recording.

    Attributes:
        plays_once: a recording that ends. It is not restarted if it breaks off in the middle; every other source
            reconnects for ever.
        live: pictures come at the camera's rate, and pile up if they are not read in time.
        realtime: play at the recording's own rate; the capture waits until each picture is due.
        has_next: a playlist with another recording after the one that was opened last.
        clock: accuracy of the capture time where pictures have no time of their own.
    """

    @property
    def plays_once(self) -> bool: ...
    @property
    def live(self) -> bool: ...
    @property
    def realtime(self) -> bool: ...
    @property
    def has_next(self) -> bool: ...
    @property
    def clock(self) -> FrameClock: ...

    def open(self, budget: DecodeBudget | None = None) -> Reader:
        """Connect within the source's time limit.

        Args:
            budget: may change while the reader is in use; None to decode every picture.

        Raises:
            SourceError: says why not, without credentials.
        """
        ...


def next_picture(reader: Reader) -> Picture | None:
    """The next picture that is not skipped; None at the end of a recording. Raises as `read`."""
    while isinstance(picture := reader.read(), Skipped):
        pass
    return picture
