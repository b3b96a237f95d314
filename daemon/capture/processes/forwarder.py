"""In a capture process: the daemon, as one source sees it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

import msgspec

from daemon.capture.processes.protocol import (
    AdmissionReply,
    Connected,
    Disconnected,
    Ended,
    FrameFormat,
    PacketPart,
    PassedOver,
    PictureSkipped,
    ProcessMessage,
    QuotaChanged,
    StateChanged,
)
from daemon.capture.processes.slots import SharedSlots
from daemon.capture.sinks import ADMITTED, OnQuota
from daemon.clock import Clock
from daemon.errors import SourceError
from daemon.pipeline.drop_causes import GiveUp
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.sources.buffers import HostSlot
from daemon.sources.leases import BufferLease, BufferPool
from daemon.sources.port import PacketInfo
from detectors.port import HostImage
from lookout.messages import State, VideoFormat

_PART_BYTES = 128 << 10  # of a packet of video; half of a packet of the channel
_MAX_PACKET_BYTES = 8 << 20  # of a source's packets of video that wait to be sent; more are lost


class CopiedFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame whose picture was copied to shared host memory."""

    info: FrameInfo
    lease: BufferLease[HostSlot]


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A queued message of a source or of the process."""

    feed: FrameForwarder | None
    content: Frame | CopiedFrame | ProcessMessage


class OutgoingQueue(Protocol):
    """Sends what sources queue: `daemon.capture.processes.sender.FrameSender`.

    Attributes:
        clock: of all sources.
    """

    @property
    def clock(self) -> Clock: ...
    def put(self, item: Outgoing) -> None: ...
    def retire(self, buffers: BufferPool[HostSlot]) -> None:
        """Close a pool's memory once all its slots are returned."""
        ...


