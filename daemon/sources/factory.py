"""Makes sources from their configuration, and probes the GPU's decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from daemon.config.sources import AvConfig, CameraConfig, SourceConfig
from daemon.sources.port import Source

if TYPE_CHECKING:
    from daemon.sources.decode import DecoderBackend, DecoderPool, NoHardwareDecoder

MakeSource = Callable[[SourceConfig, "DecoderPool"], Source]


def make_source(config: SourceConfig, decoder_pool: DecoderPool | None = None) -> Source:
    """A source that is not connected yet. Imports only what the source needs."""
    if isinstance(config, AvConfig):
        from daemon.sources.ffmpeg import AvSource

        return AvSource(config, decoder_pool)
    if isinstance(config, CameraConfig):
        from daemon.sources.camera import CameraSource

        return CameraSource(config)
    from daemon.sources.synthetic import SyntheticSource

    return SyntheticSource(config)


def probe_decoder(device: int, surfaces: int, memory: int | None) -> DecoderBackend | NoHardwareDecoder:
    """The decoder of a GPU, or the reason why there is none.

    Args:
        surfaces: pictures of each source that may be in use at once.
        memory: bytes of the GPU for all sources, None for no limit.
    """
    from daemon.sources.decode import NoHardwareDecoder, UnsuitableError
    from daemon.sources.nvdec.backend import NvdecBackend
    from daemon.sources.nvdec.trial import probe

    try:
        return NvdecBackend(device, probe(device), surfaces, memory)
    except UnsuitableError as error:
        return NoHardwareDecoder(str(error))
