"""One hardware decoder with its CUDA stream and its surfaces."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from math import ceil
from time import perf_counter, sleep

import av
import msgspec

from daemon.errors import DecodeError, PoisonedError
from daemon.sources.decode import UnsuitableError
from daemon.sources.nvdec.capability import Capability, SizeLimits
from daemon.sources.nvdec.costs import decoder_bytes, mapped_pictures, picture_bytes
from daemon.sources.nvdec.nvcuvid import (
    CODECS,
    OUT_OF_MEMORY,
    DisplayedPicture,
    NvdecError,
    StreamDecoder,
    caps,
    refuses_changes,
)
from daemon.sources.nvdec.port import LoadablePicture, NeedsTurnError, NoRoomError
from daemon.sources.nvdec.surfaces import Surface, Surfaces
from daemon.system.turns import Turns
from detectors.cuda import CudaError, Device, DeviceBuffer, SharedBuffer, Stream
from detectors.port import DeviceImage

_THREADS_PER_ENGINE = 0.4
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.0005, 0.03  # pause before the first status check
_PAUSE_SHRINK = 0.95  # of that pause, if the first check finds the picture done
_STEP_S, _PAUSE_GROWTH = 0.001, 1.5  # pause between further checks
_DECODE_TIMEOUT_S = 5.0


class Engines:
    """A GPU's decoding engines, which all sessions share.

    Args:
        shared: pictures lie in memory that another process can map.

    Attributes:
        device: the GPU.
        threads: the number of threads that keep all engines busy.
        turns: to open decoders, and this process's context.
    """

    def __init__(self, device: int, *, shared: bool = False, turns: Turns | None = None) -> None:
        self._index, self._shared = device, shared
        self.turns = turns or Turns()
        with ExitStack() as undo, self.turns.taken():
            undo.callback(self.turns.close)
            self.device = Device(device)
            undo.pop_all()
        # A thread serves several sessions, each with pictures in flight: few threads keep all engines busy.
        self.threads = ceil(_THREADS_PER_ENGINE * max(1, caps("h264").engines))

    def capability(self) -> Capability:
        """The codecs and picture sizes that the engines decode."""
        found = {name: caps(name) for name in CODECS}
        limits = {
            name: SizeLimits((row.width_min, row.height_min), (row.width_max, row.height_max))
            for name, row in found.items()
            if row.supported
        }
        return Capability(max((row.engines for row in found.values()), default=0), limits)

    def session(self, codec: str, *, low_latency: bool, surfaces: int) -> NvdecSession:
        """Open a session on the calling thread."""
        self.device.make_current()
        return NvdecSession(self, codec, low_latency, surfaces)

    def memory(self, size: int) -> DeviceBuffer | SharedBuffer:
        """Allocate GPU memory for pictures."""
        return SharedBuffer(self._index, size) if self._shared else DeviceBuffer(size)

    def close(self) -> None:
        self.turns.close()
        self.device.close()


class NvdecSession:
    """See `daemon.sources.nvdec.port.DecoderSession`.

    A picture is copied out of the decoder's memory on this session's stream. A later picture unmaps it once the copy is
    done, so no thread waits for a copy. While a picture is not decoded yet the thread sleeps, as long as most pictures
    took: a thread that waits inside the driver is woken by every picture of every session, and must take the GIL each
    time.
    """

    def __init__(self, engines: Engines, codec: str, low_latency: bool, surfaces: int) -> None:
        self._engines, self._surface_count = engines, surfaces
        self._codec, self._low_latency = codec, low_latency
        self._surfaces: Surfaces | None = None
        self._left: list[Surfaces] = []  # of another size, whose pictures may still be in use
        self._mapped: deque[tuple[int, Surface]] = deque()
        self._turn: AbstractContextManager[bool] | None = None  # taken before it is needed
        self._is_drained = False
        self._pause_s, self._begun = 0.0, 0.0
        self._max_pause_s = _MAX_PAUSE_S if low_latency else 0.0
        self._max_mapped = mapped_pictures(low_latency=low_latency)
        self._closed = False
        with ExitStack() as undo:
            self._stream = Stream()
            undo.callback(self._stream.close)
            self._decoder = StreamDecoder(
                codec,
                self._stream.handle,
                low_latency=low_latency,
                mapped=self._max_mapped,
                turn=self._taken_turn,
            )
            undo.pop_all()

    def make_current(self) -> None:
        self._engines.device.make_current()

    def can_begin(self) -> bool:
        if not (self._decoder.is_made or self._turn):
            self._turn = self._engines.turns.taken_if_free()
        return self._decoder.is_made or self._turn is not None

    def decode(self, address: int, size: int, time: int | None) -> list[LoadablePicture]:
        try:
            if self._is_drained:  # the next stream may change the decoder
                self._is_drained = False
                self._unmap_all()
            found = self._decoder.parse(address, size, time)
        except (CudaError, NvdecError) as error:
            raise _unsuitable(error) from error
        finally:
            self._leave_turn()
        self._begun = perf_counter()  # after the first call, which creates the decoder and may wait for others
        return self._loadable(found)

    def decode_bytes(self, data: bytes) -> list[LoadablePicture]:
        """Decode an access unit in Python's memory."""
        packet = av.Packet(data)
        return self.decode(packet.buffer_ptr, packet.buffer_size, None)

    def drain(self) -> list[LoadablePicture]:
        self._leave_turn()
        self._is_drained = True
        try:
            return self._loadable(self._decoder.drain())
        except NvdecError as error:
            raise _unsuitable(error) from error

    def _loadable(self, pictures: list[DisplayedPicture]) -> list[LoadablePicture]:
        return [(partial(self._load, number), time) for number, time in pictures]

    @property
    def memory_bytes(self) -> int:
        width, height, dpb_size = self._decoder.room
        if not self._decoder.has_picture:
            return 0
        decoder = decoder_bytes(self._codec, width, height, 0, low_latency=self._low_latency, dpb_size=dpb_size)
        return decoder + self._surface_count * picture_bytes(*self._decoder.size)

    @property
    def room(self) -> tuple[int, int]:
        return (0, 0) if refuses_changes() else self._decoder.room[:2]

    @property
    def all_free(self) -> bool:
        return all(surfaces.all_free for surfaces in (self._surfaces, *self._left) if surfaces)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._leave_turn()
        self._engines.device.make_current()
        self._unmap_all()
        self._decoder.close()
        for surfaces in (self._surfaces, *self._left):
            if surfaces:
                surfaces.close()
        self._stream.close()

    def _taken_turn(self) -> AbstractContextManager[bool]:
        """The turn that was taken before, or the wait for one.

        Raises:
            NeedsTurnError: it is for another decoder of a live source, whose packets must be read meanwhile.
        """
        turn, self._turn = self._turn, None
        if turn is None and self._low_latency and self._decoder.is_made:
            raise NeedsTurnError
        return turn or self._engines.turns.taken()

    def _leave_turn(self) -> None:
        if self._turn:
            with self._taken_turn():
                pass

    def _load(self, number: int, bt709: bool, full_range: bool) -> DeviceImage:
        try:
            self._wait_for(number)
            corrupt = self._decoder.found_errors
            surfaces = self._fitting_surfaces()
            lease = surfaces.acquire()
            surface = lease.slot
            self._unmap_copied()
            source = self._decoder.map(number)
            self._mapped.append((source[0], surface))
            self._stream.copy_rows((surface.pointer, surfaces.pitch), source, surfaces.pitch, surfaces.rows)
            surface.event.record(self._stream)
        except (CudaError, NvdecError) as error:
            raise _decode_error(error) from error
        image = surfaces.image(lease, bt709, full_range)
        return msgspec.structs.replace(image, corrupt=True) if corrupt else image

    def _wait_for(self, number: int) -> None:
        """Sleep until a picture is decoded.

        Each status check costs time. The pause before the first check therefore grows until one check is enough for
        most pictures. Where the decoder queues for throughput most pictures are done at the first check.
        """
        if self._pause_s > _MIN_PAUSE_S:
            sleep(self._pause_s)
        if self._decoder.is_done(number):
            self._pause_s *= _PAUSE_SHRINK
            return
        self._pause_s = min(self._pause_s + _STEP_S, self._max_pause_s)
        step = _STEP_S
        sleep(step)
        while not self._decoder.is_done(number):
            if perf_counter() - self._begun > _DECODE_TIMEOUT_S:
                raise DecodeError(f"the GPU has not decoded a picture in {_DECODE_TIMEOUT_S:g} s")
            step *= _PAUSE_GROWTH
            sleep(step)

    def _unmap_copied(self) -> None:
        while self._mapped and (self._mapped[0][1].is_ready or len(self._mapped) >= self._max_mapped):
            pointer, surface = self._mapped.popleft()
            if not surface.is_ready:
                self._stream.synchronize()
            self._decoder.unmap(pointer)

    def _unmap_all(self) -> None:
        if self._mapped:
            self._stream.synchronize()
        while self._mapped:
            self._decoder.unmap(self._mapped.popleft()[0])

    def _fitting_surfaces(self) -> Surfaces:
        """Those of the stream's size, which is known with the first picture."""
        width, height = size = self._decoder.size
        if self._surfaces and self._surfaces.size != size:
            self._left.append(self._surfaces)
            self._surfaces = None
        if self._left:
            self._close_left()
        if self._surfaces is None:
            self._surfaces = Surfaces(self._engines.memory, self._surface_count, width, height)
        return self._surfaces

    def _close_left(self) -> None:
        """Close surfaces of other sizes that nobody uses any more."""
        for surfaces in [surfaces for surfaces in self._left if surfaces.all_free]:
            self._left.remove(surfaces)
            surfaces.close()


def _decode_error(error: CudaError | NvdecError) -> DecodeError | PoisonedError:
    """The error that ends one picture, or the whole process."""
    return PoisonedError(str(error)) if error.sticky else DecodeError(str(error))


def _unsuitable(error: CudaError | NvdecError) -> UnsuitableError | PoisonedError:
    if error.sticky:
        return PoisonedError(str(error))
    if isinstance(error, NvdecError) and error.code == OUT_OF_MEMORY:
        return NoRoomError()
    return UnsuitableError(f"the GPU's decoder gave up: {error}")