class FrameForwarder:
    """Connects one source to the daemon: implements the ports of `daemon.capture.sinks`.

    Args:
        number: of the capture.
        live: newer frames replace older ones on the daemon's board.
        depth: if not live, limit of outstanding frames; a waiting capture wakes when half of them are returned.
        slots: slots for pictures in host memory.
        has_admission: the daemon admits connections.
    """

    def __init__(
        self, number: int, sender: OutgoingQueue, *, live: bool, depth: int, slots: int, has_admission: bool
    ) -> None:
        self.number, self.live = number, live
        self._sender, self._depth, self._has_admission = sender, depth, has_admission
        self._wake: Callable[[], None] | None = None  # the capture, once it listens
        self._wants_wake = False
        self._format: FrameFormat | None = None  # that the daemon was told last; of the thread that sends
        # Each is written by one thread: the capture's, and the receiving one.
        self._sent = self._returned = 0
        self._last_ns = 0  # capture time of the last frame
        self._slots = SharedSlots(slots, sender.retire)
        self._connections = itertools.count(1)
        self._connection = 0
        self._on_quota: OnQuota | None = None  # of the connection
        self._answer: Future[None] = ADMITTED
        self._is_watched = False  # its packets are wanted
        self._packets_queued = self._packets_sent = 0  # bytes; each is written by one thread

    # --- for the capture -------------------------------------------------------------------------------------------

    def listen(self, source: str, wake: Callable[[], None]) -> None:  # noqa: ARG002
        self._wake = wake

    def put(self, frame: Frame, *, give_up: GiveUp | None = None, hold_ns: int = 0) -> bool:
        if self.live and not give_up and self._would_replace(hold_ns):
            self._wants_wake = True
            if self._would_replace(hold_ns):  # none was returned meanwhile
                return False
        if not self.live and self._is_full():
            if give_up:
                self.dropped("", frame.info.seq, give_up)
                return True
            self._wants_wake = True
            if self._is_full():  # none was returned meanwhile
                return False
        item: Frame | CopiedFrame = frame
        if isinstance(frame.image, HostImage):
            try:
                lease = self._slots.copy(frame.image)
            except OSError as error:
                self.dropped("", frame.info.seq, give_up or "superseded")
                raise SourceError(f"no memory for its pictures: {error.strerror}") from error
            if lease is None and not self.live:
                self._wants_wake = True
                return False
            if lease is None:  # the daemon uses all slots: it is overloaded
                self.dropped("", frame.info.seq, "superseded")
                return True
            item = CopiedFrame(frame.info, lease)
        self._sent += 1
        self._last_ns = frame.info.captured_ns
        self._sender.put(Outgoing(self, item))
        return True

    def is_settled(self, source: str) -> bool:  # noqa: ARG002
        self._wants_wake = True
        return self._sent == self._returned

    def captured(self, source: str) -> None:
        """The daemon counts frames and skipped pictures when it receives them."""

    def dropped(self, source: str, seq: int, cause: str) -> None:  # noqa: ARG002
        self._send(PictureSkipped(self.number, seq, cause))

    def passed_over(self, source: str, counts: Mapping[str, int]) -> None:  # noqa: ARG002
        self._send(PassedOver(self.number, dict(counts)))

    def announce(
        self,
        source: str,  # noqa: ARG002
        session: str | None,
        state: State,
        reason: str | None,
        retry_in_s: float | None,
        format: VideoFormat | None,
    ) -> None:
        self._send(StateChanged(self.number, session, state, reason, retry_in_s, format))

    def admit(self, source: str, fps: float | None, on_quota: OnQuota, format: VideoFormat) -> Future[None]:  # noqa: ARG002
        self._on_quota, self._connection = on_quota, next(self._connections)
        self._answer = Future() if self._has_admission else ADMITTED
        answer = self._answer
        self._send(Connected(self.number, self._connection, fps, format))
        return answer

    def release(self, source: str) -> None:  # noqa: ARG002
        self._on_quota = None
        self._send(Disconnected(self.number))

    def is_watched(self, source: str) -> bool:  # noqa: ARG002
        return self._is_watched

    def put_packet(self, source: str, session: str, info: PacketInfo, data: bytes) -> None:  # noqa: ARG002
        if self._packets_queued - self._packets_sent + len(data) > _MAX_PACKET_BYTES:
            data = b""  # the daemon counts it as lost
        self._packets_queued += len(data)
        last = max(0, (len(data) - 1) // _PART_BYTES * _PART_BYTES)
        for at in range(0, last, _PART_BYTES):
            self._send(PacketPart(self.number, session, None, data[at : at + _PART_BYTES]))
        self._send(PacketPart(self.number, session, info, data[last:]))

    # --- for the thread that receives ------------------------------------------------------------------------------

    def watch(self, *, on: bool) -> None:
        """Whether the packets are wanted."""
        self._is_watched = on

    def on_returned(self) -> None:
        """The daemon has returned a frame."""
        self._returned += 1
        if self._wants_wake and self._sent - self._returned <= self._depth // 2:
            self._wants_wake = False
            if self._wake is not None:
                self._wake()

    def on_admission_reply(self, message: AdmissionReply) -> None:
        if message.connection == self._connection and not self._answer.done():
            if message.refusal is None:
                self._answer.set_result(None)
            else:
                self._answer.set_exception(SourceError(message.refusal))

    def on_quota_changed(self, message: QuotaChanged) -> None:
        on_quota = self._on_quota
        if message.connection == self._connection and on_quota is not None:
            on_quota(message.quota)

    def end(self, failure: str | None) -> None:
        """The source has ended; its memory is closed once the daemon has returned it."""
        self._send(Ended(self.number, failure))
        self._slots.retire()

    # --- for the thread that sends ---------------------------------------------------------------------------------

    def on_packet_sent(self, size: int) -> None:
        self._packets_sent += size

    def is_news(self, format: FrameFormat) -> bool:
        """Whether the frames have another format now, which the daemon is then told."""
        before, self._format = self._format, format
        return before != format

    # ---------------------------------------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return self._sent - self._returned >= self._depth

    def _would_replace(self, hold_ns: int) -> bool:
        """Whether one frame is being detected and another waits that was captured less than `hold_ns` ago."""
        return self._sent - self._returned > 1 and self._sender.clock.monotonic_ns() - self._last_ns < hold_ns

    def _send(self, message: ProcessMessage) -> None:
        """Queue a message behind everything that was queued before."""
        self._sender.put(Outgoing(self, message))
