"""In a capture process, what stands for the daemon: frames, accounts and states go in here and over the channel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from time import sleep
from typing import Any, cast

import msgspec

from daemon.admission import Allowance, Limit
from daemon.errors import DecodeError, SourceError
from daemon.frames import Frame, FrameInfo
from daemon.leases import Lease, Ring
from daemon.messages import State, VideoFormat
from daemon.sources.decoding import Hardware
from daemon.workers.channel import (
    MOST,
    BlockGone,
    Captured,
    CapturedHere,
    Channel,
    Connected,
    Disconnected,
    LeftOut,
    NewBlock,
    Returned,
    Said,
    Told,
    Uses,
)
from daemon.workers.memory import Block, HostBlock, HostPlace, view
from detectors.port import DeviceImage, HostImage

_PATIENCE_S = 10.0
_LOOK_S = 0.001  # between two looks at pictures that are not whole yet
_EVERY_S = 0.002  # live: frames that come closer together go over together, so that all behind wake less often


class _Copied(msgspec.Struct, frozen=True, gc=False):
    """A frame whose picture is in shared host memory by now."""

    info: FrameInfo
    lease: Lease[HostPlace]


_Item = Frame | _Copied | Told


class Outlet:
    """Implements `daemon.capture_port.Board` and `Accounts`; its `run` is the thread that sends.

    A picture that the GPU still copies holds up what comes after it of its own source, and nobody else.

    Args:
        live: newer frames replace older ones, which the board in the daemon's process does.
        depth: otherwise, frames of a source that may be on their way; who waits is told when half of them are home.
        places: pictures of each source in host memory.
    """

    def __init__(
        self, channel: Channel, sources: Sequence[str], hardware: Hardware, *, live: bool, depth: int, places: int
    ) -> None:
        self.live = live
        self._channel, self._hardware, self._depth, self._places = channel, hardware, depth, places
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._held_up: dict[str, deque[_Item]] = {}  # by source; the first is a picture that is not whole
        self._wake: dict[str, Callable[[], None]] = {}
        self._wanted = dict.fromkeys(sources, False)
        # Each counted by one thread: its own, and the one that receives.
        self._sent, self._home = dict.fromkeys(sources, 0), dict.fromkeys(sources, 0)
        self._held: dict[tuple[int, int], tuple[str, object]] = {}
        self._blocks: dict[int, Block] = {}
        self._numbers: dict[int, int] = {}  # of blocks by their address
        self._made = 0
        self._rings: dict[str, tuple[int, Ring[HostPlace]]] = {}  # bytes of a picture
        self._retired: list[Ring[HostPlace]] = []

    def add(self, source: str) -> None:
        """Frames of another source will come."""
        self._wanted.setdefault(source, False)
        self._sent.setdefault(source, 0)
        self._home.setdefault(source, 0)

    # --- for captures ----------------------------------------------------------------------------------------------

    def listen(self, source: str, wake: Callable[[], None]) -> None:
        self._wake[source] = wake

    def put(self, frame: Frame, *, give_up: bool = False) -> bool:
        source = frame.info.source
        if not self.live and self._sent[source] - self._home[source] >= self._depth:
            if give_up:
                self.dropped(source, frame.info.seq, "shutdown")
                return True
            self._wanted[source] = True
            if self._sent[source] - self._home[source] >= self._depth:  # none has come home since
                return False
        item: _Item = frame
        if isinstance(frame.image, HostImage):
            try:
                item = _Copied(frame.info, self._shared(source, frame.image))
            except DecodeError:  # the daemon has not let go of any for seconds: it takes no frames now
                self.dropped(source, frame.info.seq, "superseded")
                return True
        self._sent[source] += 1
        self._queue.put(item)
        return True

    def is_settled(self, source: str) -> bool:
        self._wanted[source] = True
        return self._sent[source] == self._home[source]

    def captured(self, source: str) -> None:
        """The daemon counts a frame when it has it, and a picture left out when it hears of it."""

    def dropped(self, source: str, seq: int, cause: str) -> None:
        self.tell(LeftOut(source, seq, cause))

    def announce(
        self,
        source: str,
        session: str | None,
        state: State,
        reason: str | None,
        retry_in_s: float | None,
        format: VideoFormat | None,
    ) -> None:
        self.tell(Said(source, session, state, reason, retry_in_s, format))

    def tell(self, message: Told) -> None:
        """After everything that was put here before."""
        self._queue.put(message)

    # --- for the thread that receives ------------------------------------------------------------------------------

    def returned(self, message: Returned) -> None:
        for place in message.places:
            source, _ = self._held.pop(place)
            self._home[source] += 1
            if self._wanted[source] and self._sent[source] - self._home[source] <= self._depth // 2:
                self._wanted[source] = False
                self._wake[source]()

    def look_around(self) -> None:
        """Every moment: memory that is not used any more, and what decoders take."""
        for ring in [ring for ring in self._retired if ring.is_home]:
            self._retired.remove(ring)
            ring.all[0].block.close()
        for number, block in list(self._blocks.items()):
            if block.pointer == 0:
                del self._blocks[number]
                self.tell(BlockGone(number))
        self.tell(Uses(self._hardware.memory))

    # --- the thread that sends -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `end`, or until nobody receives."""
        self._hardware.use()
        ending = False
        try:
            while not ending or self._held_up:
                batch: list[Told] = []
                for source in [*self._held_up]:
                    self._let_go(source, batch)
                if ending and not batch:
                    sleep(_LOOK_S)
                elif not ending:
                    ending = self._gather(batch)
                if batch:
                    self._channel.send(batch)
                    if self.live and not ending:
                        sleep(_EVERY_S)
        except OSError:
            return  # the daemon is gone; whoever receives ends this process

    def end(self) -> None:
        """Everything put here before is sent, and then no more."""
        self._queue.put(None)

    def _gather(self, batch: list[Told]) -> bool:
        """Add what has been put here, waiting for it where there is nothing else to do; whether it was the last."""
        waits = not batch
        if waits and self._held_up and self.live:
            sleep(_LOOK_S)  # not to be woken by each frame that comes meanwhile
            waits = False
        try:
            item = self._queue.get(block=waits, timeout=_LOOK_S if self._held_up else None)
            while item is not None:
                self._sort_in(item, batch)
                if len(batch) >= MOST:
                    return False
                item = self._queue.get_nowait()
        except Empty:
            return False
        return True

    def _sort_in(self, item: _Item, batch: list[Told]) -> None:
        """Add it, unless something of its source is to come before."""
        source = _source_of(item)
        if source in self._held_up:
            self._held_up[source].append(item)
        elif source is None or _is_whole(item):
            batch.append(self._message(item))
        else:
            self._held_up[source] = deque([item])

    def _let_go(self, source: str, batch: list[Told]) -> None:
        """Add what is not held up any more."""
        line = self._held_up[source]
        while line and len(batch) < MOST and _is_whole(line[0]):
            batch.append(self._message(line.popleft()))
        if not line:
            del self._held_up[source]

    def _message(self, item: _Item) -> Told:
        if isinstance(item, Frame):
            info, image = item.info, cast("DeviceImage", item.image)
            block, offset = self._lent(info.source, image.lease, device=True)
            chroma = image.chroma - image.luma
            return Captured(info, block, offset, chroma, image.pitch, image.bt709, image.full_range)
        if isinstance(item, Told):
            return item
        return CapturedHere(item.info, *self._lent(item.info.source, item.lease, device=False))

    def _lent(self, source: str, lease: Any, *, device: bool) -> tuple[int, int]:
        """Its `Place` is held until the daemon gives it back; by what it knows it: block and offset."""
        place = lease.place
        where = self._number(place.block, device=device), place.offset
        self._held[where] = (source, lease)
        return where

    def _number(self, block: Block, *, device: bool) -> int:
        """Of a block; the other end is told of a new one."""
        number = self._numbers.get(block.pointer)
        if number is None or self._blocks.get(number) is not block:
            number = self._numbers[block.pointer] = self._made
            self._made += 1
            self._blocks[number] = block
            self._channel.send([NewBlock(number, block.size, device)], block.fd)
        return number

    def _shared(self, source: str, image: HostImage) -> Lease[HostPlace]:
        """A copy where the daemon sees it."""
        size = image.bgr.nbytes
        known, ring = self._rings.get(source, (0, None))
        if ring is None or known != size:
            if ring:
                self._retired.append(ring)
            block = HostBlock(size * self._places)
            ring = Ring([HostPlace(block, size * number) for number in range(self._places)])
            self._rings[source] = (size, ring)
        lease = ring.take()
        view(lease.place.block.pointer + lease.place.offset, image.bgr.shape)[:] = image.bgr
        return lease


