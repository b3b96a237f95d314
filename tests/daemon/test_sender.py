"""What a capture process hands over, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import numpy as np
import pytest

from daemon.capture.processes.channel import Channel, pair
from daemon.capture.processes.forwarder import FrameForwarder
from daemon.capture.processes.protocol import (
    DeviceFrame,
    FrameFormat,
    FromCapture,
    HostFrame,
    NewMemory,
    PassedOver,
    PictureSkipped,
    ProcessMessage,
    StateChanged,
    ToCapture,
)
from daemon.capture.processes.sender import FrameSender
from daemon.clock import SystemClock
from daemon.errors import SourceError
from daemon.pipeline.frames import Frame, FrameInfo
from daemon.sources.buffers import HostMemory
from daemon.sources.decode import NoHardwareDecoder
from daemon.sources.leases import BufferPool
from detectors.port import DeviceImage, HostImage
from lookout.messages import FrameClock
from tests.support.descriptors import no_descriptors

_SIZE = 64


class _Place:
    """Where a picture lies that is whole when the test says so."""

    def __init__(self, memory: HostMemory, offset: int) -> None:
        self.memory, self.offset, self.is_ready = memory, offset, True


class _Source:
    """Gives pictures of its own, one place for each."""

    def __init__(self, number: int, sender: FrameSender) -> None:
        self.feed = FrameForwarder(number, sender, live=True, depth=1, slots=4, has_admission=False)
        self._seq = 0
        self._memory = HostMemory(_SIZE * 4)
        self._buffers = BufferPool([_Place(self._memory, _SIZE * number) for number in range(4)])

    def put(self, *, whole: bool = True, size: tuple[int, int] = (8, 4)) -> _Place:
        lease = self._buffers.acquire()
        lease.slot.is_ready = whole
        luma = self._memory.pointer + lease.slot.offset
        image = DeviceImage(luma, luma + 32, 8, *size, False, False, 0, lease)
        info = FrameInfo("cam", "s", self._seq, None, 0, 0, FrameClock("arrival", 0), 0, *size)
        self._seq += 1
        self.feed.put(Frame(info, image))
        return lease.slot


class _Daemon:
    """The other end."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def hears(self, count: int) -> list[ProcessMessage]:
        """That many messages, but for those of memory and of formats."""
        return [message for message in self.hears_all(count) if not isinstance(message, FrameFormat)]

    def hears_all(self, count: int) -> list[ProcessMessage]:
        """The same with the formats, which do not count."""
        heard: list[ProcessMessage] = []
        while sum(not isinstance(message, FrameFormat) for message in heard) < count:
            received = self._channel.receive()
            assert received is not None
            heard += [message for message in received[0] if not isinstance(message, NewMemory)]
        return heard


@contextmanager
def _handing_over() -> Iterator[tuple[FrameSender, _Daemon, Thread]]:
    mine, theirs = pair()
    mine.settimeout(60)
    sender = FrameSender(Channel(theirs, ToCapture), NoHardwareDecoder("none"), SystemClock(), live=True)
    thread = Thread(target=sender.run, daemon=True)
    thread.start()
    try:
        yield sender, _Daemon(Channel(mine, FromCapture)), thread
    finally:
        sender.end()
        mine.close()
        theirs.close()


def _told(messages: list[ProcessMessage]) -> list[tuple[int, object]]:
    return [
        (message.capture, "state" if isinstance(message, StateChanged) else message.seq)
        for message in messages
        if isinstance(message, (DeviceFrame, HostFrame, PictureSkipped, StateChanged))
    ]


def test_a_picture_that_the_gpu_still_copies_holds_up_its_own_source_alone() -> None:
    with _handing_over() as (sender, daemon, _):
        slow, quick = _Source(0, sender), _Source(1, sender)
        late = slow.put(whole=False)
        slow.put()
        slow.feed.dropped("cam", 2, "late")
        slow.feed.announce("cam", "s", "down", None, None, None)
        quick.put()
        quick.put()
        assert _told(daemon.hears(2)) == [(1, 0), (1, 1)]
        late.is_ready = True
        assert _told(daemon.hears(4)) == [(0, 0), (0, 1), (0, 2), (0, "state")]


