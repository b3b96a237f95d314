"""Attaches tracing. Without an endpoint nothing of it is loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from daemon.lifecycle import Phase

if TYPE_CHECKING:
    from daemon.config.otlp import OtlpConfig
    from daemon.pipeline.core import Core
    from daemon.tracing.exporter import OnSent
    from daemon.tracing.tracing import Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def open_tracing(core: Core, on_sent: OnSent | None) -> Tracing | None:
    """The part that chooses frames and sends their traces; None where nobody wants them.

    Args:
        on_sent: called with traces that the collector has taken.

    Raises:
        ConfigError: the endpoint is none, or the file of headers cannot be read.
    """
    config = core.config.otlp
    if not _is_wanted(config):
        return None
    from daemon.tracing.exporter import Exporter
    from daemon.tracing.settings import settings_of
    from daemon.tracing.tracing import Tracing

    settings = settings_of(config, os.environ, core.instance)
    if settings is None:
        return None
    exporter = core.life.add(Exporter(settings, on_sent, core.runtime), Phase.STORES)
    return Tracing(settings, core.ledger.accounts, exporter, core.runtime.clock)


def check_tracing(config: OtlpConfig) -> None:
    """Ask the collector, if one is named.

    Raises:
        ConfigError: it takes no traces.
    """
    if _is_wanted(config):
        from daemon.tracing.trial import try_collector

        try_collector(config)


def _is_wanted(config: OtlpConfig) -> bool:
    """Whether there is a setting that differs from its default, or an endpoint in the environment."""
    return config != type(config)() or any(map(os.environ.get, _ENDPOINTS))
