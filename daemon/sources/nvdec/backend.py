"""The decoder of a GPU: probed once, opened in each process that decodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from daemon.sources.buffers import SharedMemory
from daemon.sources.nvdec.capability import Capability
from daemon.sources.nvdec.costs import MAX_SESSIONS, decoder_bytes, engine_pixels_per_s
from daemon.sources.nvdec.pool import NvdecPool
from daemon.sources.nvdec.port import DecoderSession, UploadTarget


@dataclass(frozen=True)
class NvdecBackend:
    """Implements `daemon.sources.decode.DecoderBackend`.

    Attributes:
        device: the GPU's number.
        surfaces: pictures of each source that may be in use at once.
        memory: bytes of the GPU for all sources, None for no limit.
    """

    device: int
    capability: Capability
    surfaces: int
    memory: int | None
    sessions: int | None = MAX_SESSIONS

    def without_decoder(self, reason: str) -> NvdecBackend:
        return replace(self, capability=structs.replace(self.capability, refusal=reason))

    def open(self, part: float | None = None) -> NvdecPool:
        """See `daemon.sources.decode.DecoderBackend`."""
        device = _Device(self.device, self.surfaces, shared=part is not None)
        memory = device.engines.device.free_memory() if self.memory is None else self.memory
        return NvdecPool(self.capability, device, int(memory * (1.0 if part is None else part)))

    def mapper(self) -> DeviceMapper:
        return DeviceMapper(self.device)

    def estimate(self, codec: str, width: int, height: int, fps: float, *, low_latency: bool) -> tuple[float, int]:
        """See `DecoderBackend`. The decoder's rate is that of the card in `costs`, not of this one."""
        memory = decoder_bytes(codec, width, height, self.surfaces, low_latency=low_latency)
        return fps * width * height / (engine_pixels_per_s(codec) * max(1, self.capability.engines)), memory


class _Device:
    """See `daemon.sources.nvdec.port.DecoderDevice`."""

    def __init__(self, index: int, surfaces: int, *, shared: bool) -> None:
        from daemon.sources.nvdec.session import Engines

        self.engines, self.surfaces = Engines(index, shared=shared), surfaces
        self.threads, self.make_current = self.engines.threads, self.engines.device.make_current
        self.close = self.engines.close

    def open_session(self, codec: str, low_latency: bool) -> DecoderSession:
        return self.engines.session(codec, low_latency=low_latency, surfaces=self.surfaces)

    def open_target(self, width: int, height: int) -> UploadTarget:
        from daemon.sources.nvdec.upload_buffers import UploadBuffers

        return UploadBuffers(self.engines.device, self.engines.memory, self.surfaces, width, height)


class DeviceMapper:
    """See `daemon.sources.buffers.Mapper`."""

    def __init__(self, index: int) -> None:
        from detectors.cuda import Device

        self._index, self._device = index, Device(index)

    def make_current(self) -> None:
        self._device.make_current()

    def map(self, fd: int, size: int) -> SharedMemory:
        from detectors.cuda import SharedBuffer

        return SharedBuffer(self._index, size, fd)

    def close(self) -> None:
        self._device.close()
