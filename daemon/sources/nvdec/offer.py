"""A GPU's decoder, found out about once and opened where it is used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from daemon.sources.buffers import Block
from daemon.sources.nvdec.capability import Capability
from daemon.sources.nvdec.costs import SESSIONS, decoder_bytes, engine_pixels_per_s
from daemon.sources.nvdec.pool import Pool
from daemon.sources.nvdec.port import Session


@dataclass(frozen=True)
class NvdecBackend:
    """Implements `daemon.sources.decode.DecoderBackend`.

    Attributes:
        device: which GPU.
        surfaces: pictures of each source that may be on their way at once.
        memory: bytes that all sources may take, None for any.
    """

    device: int
    card: Capability
    surfaces: int
    memory: int | None
    sessions: int | None = SESSIONS

    def without_decoder(self, reason: str) -> NvdecBackend:
        return replace(self, card=structs.replace(self.card, refusal=reason))

    def open(self, part: float | None = None) -> Pool:
        """See `daemon.sources.decode.DecoderBackend`."""
        from daemon.sources.nvdec.session import Engines
        from daemon.sources.nvdec.upload_buffers import UploadBuffers

        share = 1.0 if part is None else part
        engines = Engines(self.device, shared=part is not None)
        memory = engines.device.free_memory() if self.memory is None else self.memory

        def session(codec: str, low_latency: bool) -> Session:
            return engines.session(codec, low_latency=low_latency, surfaces=self.surfaces)

        return Pool(
            self.card,
            session,
            partial(UploadBuffers, engines.device, engines.memory, self.surfaces),
            self.surfaces,
            engines.threads,
            int(memory * share),
            make_current=engines.device.make_current,
            on_close=engines.close,
        )

    def mapper(self) -> DeviceMapper:
        return DeviceMapper(self.device)

    def needs(self, codec: str, width: int, height: int, fps: float, *, low_latency: bool) -> tuple[float, int]:
        """The decoder's share by `rates`, which is a figure of one card and not of this one."""
        memory = decoder_bytes(codec, width, height, self.surfaces, low_latency=low_latency)
        return fps * width * height / (engine_pixels_per_s(codec) * max(1, self.card.engines)), memory


class DeviceMapper:
    """See `daemon.sources.buffers.Mapper`."""

    def __init__(self, index: int) -> None:
        from detectors.cuda import Device

        self._index, self._device = index, Device(index)

    def make_current(self) -> None:
        self._device.make_current()

    def map(self, fd: int, size: int) -> Block:
        from detectors.cuda import SharedBuffer

        return SharedBuffer(self._index, size, fd)

    def close(self) -> None:
        self._device.close()