def _source_of(item: _Item) -> str | None:
    return item.info.source if isinstance(item, (Frame, _Copied)) else getattr(item, "source", None)


def _is_whole(item: _Item) -> bool:
    """A message always is."""
    if not isinstance(item, Frame):
        return True
    image: Any = item.image
    whole: bool = image.lease.place.is_whole
    return whole


class RemoteAdmission:
    """Stands for `daemon.admission.Admission`, which is asked over the channel.

    Args:
        measured: frames a second that the detector does; None where everybody is let in.
    """

    def __init__(self, outlet: Outlet, measured: float | None) -> None:
        self._outlet, self._measured = outlet, measured
        self._limits: dict[str, Limit] = {}
        self._answers: dict[str, SimpleQueue[str | None]] = {}

    def enter(self, source: str, fps: float | None, limit: Limit, format: VideoFormat) -> None:
        self._limits[source], self._answers[source] = limit, SimpleQueue()
        self._outlet.tell(Connected(source, fps, format))
        if self._measured is None:
            return
        try:
            refusal = self._answers[source].get(timeout=_PATIENCE_S)
        except Empty:
            refusal = "the daemon does not answer"
        if refusal is not None:
            raise SourceError(refusal)

    def leave(self, source: str) -> None:
        self._outlet.tell(Disconnected(source))

    def answer(self, source: str, refusal: str | None) -> None:
        if answers := self._answers.get(source):
            answers.put(refusal)

    def share(self, source: str, allowance: Allowance) -> None:
        if limit := self._limits.get(source):
            limit(allowance)
