"""What a capture process hands over, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from daemon.frames import Frame, FrameInfo
from daemon.leases import Ring
from daemon.messages import FrameClock
from daemon.sources.decoding import NoHardware
from daemon.workers.channel import Captured, Channel, FromCapture, LeftOut, NewBlock, Said, ToCapture, Told, pair
from daemon.workers.memory import HostBlock
from daemon.workers.outlet import Outlet
from detectors.port import DeviceImage

_SIZE = 64


class _Place:
    """Where a picture lies that is whole when the test says so."""

    def __init__(self, block: HostBlock, offset: int) -> None:
        self.block, self.offset, self.is_whole = block, offset, True


class _Source:
    """Gives pictures of its own, one place for each."""

    def __init__(self, name: str, outlet: Outlet) -> None:
        self._name, self._outlet, self._seq = name, outlet, 0
        self._block = HostBlock(_SIZE * 4)
        self._ring = Ring([_Place(self._block, _SIZE * number) for number in range(4)])

    def put(self, *, whole: bool = True) -> _Place:
        lease = self._ring.take()
        lease.place.is_whole = whole
        luma = self._block.pointer + lease.place.offset
        image = DeviceImage(luma, luma + 32, 8, 8, 4, False, False, 0, lease)
        info = FrameInfo(self._name, "s", self._seq, None, 0, 0, FrameClock("arrival", 0), 0, 8, 4)
        self._seq += 1
        self._outlet.put(Frame(info, image))
        return lease.place


class _Daemon:
    """The other end."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def hears(self, count: int) -> list[Told]:
        """That many messages, but for those of memory."""
        heard: list[Told] = []
        while len(heard) < count:
            received = self._channel.receive()
            assert received is not None
            heard += [message for message in received[0] if not isinstance(message, NewBlock)]
        return heard


@contextmanager
def _handing_over() -> Iterator[tuple[Outlet, _Daemon, Thread]]:
    mine, theirs = pair()
    mine.settimeout(60)
    outlet = Outlet(Channel(theirs, ToCapture), ["a", "b"], NoHardware("none"), live=True, depth=1, places=4)
    thread = Thread(target=outlet.run, daemon=True)
    thread.start()
    try:
        yield outlet, _Daemon(Channel(mine, FromCapture)), thread
    finally:
        outlet.end()
        mine.close()
        theirs.close()


def _told(messages: list[Told]) -> list[tuple[str, object]]:
    return [
        (message.info.source, message.info.seq)
        if isinstance(message, Captured)
        else (message.source, message.seq if isinstance(message, LeftOut) else "state")
        for message in messages
        if isinstance(message, (Captured, LeftOut, Said))
    ]


def test_a_picture_that_the_gpu_still_copies_holds_up_its_own_source_alone() -> None:
    with _handing_over() as (outlet, daemon, _):
        slow, quick = _Source("a", outlet), _Source("b", outlet)
        late = slow.put(whole=False)
        slow.put()
        outlet.dropped("a", 2, "late")
        outlet.announce("a", "s", "down", None, None, None)
        quick.put()
        quick.put()
        assert _told(daemon.hears(2)) == [("b", 0), ("b", 1)]
        late.is_whole = True
        assert _told(daemon.hears(4)) == [("a", 0), ("a", 1), ("a", 2), ("a", "state")]


@pytest.mark.parametrize("behind", [0, 1])
def test_what_is_held_up_at_the_end_is_handed_over_first(behind: int) -> None:
    with _handing_over() as (outlet, daemon, thread):
        source = _Source("a", outlet)
        late = source.put(whole=False)
        for _ in range(behind):
            source.put()
        outlet.end()
        late.is_whole = True
        assert len(daemon.hears(1 + behind)) == 1 + behind
        thread.join(60)
        assert not thread.is_alive()
