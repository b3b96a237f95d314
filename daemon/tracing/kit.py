"""Attaches tracing. Without an endpoint nothing of it is loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from daemon.lifecycle import Phase

if TYPE_CHECKING:
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
    if not (config != type(config)() or any(map(os.environ.get, _ENDPOINTS))):
        return None
    from daemon.tracing.exporter import Exporter
    from daemon.tracing.settings import settings_of
    from daemon.tracing.tracing import Tracing

    settings = settings_of(config, os.environ, core.instance)
    if settings is None:
        return None
    exporter = core.life.add(Exporter(settings, on_sent, core.runtime), Phase.STORES)
    return Tracing(settings, core.ledger.accounts, exporter, core.runtime.clock)
