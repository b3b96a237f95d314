"""Why a source is not recorded, for those who ask."""

from __future__ import annotations

from daemon.config.root import Config
from daemon.config.sources import AvConfig, CameraConfig, SourceConfig
from daemon.recording.init_segment import CODECS


def why_not(config: Config, source: SourceConfig, codec: str | None = None) -> str | None:
    """Why none of a source's video is recorded; None if it is.

    Args:
        codec: of the stream that is analysed, by FFmpeg's name; None where it is not known.
    """
    own = source.recording
    if not source.enabled:
        return "disabled"
    if (own.mode or config.record.mode) == "off":
        return "its record is off" if own.mode else "record.mode is off"
    if not (isinstance(source, AvConfig) and source.is_live):
        return _kind(source)
    if codec is not None and own.url is None and codec not in CODECS:
        return f"video in {codec} is not recorded, H.264 and HEVC are"
    return None


def _kind(source: SourceConfig) -> str:
    if isinstance(source, CameraConfig):
        return "a camera of this machine, which sends pictures and no video"
    return "a recording itself" if isinstance(source, AvConfig) else "drawn"
