"""In a capture process: stands in for the daemon, and sends frames, counts and states over the channel."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, cast

import msgspec

from daemon.capture.processes.channel import Channel
from daemon.capture.processes.protocol import (
    MAX_MESSAGES,
    AdmissionReply,
    Connected,
    DeviceFrame,
    Disconnected,
    Ended,
    FrameFormat,
    Heartbeat,
    HostFrame,
    MemoryClosed,
    NewMemory,
    PacketPart,
    PassedOver,
    PictureSkipped,
    ProcessMessage,
    QuotaChanged,
    Returned,
    StateChanged,
)
from daemon.capture.sinks import ADMITTED, OnQuota
from daemon.clock import Clock
from daemon.errors import SourceError
from daemon.pipeline.board import Cause
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.sources.buffers import HostMemory, HostSlot, SharedMemory, view
from daemon.sources.decode import DecoderPool
from daemon.sources.leases import BufferLease, BufferPool
from daemon.sources.port import PacketInfo
from daemon.system.stop import StopToken
from detectors.port import DeviceImage, HostImage
from lookoutd.messages import State, VideoFormat

_POLL_S = 0.001  # between checks of pictures that are not ready
_PART_BYTES = 128 << 10  # of a packet of video; half of a packet of the channel
_MAX_PACKET_BYTES = 8 << 20  # of a source's packets of video that wait to be sent; more are lost
_GATHER_S = 0.002  # live: frames are gathered this long, so that the daemon wakes less often


class _Copied(msgspec.Struct, frozen=True, gc=False):
    """A frame whose picture was copied to shared host memory."""

    info: FrameInfo
    lease: BufferLease[HostSlot]


class _Item(msgspec.Struct, frozen=True, gc=False):
    """A queued message of a feed or of the process."""

    feed: FrameForwarder | None
    content: Frame | _Copied | ProcessMessage


class FrameForwarder:
    """Connects one source to the daemon: implements the ports of `daemon.capture.sinks`.

    Args:
        number: of the capture.
        live: newer frames replace older ones on the daemon's board.
        depth: if not live, limit of outstanding frames; a waiting capture wakes when half of them are returned.
        slots: slots for pictures in host memory.
        has_admission: the daemon admits connections.

    Attributes:
        format: that the daemon was told last; of the thread that sends.
    """

    def __init__(
        self, number: int, sender: FrameSender, *, live: bool, depth: int, slots: int, has_admission: bool
    ) -> None:
        self.number, self.live = number, live
        self._sender, self._depth, self._slots, self._has_admission = sender, depth, slots, has_admission
        self._wake: Callable[[], None] | None = None  # the capture, once it listens
        self._wants_wake = False
        self.format: FrameFormat | None = None
        # Each is written by one thread: the capture's, and the receiving one.
        self._sent = self._returned = 0
        self._last_ns = 0  # capture time of the last frame
        self._buffers: BufferPool[HostSlot] | None = None
        self._buffer_bytes = 0  # of a picture
        self._connections = itertools.count(1)
        self._connection = 0
        self._on_quota: OnQuota | None = None  # of the connection
        self._answer: Future[None] = ADMITTED
        self._is_watched = False
        self._packets_queued = self._packets_sent = 0  # bytes; each is written by one thread

    # --- for the capture -------------------------------------------------------------------------------------------

    def listen(self, source: str, wake: Callable[[], None]) -> None:  # noqa: ARG002
        self._wake = wake

    def put(self, frame: Frame, *, give_up: Cause | None = None, hold_ns: int = 0) -> bool:
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
        item: Frame | _Copied = frame
        if isinstance(frame.image, HostImage):
            try:
                lease = self._copy(frame.image)
            except OSError as error:
                self.dropped("", frame.info.seq, give_up or "superseded")
                raise SourceError(f"no memory for its pictures: {error.strerror}") from error
            if lease is None and not self.live:
                self._wants_wake = True
                return False
            if lease is None:  # the daemon uses all slots: it is overloaded
                self.dropped("", frame.info.seq, "superseded")
                return True
            item = _Copied(frame.info, lease)
        self._sent += 1
        self._last_ns = frame.info.captured_ns
        self._sender.put(_Item(self, item))
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
        self._retire()

    # --- for the thread that sends ---------------------------------------------------------------------------------

    def on_packet_sent(self, size: int) -> None:
        self._packets_sent += size

    # ---------------------------------------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return self._sent - self._returned >= self._depth

    def _would_replace(self, hold_ns: int) -> bool:
        """Whether one frame is being detected and another waits that was captured less than `hold_ns` ago."""
        return self._sent - self._returned > 1 and self._sender.clock.monotonic_ns() - self._last_ns < hold_ns

    def _retire(self) -> None:
        if self._buffers:
            self._sender.retire(self._buffers)
            self._buffers = None

    def _send(self, message: ProcessMessage) -> None:
        """Queue a message behind everything that was queued before."""
        self._sender.put(_Item(self, message))

    def _copy(self, image: HostImage) -> BufferLease[HostSlot] | None:
        """Copy a picture to shared memory; None if no slot is free."""
        size = image.bgr.nbytes
        if self._buffers is None or self._buffer_bytes != size:
            self._retire()
            memory = HostMemory(size * self._slots)
            self._buffers = BufferPool([HostSlot(memory, size * number) for number in range(self._slots)])
            self._buffer_bytes = size
        lease = self._buffers.try_acquire()
        if lease:
            view(lease.slot.memory.pointer + lease.slot.offset, image.bgr.shape)[:] = image.bgr
        return lease


class FrameSender:
    """Sends what feeds queue; `run` is the sending thread.

    A picture that the GPU still copies blocks later messages of its own feed only.

    Args:
        live: see `FrameForwarder`.

    Attributes:
        clock: of all feeds.
    """

    def __init__(self, channel: Channel, decoder_pool: DecoderPool, clock: Clock, *, live: bool) -> None:
        self._channel, self._decoder_pool, self.clock, self._live = channel, decoder_pool, clock, live
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._blocked: dict[FrameForwarder, deque[_Item]] = {}  # begins with a picture that is not ready
        self._pause = StopToken()  # never set: waited on while frames gather
        # Leases of the frames that the daemon has, by memory number and offset.
        self._outstanding: dict[tuple[int, int], tuple[FrameForwarder, object]] = {}
        self._memories: dict[int, SharedMemory] = {}
        self._numbers: dict[int, int] = {}  # by address
        self._next_number = 0
        self._retired: list[BufferPool[HostSlot]] = []
        self._lock = threading.Lock()  # for `_retired`

    def put(self, item: _Item) -> None:
        self._queue.put(item)

    def send(self, message: ProcessMessage) -> None:
        """Queue a message behind everything that was queued before."""
        self._queue.put(_Item(None, message))

    def retire(self, buffers: BufferPool[HostSlot]) -> None:
        """Close a pool's memory once all its slots are returned."""
        with self._lock:
            self._retired.append(buffers)

    # --- for the thread that receives ------------------------------------------------------------------------------

    def on_returned(self, message: Returned) -> None:
        for slot in message.slots:
            feed, _ = self._outstanding.pop(slot)
            feed.on_returned()

    def housekeeping(self) -> None:
        """Every moment: close unused memory, and send a heartbeat."""
        with self._lock:
            free = [buffers for buffers in self._retired if buffers.all_free]
            self._retired = [buffers for buffers in self._retired if buffers not in free]
        for buffers in free:
            buffers.all[0].memory.close()
        for number, memory in list(self._memories.items()):
            if memory.pointer == 0:
                del self._memories[number]
                self.send(MemoryClosed(number))
        self.send(Heartbeat(self._decoder_pool.memory))

    # --- the thread that sends -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `end`, or until the daemon is gone."""
        self._decoder_pool.make_current()
        ending = False
        try:
            while not ending or self._blocked:
                batch: list[ProcessMessage] = []
                for feed in [*self._blocked]:
                    self._flush(feed, batch)
                if ending and not batch:
                    self._wait(_POLL_S)
                elif not ending:
                    ending = self._gather(batch)
                if batch:
                    self._channel.send(batch)
                    if self._live and not ending:
                        self._wait(_GATHER_S)
        except OSError:
            return  # the daemon is gone; the thread that receives ends this process

    def end(self) -> None:
        """Send everything that was queued, then end."""
        self._queue.put(None)

    def _wait(self, seconds: float) -> None:
        self.clock.wait(self._pause, seconds)

    def _gather(self, batch: list[ProcessMessage]) -> bool:
        """Add queued messages, and wait for one if there is nothing else to do; returns whether it was the last."""
        waits = not batch
        if waits and self._blocked and self._live:
            self._wait(_POLL_S)  # do not wake for each frame
            waits = False
        try:
            item = self._queue.get(block=waits, timeout=_POLL_S if self._blocked else None)
            while item is not None:
                self._enqueue(item, batch)
                if len(batch) >= MAX_MESSAGES:
                    return False
                item = self._queue.get_nowait()
        except Empty:
            return False
        return True

    def _enqueue(self, item: _Item, batch: list[ProcessMessage]) -> None:
        """Add a message, unless its feed is blocked."""
        feed = item.feed
        if feed and isinstance(item.content, PacketPart):  # as large as a packet of the channel may be
            self._channel.send([item.content])
            feed.on_packet_sent(len(item.content.data))
        elif feed is None or (feed not in self._blocked and _is_ready(item)):
            self._add(item, batch)
        elif feed in self._blocked:
            self._blocked[feed].append(item)
        else:
            self._blocked[feed] = deque([item])

    def _flush(self, feed: FrameForwarder, batch: list[ProcessMessage]) -> None:
        """Add what is not blocked any more."""
        waiting = self._blocked[feed]
        while waiting and len(batch) < MAX_MESSAGES and _is_ready(waiting[0]):
            self._add(waiting.popleft(), batch)
        if not waiting:
            del self._blocked[feed]

    def _add(self, item: _Item, batch: list[ProcessMessage]) -> None:
        """Add what can be sent."""
        content, feed = item.content, item.feed
        if isinstance(content, ProcessMessage):
            batch.append(content)
            return
        assert feed is not None  # noqa: S101 - every frame has a feed
        if isinstance(content, Frame):
            image = cast("DeviceImage", content.image)
            self._tell_format(feed, content.info, batch, image)
            slot = self._register_outstanding(feed, image.lease, device=True)
            batch.append(DeviceFrame(feed.number, *_of_frame(content.info), *slot))
        else:
            self._tell_format(feed, content.info, batch)
            slot = self._register_outstanding(feed, content.lease, device=False)
            batch.append(HostFrame(feed.number, *_of_frame(content.info), *slot))

    def _tell_format(
        self, feed: FrameForwarder, info: FrameInfo, batch: list[ProcessMessage], image: DeviceImage | None = None
    ) -> None:
        """Add the format of a frame, if it is not that of the frame before."""
        common = feed.number, info.session, info.clock, info.width, info.height, info.pixel_aspect
        if image is None:
            format = FrameFormat(*common)
        else:
            kind = image.pitch, image.bt709, image.full_range, image.turns
            format = FrameFormat(*common, image.chroma - image.luma, *kind)
        if format != feed.format:
            feed.format = format
            batch.append(format)

    def _register_outstanding(self, feed: FrameForwarder, lease: Any, *, device: bool) -> tuple[int, int]:
        """Keep a lease until the daemon returns it; memory number and offset identify it."""
        slot = lease.slot
        key = self._number_of(slot.memory, device=device), slot.offset
        self._outstanding[key] = (feed, lease)
        return key

    def _number_of(self, memory: SharedMemory, *, device: bool) -> int:
        """Number of a memory; new memory is sent first."""
        number = self._numbers.get(memory.pointer)
        if number is None or self._memories.get(number) is not memory:
            number = self._numbers[memory.pointer] = self._next_number
            self._next_number += 1
            self._memories[number] = memory
            self._channel.send([NewMemory(number, memory.size, device)], memory.fd)
        return number


def _of_frame(info: FrameInfo) -> tuple[int, int | None, int, int, int, int, bool]:
    """The fields that differ from frame to frame."""
    return info.seq, info.pts, info.captured_ns, info.captured_at, info.decode, info.lateness, info.corrupt


def _is_ready(item: _Item) -> bool:
    """Whether an item can be sent; messages always can."""
    if not isinstance(item.content, Frame):
        return True
    image: Any = item.content.image
    is_ready: bool = image.lease.slot.is_ready
    return is_ready
