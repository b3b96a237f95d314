"""In a capture process: sends frames, counts and states over the channel."""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import Any, cast

from daemon.capture.processes.channel import Channel
from daemon.capture.processes.forwarder import FrameForwarder, Outgoing
from daemon.capture.processes.protocol import (
    MAX_MESSAGES,
    DeviceFrame,
    FrameFormat,
    Heartbeat,
    HostFrame,
    MemoryClosed,
    NewMemory,
    PacketPart,
    ProcessMessage,
    Returned,
)
from daemon.clock import Clock
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.sources.buffers import HostSlot, SharedMemory
from daemon.sources.decode import DecoderPool
from daemon.sources.leases import BufferPool
from daemon.system.stop_token import StopToken
from detectors.port import DeviceImage

_POLL_S = 0.001  # between checks of pictures that are not ready
_GATHER_S = 0.002  # live: frames are gathered this long, so that the daemon wakes less often


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
        self._queue: SimpleQueue[Outgoing | None] = SimpleQueue()
        self._blocked: dict[FrameForwarder, deque[Outgoing]] = {}  # begins with a picture that is not ready
        self._pause = StopToken()  # never set: waited on while frames gather
        # Leases of the frames that the daemon has, by memory number and offset.
        self._outstanding: dict[tuple[int, int], tuple[FrameForwarder, object]] = {}
        self._memories: dict[int, SharedMemory] = {}
        self._numbers: dict[int, int] = {}  # by address
        self._next_number = 0
        self._retired: list[BufferPool[HostSlot]] = []
        self._lock = threading.Lock()  # for `_retired`

    def put(self, item: Outgoing) -> None:
        self._queue.put(item)

    def send(self, message: ProcessMessage) -> None:
        """Queue a message behind everything that was queued before."""
        self._queue.put(Outgoing(None, message))

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

    def _enqueue(self, item: Outgoing, batch: list[ProcessMessage]) -> None:
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

    def _add(self, item: Outgoing, batch: list[ProcessMessage]) -> None:
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
        if feed.is_news(format):
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


def _is_ready(item: Outgoing) -> bool:
    """Whether an item can be sent; messages always can."""
    if not isinstance(item.content, Frame):
        return True
    image: Any = item.content.image
    is_ready: bool = image.lease.slot.is_ready
    return is_ready
