"""The one place that turns a source's configuration into a Source, and decides who decodes."""

from __future__ import annotations

from daemon.config import AvConfig, CameraConfig, SourceConfig
from daemon.sources.decode import DecoderBackend, DecoderPool, NoHardwareDecoder, UnsuitableError
from daemon.sources.port import Source


def make_source(config: SourceConfig, hardware: DecoderPool | None = None) -> Source:
    """A source that is not connected yet; what it needs is imported here."""
    if isinstance(config, AvConfig):
        from daemon.sources.ffmpeg import AvSource

        return AvSource(config, hardware)
    if isinstance(config, CameraConfig):
        from daemon.sources.camera import CameraSource

        return CameraSource(config)
    from daemon.sources.synthetic import SyntheticSource

    return SyntheticSource(config)


def offer_hardware(device: int, surfaces: int, memory: int | None) -> DecoderBackend | NoHardwareDecoder:
    """The decoder of a GPU, or the reason why there is none.

    Args:
        surfaces: pictures of each source that may be on their way at once.
        memory: bytes that all sources may take, None for any.
    """
    from daemon.sources.nvdec.backend import NvdecBackend
    from daemon.sources.nvdec.trial import probe

    try:
        return NvdecBackend(device, probe(device), surfaces, memory)
    except UnsuitableError as error:
        return NoHardwareDecoder(str(error))
