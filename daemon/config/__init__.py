"""The configuration: typed, unknown keys refused, every error with the path of its key.

A text under a field explains its key. `make config` makes config.yaml and docs/configuration.md from them.
"""

from __future__ import annotations

from daemon.config.events import EventsConfig, SnapshotsConfig
from daemon.config.http import DaemonConfig, DashboardConfig, HttpConfig, Role, TokenConfig, is_loopback
from daemon.config.load import load, load_fleet, load_page, load_raw, parse, source_as_written, source_of
from daemon.config.model import ClassifierConfig, Colour, GpuConfig, Level, ModelConfig
from daemon.config.publisher import CurveConfig, MaskForm, PublisherConfig
from daemon.config.root import AdmissionMode, BoardConfig, Config, LogConfig, MonitorConfig, PageConfig, check
from daemon.config.section import Count, Hits, InputSize, Pixels, Rate, Seconds, Section, SourceId, Unit
from daemon.config.sources import (
    SOURCE_KINDS,
    AvConfig,
    CameraConfig,
    Decode,
    Pace,
    ReconnectConfig,
    SourceBase,
    SourceConfig,
    SourceTracking,
    SyntheticConfig,
    TrackingConfig,
    Turn,
)
from daemon.config.text import literal

__all__ = [
    "SOURCE_KINDS",
    "AdmissionMode",
    "AvConfig",
    "BoardConfig",
    "CameraConfig",
    "ClassifierConfig",
    "Colour",
    "Config",
    "Count",
    "CurveConfig",
    "DaemonConfig",
    "DashboardConfig",
    "Decode",
    "EventsConfig",
    "GpuConfig",
    "Hits",
    "HttpConfig",
    "InputSize",
    "Level",
    "LogConfig",
    "MaskForm",
    "ModelConfig",
    "MonitorConfig",
    "Pace",
    "PageConfig",
    "Pixels",
    "PublisherConfig",
    "Rate",
    "ReconnectConfig",
    "Role",
    "Seconds",
    "Section",
    "SnapshotsConfig",
    "SourceBase",
    "SourceConfig",
    "SourceId",
    "SourceTracking",
    "SyntheticConfig",
    "TokenConfig",
    "TrackingConfig",
    "Turn",
    "Unit",
    "check",
    "is_loopback",
    "literal",
    "load",
    "load_fleet",
    "load_page",
    "load_raw",
    "parse",
    "source_as_written",
    "source_of",
]
