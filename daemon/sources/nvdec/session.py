"""One hardware decoder with its stream and its surfaces."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from functools import partial
from math import ceil
from time import perf_counter, sleep

import av

from daemon.errors import DecodeError, PoisonedError
from daemon.sources.decode import UnsuitableError
from daemon.sources.nvdec.capability import Capability, SizeLimits
from daemon.sources.nvdec.costs import decoder_bytes
from daemon.sources.nvdec.nvcuvid import CODECS, OUT_OF_MEMORY, NvdecError, Parsed, Picture, caps
from daemon.sources.nvdec.port import Shown
from daemon.sources.nvdec.surfaces import Surface, Surfaces
from detectors.cuda import CudaError, Device, DeviceBuffer, SharedBuffer, Stream
from detectors.port import DeviceImage

_THREADS_PER_ENGINE = 0.4
_SHORTEST_S, _LONGEST_S = 0.0005, 0.03  # pauses before the first look whether a picture is done
_SHRINKS = 0.95  # what becomes of that pause where the first look finds it done
_STEP_S, _GROWS = 0.001, 1.5  # between others
_DECODE_TIMEOUT_S = 5.0
_MOST_MAPPED = 2


class Engines:
    """A GPU's decoding engines, which all sessions share.

    Args:
        shared: pictures lie where another process can see them.

    Attributes:
        device: the GPU.
        threads: that keep all engines at work.
    """

    def __init__(self, device: int, *, shared: bool = False) -> None:
        self._index, self._shared = device, shared
        self.device = Device(device)
        # With several sessions to a thread, each with pictures under way, few threads keep all engines at work.
        self.threads = ceil(_THREADS_PER_ENGINE * max(1, caps("h264").engines))

    def card(self) -> Capability:
        """What they can do."""
        found = {name: caps(name) for name in CODECS}
        limits = {
            name: SizeLimits((row.width_min, row.height_min), (row.width_max, row.height_max))
            for name, row in found.items()
            if row.supported
        }
        return Capability(max((row.engines for row in found.values()), default=0), limits)

    def session(self, codec: str, *, low_latency: bool, surfaces: int) -> Session:
        """A new one, for the calling thread."""
        self.device.make_current()
        return Session(self, codec, low_latency, surfaces)

    def memory(self, size: int) -> DeviceBuffer | SharedBuffer:
        """For pictures."""
        return SharedBuffer(self._index, size) if self._shared else DeviceBuffer(size)

    def close(self) -> None:
        self.device.close()


class Session:
    """See `daemon.sources.nvdec.port.Session`.

    A picture is copied from the decoder's memory in this session's stream, and given back to the decoder when a later
    one finds that copy done: so nobody waits for it. For one that is not decoded yet its thread sleeps, as long as most
    of the others took: who waits inside the driver is woken by each picture of everybody, and has to win back the
    interpreter's lock each time.
    """

    def __init__(self, engines: Engines, codec: str, low_latency: bool, surfaces: int) -> None:
        self._engines, self._count = engines, surfaces
        self._codec, self._low_latency = codec, low_latency
        self._surfaces: Surfaces | None = None
        self._mapped: deque[tuple[int, Surface]] = deque()
        self._pause_s, self._begun = 0.0, 0.0
        self._most_pause_s = _LONGEST_S if low_latency else 0.0
        self._closed = False
        with ExitStack() as undo:
            self._stream = Stream()
            undo.callback(self._stream.close)
            self._parsed = Parsed(codec, self._stream.handle, at_once=low_latency)
            undo.pop_all()

    def make_current(self) -> None:
        self._engines.device.make_current()

    def decode(self, address: int, size: int, time: int | None) -> list[Shown]:
        try:
            found = self._parsed.parse(address, size, time)
        except NvdecError as error:
            raise _refusal(error) from error
        self._begun = perf_counter()  # the first call makes a decoder, for which others may be waited for
        return self._shown(found)

    def decode_bytes(self, data: bytes) -> list[Shown]:
        """The same for what is not a packet yet."""
        packet = av.Packet(data)
        return self.decode(packet.buffer_ptr, packet.buffer_size, None)

    def drain(self) -> list[Shown]:
        try:
            return self._shown(self._parsed.drain())
        except NvdecError as error:
            raise _refusal(error) from error

    def _shown(self, pictures: list[Picture]) -> list[Shown]:
        return [(partial(self._load, number), time) for number, time in pictures]

    @property
    def needs(self) -> int:
        parsed = self._parsed
        if not parsed.kept:
            return 0
        return decoder_bytes(self._codec, *parsed.size, self._count, low_latency=self._low_latency, kept=parsed.kept)

    @property
    def all_free(self) -> bool:
        return self._surfaces is None or self._surfaces.all_free

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._engines.device.make_current()
        self._stream.synchronize()
        while self._mapped:
            self._parsed.unmap(self._mapped.popleft()[0])
        self._parsed.close()
        if self._surfaces:
            self._surfaces.close()
        self._stream.close()

    def _load(self, number: int, bt709: bool, full_range: bool) -> DeviceImage:
        try:
            self._wait_for(number)
            surfaces = self._surfaces or self._make_surfaces()
            lease = surfaces.acquire()
            surface = lease.slot
            self._give_back()
            source = self._parsed.map(number)
            self._mapped.append((source[0], surface))
            self._stream.copy_rows((surface.pointer, surfaces.pitch), source, surfaces.pitch, surfaces.rows)
            surface.event.record(self._stream)
        except (CudaError, NvdecError) as error:
            raise _lost(error) from error
        return surfaces.image(lease, bt709, full_range)

    def _wait_for(self, number: int) -> None:
        """Each look has its price, so the pause before the first grows until it is the only one for most pictures.

        Where pictures may wait in the decoder most are done, and the thread has other sources to go on with.
        """
        if self._pause_s > _SHORTEST_S:
            sleep(self._pause_s)
        if self._parsed.is_done(number):
            self._pause_s *= _SHRINKS
            return
        self._pause_s = min(self._pause_s + _STEP_S, self._most_pause_s)
        step = _STEP_S
        sleep(step)
        while not self._parsed.is_done(number):
            if perf_counter() - self._begun > _DECODE_TIMEOUT_S:
                raise DecodeError(f"the GPU has not decoded a picture in {_DECODE_TIMEOUT_S:g} s")
            step *= _GROWS
            sleep(step)

    def _give_back(self) -> None:
        while self._mapped and (self._mapped[0][1].is_ready or len(self._mapped) >= _MOST_MAPPED):
            pointer, surface = self._mapped.popleft()
            if not surface.is_ready:
                self._stream.synchronize()
            self._parsed.unmap(pointer)

    def _make_surfaces(self) -> Surfaces:
        """When the size is known: with the first picture."""
        width, height = self._parsed.size
        self._surfaces = Surfaces(self._engines.memory, self._count, width, height)
        return self._surfaces


def _lost(error: CudaError | NvdecError) -> DecodeError | PoisonedError:
    """One picture is lost, or the whole process."""
    return PoisonedError(str(error)) if error.sticky else DecodeError(str(error))


def _refusal(error: NvdecError) -> UnsuitableError | PoisonedError:
    if error.sticky:
        return PoisonedError(str(error))
    if error.code == OUT_OF_MEMORY:
        return UnsuitableError("the GPU has no room for another decoder session")
    return UnsuitableError(f"the GPU's decoder gave up: {error}")
