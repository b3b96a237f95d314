"""The one place that turns a source's configuration into a Source."""

from __future__ import annotations

from daemon.config import AvConfig, CameraConfig, SourceConfig
from daemon.sources.port import Source


def make_source(config: SourceConfig) -> Source:
    """A source that is not connected yet; what it needs is imported here."""
    if isinstance(config, AvConfig):
        from daemon.sources.av import AvSource

        return AvSource(config)
    if isinstance(config, CameraConfig):
        from daemon.sources.camera import CameraSource

        return CameraSource(config)
    from daemon.sources.synthetic import SyntheticSource

    return SyntheticSource(config)