def test_the_format_of_frames_is_told_when_it_changes() -> None:
    with _handing_over() as (sender, daemon, _):
        one, other = _Source(0, sender), _Source(1, sender)
        for source, size in ((one, (8, 4)), (other, (8, 4)), (one, (8, 4)), (one, (4, 8)), (other, (8, 4))):
            source.put(size=size)
        heard = [
            (message.capture, message.width, message.chroma)
            if isinstance(message, FrameFormat)
            else (message.capture, message.seq)
            for message in daemon.hears_all(5)
            if isinstance(message, (FrameFormat, DeviceFrame))
        ]
        assert heard == [(0, 8, 32), (0, 0), (1, 8, 32), (1, 0), (0, 1), (0, 4, 32), (0, 2), (1, 1)]


def test_all_that_is_known_about_a_frame_arrives() -> None:
    info = FrameInfo("cam", "s", 1, 2, 3, 4, FrameClock("ntp", 5), 6, 8, 4, 7, 1.5, corrupt=True)
    with _handing_over() as (sender, daemon, _):
        feed = FrameForwarder(9, sender, live=True, depth=1, slots=4, has_admission=False)
        feed.put(Frame(info, HostImage(np.zeros((4, 8, 3), np.uint8))))
        format, frame = daemon.hears_all(1)
        assert isinstance(format, FrameFormat)
        assert isinstance(frame, HostFrame)
        assert (format.capture, frame.capture) == (9, 9)
        assert frame.info("cam", format) == info


def test_packets_that_are_passed_over_are_counted_in_the_daemon() -> None:
    with _handing_over() as (sender, daemon, _):
        feed = FrameForwarder(9, sender, live=True, depth=1, slots=4, has_admission=False)
        feed.passed_over("cam", {"no_picture": 2, "other_video": 1})
        assert daemon.hears(1) == [PassedOver(9, {"no_picture": 2, "other_video": 1})]


@pytest.mark.parametrize("behind", [0, 1])
def test_what_is_held_up_at_the_end_is_handed_over_first(behind: int) -> None:
    with _handing_over() as (sender, daemon, thread):
        source = _Source(0, sender)
        late = source.put(whole=False)
        for _ in range(behind):
            source.put()
        sender.end()
        late.is_ready = True
        assert len(daemon.hears(1 + behind)) == 1 + behind
        thread.join(60)
        assert not thread.is_alive()


def test_a_picture_that_there_is_no_memory_for_is_counted() -> None:
    """The connection ends with the reason, to be tried again; its pictures keep their numbers."""
    with _handing_over() as (sender, daemon, _):
        feed = FrameForwarder(0, sender, live=True, depth=1, slots=4, has_admission=False)
        frames = [
            Frame(FrameInfo("cam", "s", seq, None, 0, 0, FrameClock("arrival", 0), 0, 8, 4), HostImage(picture))
            for seq, picture in enumerate([np.zeros((4, 8, 3), np.uint8)] * 2)
        ]
        with no_descriptors(), pytest.raises(SourceError, match="no memory for its pictures: Too many open files"):
            feed.put(frames[0])
        feed.put(frames[1])
        assert _told(daemon.hears(2)) == [(0, 0), (0, 1)]


def test_in_a_burst_one_waits_until_another_has_come_home() -> None:
    """One is looked at and another waits at the daemon: a third would take its place."""
    with _handing_over() as (sender, daemon, _):
        feed, woken = FrameForwarder(0, sender, live=True, depth=16, slots=4, has_admission=False), Event()
        feed.listen("cam", woken.set)
        picture, now = HostImage(np.zeros((4, 8, 3), np.uint8)), SystemClock().monotonic_ns()
        frames = [
            Frame(FrameInfo("cam", "s", seq, None, now, 0, FrameClock("arrival", 0), 0, 8, 4), picture)
            for seq in range(4)
        ]
        hour = 3600 * 10**9
        assert [feed.put(frame, hold_ns=hour) for frame in frames[:3]] == [True, True, False]
        feed.on_returned()
        assert woken.is_set()
        assert feed.put(frames[2], hold_ns=hour)
        assert not feed.put(frames[3], hold_ns=hour)
        assert feed.put(frames[3], hold_ns=1)  # it has waited for long enough, and takes the other's place
        assert _told(daemon.hears(4)) == [(0, 0), (0, 1), (0, 2), (0, 3)]
