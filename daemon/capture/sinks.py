"""The ports that a capture talks to: the daemon itself, or its stand-ins in a capture process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from daemon.pipeline.drop_causes import GiveUp
from daemon.pipeline.frame_board import FrameBoard
from daemon.pipeline.frames import Frame
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.model_boards import ModelBoards
from daemon.sources.port import PacketInfo
from lookout.messages import State, VideoFormat

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Quota(msgspec.Struct, frozen=True):
    """A source's share of the detector and of the GPU's decoder.

    Attributes:
        fps: frames a second that may be detected, None for all.
        skip_ratio: share of pictures that are not decoded, 0 to 1.
        reason: of the limits, for the source's status; None without limits.
    """

    fps: float | None = None
    skip_ratio: float = 0.0
    reason: str | None = None


UNLIMITED = Quota()

OnQuota = Callable[[Quota], None]
"""Sets a source's quota; any thread may call it, and it returns at once."""

ADMITTED: Future[None] = Future()
"""The answer of admission to an admitted source."""
ADMITTED.set_result(None)


class Board(Protocol):
    """Takes frames: `daemon.pipeline.frame_board.FrameBoard`, or its stand-in in a capture process."""

    @property
    def live(self) -> bool: ...
    def listen(self, source: str, wake: Callable[[], None]) -> None: ...
    def put(self, frame: Frame, *, give_up: GiveUp | None = None, hold_ns: int = 0) -> bool: ...
    def is_settled(self, source: str) -> bool: ...


class FrameCounters(Protocol):
    """Counts frames: `daemon.pipeline.ledger.Ledger`, or its stand-in."""

    def captured(self, source: str) -> None: ...
    def dropped(self, source: str, seq: int, cause: str) -> None: ...
    def passed_over(self, source: str, counts: Mapping[str, int]) -> None: ...


class AdmissionControl(Protocol):
    """Gives each source its quota: `daemon.control.admission.Admission`, or its stand-in."""

    def admit(self, source: str, fps: float | None, on_quota: OnQuota, format: VideoFormat) -> Future[None]:
        """Ask for admission; returns at once. The future gets a SourceError if the source is refused."""
        ...

    def release(self, source: str) -> None: ...


class PacketSink(Protocol):
    """Takes packets of watched sources: `daemon.publish.packets.PacketPublisher`, or its stand-in.

    Nobody tells a capture that its packets are wanted: it asks for each.
    """

    def is_watched(self, source: str) -> bool:
        """Whether somebody wants the packets of a source."""
        ...

    def put_packet(self, source: str, session: str, info: PacketInfo, data: bytes) -> None:
        """Take a packet; returns at once."""
        ...


class PacketRecorder(Protocol):
    """Takes packets of recorded sources: `daemon.recording.directory.RingDirectory`, or its stand-in.

    As with a `PacketSink`, a capture asks for each packet.
    """

    def is_recorded(self, source: str) -> bool:
        """Whether the packets of a source are recorded."""
        ...

    def record(self, source: str, session: str, info: PacketInfo, data: ReadableBuffer) -> None:
        """Take a packet, which is copied; returns at once."""
        ...


class PacketTape(Protocol):
    """Where the packets of one source go in a capture process: `daemon.recording.tap.RingTape`. Any thread may use
    it."""

    def use(self, fds: Sequence[int]) -> None:
        """Put packets into these rings from now on, and no more into others.

        Args:
            fds: that the caller closes.

        Raises:
            LookoutError, OSError: one cannot be used; all is as it was.
        """
        ...

    def put(self, session: str, info: PacketInfo, data: ReadableBuffer) -> None: ...
    def close(self) -> None: ...


class SharedRing(Protocol):
    """Memory for packets that processes share.

    Attributes:
        fd: valid as long as this object.
    """

    @property
    def fd(self) -> int: ...


class RecordedPackets(PacketRecorder, Protocol):
    """The daemon's own: it also says where the packets of captures go.

    Attributes:
        rings: of each source that is recorded; another mapping whenever they change.
        make_tape: for a capture process, where it is loaded; None if nothing is ever recorded.
    """

    @property
    def rings(self) -> Mapping[str, Sequence[SharedRing]]: ...
    @property
    def make_tape(self) -> Callable[[], PacketTape] | None: ...


class Announce(Protocol):
    """Publishes a change of a source's state."""

    def __call__(
        self,
        source: str,
        session: str | None,
        state: State,
        reason: str | None,
        retry_in_s: float | None,
        format: VideoFormat | None,
    ) -> None: ...


class WatchedPackets(PacketSink, Protocol):
    """The daemon's own: it also says whose packets are wanted.

    Attributes:
        watched: sources; another set whenever they change.
    """

    @property
    def watched(self) -> frozenset[str]: ...


class NoPackets:
    """Nobody watches."""

    watched: frozenset[str] = frozenset()

    def is_watched(self, source: str) -> bool:  # noqa: ARG002
        return False

    def put_packet(self, source: str, session: str, info: PacketInfo, data: bytes) -> None: ...


NO_PACKETS = NoPackets()


class NoRecorder:
    """Nothing is recorded."""

    rings: Mapping[str, Sequence[SharedRing]] = {}
    make_tape: Callable[[], PacketTape] | None = None

    def is_recorded(self, source: str) -> bool:  # noqa: ARG002
        return False

    def record(self, source: str, session: str, info: PacketInfo, data: ReadableBuffer) -> None: ...


NO_RECORDER = NoRecorder()


@dataclass(frozen=True)
class CaptureSinks:
    """The ports of a capture."""

    board: Board
    ledger: FrameCounters
    announce: Announce
    admission: AdmissionControl
    packets: PacketSink = field(default=NO_PACKETS, kw_only=True)
    recorder: PacketRecorder = field(default=NO_RECORDER, kw_only=True)


class _Detached:
    """Stands in for all ports when another capture has the source: ignores everything."""

    live = True

    def __call__(self, *_: object, **__: object) -> None:
        """Announce."""

    def listen(self, source: str, wake: Callable[[], None]) -> None: ...
    def put(self, frame: Frame, *, give_up: GiveUp | None = None, hold_ns: int = 0) -> bool:  # noqa: ARG002
        return True

    def is_settled(self, source: str) -> bool:  # noqa: ARG002
        return True

    def captured(self, source: str) -> None: ...
    def dropped(self, source: str, seq: int, cause: str) -> None: ...
    def passed_over(self, source: str, counts: Mapping[str, int]) -> None: ...
    def admit(self, source: str, fps: float | None, on_quota: OnQuota, format: VideoFormat) -> Future[None]:  # noqa: ARG002
        return ADMITTED

    def release(self, source: str) -> None: ...


_DETACHED_SINK = _Detached()
DETACHED = CaptureSinks(_DETACHED_SINK, _DETACHED_SINK, _DETACHED_SINK, _DETACHED_SINK)


@dataclass(frozen=True)
class DaemonSinks(CaptureSinks):
    """The daemon's own ports, for all sources.

    Attributes:
        forget: called for a source that is removed.
    """

    board: FrameBoard | ModelBoards
    ledger: Ledger
    forget: Callable[[str], None]
    packets: WatchedPackets = field(default=NO_PACKETS, kw_only=True)
    recorder: RecordedPackets = field(default=NO_RECORDER, kw_only=True)
