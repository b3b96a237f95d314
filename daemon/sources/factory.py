"""The one place that turns a source's configuration into a Source, and decides who decodes."""

from __future__ import annotations

from daemon.config import AvConfig, CameraConfig, SourceConfig
from daemon.sources.decoding import Hardware, NoHardware, UnsuitableError
from daemon.sources.port import Source


def make_source(config: SourceConfig, hardware: Hardware | None = None) -> Source:
    """A source that is not connected yet; what it needs is imported here."""
    if isinstance(config, AvConfig):
        from daemon.sources.av import AvSource

        return AvSource(config, hardware)
    if isinstance(config, CameraConfig):
        from daemon.sources.camera import CameraSource

        return CameraSource(config)
    from daemon.sources.synthetic import SyntheticSource

    return SyntheticSource(config)


def open_hardware(device: int, surfaces: int, memory: int | None) -> Hardware:
    """The decoder of a GPU, or the reason why there is none.

    Args:
        surfaces: pictures of each source that may be on their way at once.
        memory: bytes that all sources may take, None for any.
    """
    from daemon.sources.nvdec.card import ask

    try:
        card = ask(device)
    except UnsuitableError as error:
        return NoHardware(str(error))
    from daemon.sources.nvdec.pool import Pool, Session
    from daemon.sources.nvdec.session import Engines

    engines = Engines(device)
    if memory is None:
        memory = engines.device.free_memory()

    def session(codec: str, low_latency: bool) -> Session:
        return engines.session(codec, low_latency=low_latency, surfaces=surfaces)

    return Pool(card, session, surfaces, engines.threads, memory, engines.close)
