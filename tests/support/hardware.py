"""A stand-in for the GPU's decoder: FFmpeg decodes into host memory that is described as device memory."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
from av.codec.context import CodecContext
from av.packet import Packet
from av.video.frame import VideoFrame
from msgspec import structs

from daemon.clock import Clock
from daemon.sources.buffers import HostMapper, HostMemory, HostSlot, view
from daemon.sources.decode import UnsuitableError
from daemon.sources.leases import BufferPool
from daemon.sources.nvdec.capability import Capability, SizeLimits
from daemon.sources.nvdec.costs import decoder_bytes, picture_bytes
from daemon.sources.nvdec.pool import NvdecPool
from daemon.sources.nvdec.port import LoadablePicture, NeedsTurnError, NoRoomError
from daemon.sources.nvdec.upload import interleave
from detectors.port import DetectorError, DeviceImage, HostImage, Image

ANY = SizeLimits((16, 16), (8192, 8192))
CAPABILITY = Capability(7, {"h264": ANY, "hevc": ANY, "vp9": ANY, "mjpeg": ANY})


class FakeSession:
    """See `daemon.sources.nvdec.port.DecoderSession`. Like a real session it overwrites its pictures at the next call.

    Args:
        refuse: error for every packet, None to decode.
        dpb_size: pictures in its picture buffer, None for the usual number.
        has_turn: whether a decoder may be opened now.
        has_room: whether the driver has room for it.
        changes: whether the driver changes its decoder to another size.

    Attributes:
        drained: how often it was.
        opened: how many decoders the driver was asked for.
    """

    def __init__(
        self,
        codec: str,
        low_latency: bool,
        surfaces: int,
        refuse: str | None = None,
        dpb_size: int | None = None,
        has_turn: Callable[[], bool] = lambda: True,
        has_room: Callable[[], bool] = lambda: True,
        changes: bool = True,
    ) -> None:
        self._changes, self._form = changes, (0, 0)
        self._has_turn, self._has_room, self.room = has_turn, has_room, (0, 0)
        self._memories: list[tuple[HostMemory, BufferPool[HostSlot]]] = []
        self._size = (0, 0)
        self._codec, self._low_latency, self._surfaces, self._refuse = codec, low_latency, surfaces, refuse
        self._dpb_size = dpb_size
        self._call = self.drained = self.opened = 0
        self.closed = False
        self._open()

    def make_current(self) -> None:
        """Any thread may use it."""

    def can_begin(self) -> bool:
        return self.room != (0, 0) or self._has_turn()

    def decode(self, address: int, size: int, time: int | None) -> list[LoadablePicture]:
        assert not self.closed
        if self._refuse:
            raise UnsuitableError(self._refuse)
        if not self.opened and not self._has_room():
            raise NoRoomError
        self._call += 1
        packet: Packet[Any] = Packet(ctypes.string_at(address, size))
        packet.pts = time
        try:
            return self._found(self._context.decode(packet))
        except av.error.FFmpegError:
            return []  # silently, as the GPU does
        finally:
            self._fit((self._context.width, self._context.height))

    def _fit(self, size: tuple[int, int]) -> None:
        """Open another decoder where the one that there is does not serve."""
        has_room = size[0] <= self.room[0] and size[1] <= self.room[1]
        if not (has_room and (self._changes or size in (self._form, (0, 0)))):
            if self._low_latency and self.opened:
                raise NeedsTurnError
            self.room, self.opened = size, self.opened + 1
        self._form = size

    def drain(self) -> list[LoadablePicture]:
        self._call += 1
        self.drained += 1
        found = self._found(self._context.decode(None))
        self._open()
        return found

    @property
    def memory_bytes(self) -> int:
        size = self._context.width, self._context.height
        if not all(size):
            return 0
        more = decoder_bytes(self._codec, *self.room, 0, low_latency=self._low_latency, dpb_size=self._dpb_size)
        return more + self._surfaces * picture_bytes(*size)

    @property
    def all_free(self) -> bool:
        return all(buffers.all_free for _, buffers in self._memories)

    def close(self) -> None:
        assert self.all_free
        self.closed = True
        for memory, _ in self._memories:
            memory.close()

    def _open(self) -> None:
        self._context: Any = CodecContext.create(self._codec, "r")
        self._context.thread_count = 1

    def _found(self, frames: list[VideoFrame]) -> list[LoadablePicture]:
        call = self._call
        return [(partial(self._load, frame, call), frame.pts) for frame in frames]

    def _load(self, frame: VideoFrame, call: int, bt709: bool, full_range: bool) -> DeviceImage:
        assert call == self._call, "the picture is overwritten by now"
        width, height = frame.width, frame.height
        size = width * height * 3 // 2
        if self._size != (width, height):
            self._size, memory = (width, height), HostMemory(size * self._surfaces)
            slots = [HostSlot(memory, size * number) for number in range(self._surfaces)]
            self._memories.append((memory, BufferPool(slots)))
        memory, buffers = self._memories[-1]
        lease = buffers.acquire()
        luma = memory.pointer + lease.slot.offset
        view(luma, (height * 3 // 2, width))[:] = frame.to_ndarray(format="nv12")
        return DeviceImage(luma, luma + width * height, width, width, height, bt709, full_range, 0, lease)


class FakeTarget:
    """See `daemon.sources.nvdec.port.UploadTarget`."""

    def __init__(self, surfaces: int, width: int, height: int) -> None:
        self._pitch, self._height = -(-width // 2) * 2, height
        self._rows = height + -(-height // 2)
        size = self._pitch * self._rows
        self._memory = HostMemory(size * surfaces)
        self._buffers = BufferPool([HostSlot(self._memory, size * number) for number in range(surfaces)])
        self.closed = False

    def put(self, frame: VideoFrame, bt709: bool, full_range: bool) -> DeviceImage:
        lease = self._buffers.acquire()
        luma = self._memory.pointer + lease.slot.offset
        interleave(frame, view(luma, (self._rows, self._pitch)))
        chroma = luma + self._pitch * self._height
        return DeviceImage(luma, chroma, self._pitch, frame.width, frame.height, bt709, full_range, 0, lease)

    @property
    def all_free(self) -> bool:
        return self._buffers.all_free

    def close(self) -> None:
        assert self.all_free
        self.closed = True
        self._memory.close()


class FakeGpu:
    """A pool of fake sessions, which tests can inspect; see `daemon.sources.nvdec.port.DecoderDevice`.

    Args:
        room: decoders that the driver takes, None for no limit.
        changes: see `FakeSession`.
    """

    threads = 4

    def __init__(
        self,
        surfaces: int = 4,
        limit: int | None = None,
        refuse: str | None = None,
        capability: Capability = CAPABILITY,
        full: bool = False,
        dpb_size: int | None = None,
        has_turn: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
        room: int | None = None,
        changes: bool = True,
    ) -> None:
        self._has_turn, self._room, self._changes = has_turn, room, changes
        self._full, self._dpb_size = full, dpb_size
        self.sessions: deque[FakeSession] = deque()
        self.surfaces, self._refuse = surfaces, refuse
        self.targets: list[FakeTarget] = []
        self.pool = NvdecPool(capability, self, limit, clock)

    @property
    def opened(self) -> int:
        """How many decoders the driver was asked for."""
        return sum(session.opened for session in self.sessions)

    def make_current(self) -> None:
        """Any thread may use it."""

    def close(self) -> None:
        """Nothing is held."""

    def open_session(self, codec: str, low_latency: bool) -> FakeSession:
        more = self._refuse, self._dpb_size, self._has_turn, self._has_room, self._changes
        made = FakeSession(codec, low_latency, self.surfaces, *more)
        self.sessions.append(made)
        return self.sessions[-1]

    def _has_room(self) -> bool:
        return self._room is None or sum(not row.closed and row.opened > 0 for row in self.sessions) < self._room

    def open_target(self, width: int, height: int) -> FakeTarget:
        if self._full:
            raise DetectorError("out of memory")
        self.targets.append(FakeTarget(self.surfaces, width, height))
        return self.targets[-1]


@dataclass(frozen=True)
class FakeBackend:
    """A fake GPU for capture processes; see `daemon.sources.decode.DecoderBackend`."""

    surfaces: int = 5
    sessions: int | None = None
    refusal: str | None = None
    share: float = 0.01

    def without_decoder(self, reason: str) -> FakeBackend:
        return replace(self, refusal=reason)

    def open(self, part: float | None = None) -> NvdecPool:
        return FakeGpu(self.surfaces, capability=structs.replace(CAPABILITY, refusal=self.refusal)).pool

    def mapper(self) -> HostMapper:
        return HostMapper()

    def estimate(self, codec: str, width: int, height: int, fps: float, *, low_latency: bool) -> tuple[float, int]:
        return self.share, 1 << 20


def bgr_of(image: Image) -> npt.NDArray[np.uint8]:
    """The pixels of a picture, in host memory even if it claims to be on a device."""
    if isinstance(image, HostImage):
        return image.bgr
    size = image.width * image.height * 3 // 2
    raw = np.frombuffer(ctypes.string_at(image.luma, size), np.uint8).reshape(image.height * 3 // 2, image.width)
    return np.asarray(cv2.cvtColor(raw, cv2.COLOR_YUV2BGR_NV12), dtype=np.uint8)
