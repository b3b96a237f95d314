"""Asks a collector whether it takes traces, for `lookout check`."""

from __future__ import annotations

import os
import ssl
from http.client import HTTPException
from time import monotonic

from daemon.config.otlp import OtlpConfig
from daemon.errors import ConfigError
from daemon.system.http_client import HttpConnection, HttpRequest, Reach
from daemon.tracing.exporter import HEADERS, MAX_ANSWER, compressed
from daemon.tracing.settings import Settings, reason_of, settings_of

_LIMIT_S = 5.0


def try_collector(config: OtlpConfig) -> None:
    """Send a request without a trace.

    Raises:
        ConfigError: it is not taken; or as `settings_of`.
    """
    settings = settings_of(config, os.environ, "check")
    if settings is not None and (reason := _reason(settings)):
        raise ConfigError(f"otlp: {settings.shown} takes no traces: {reason}; `run` works without")


def _reason(settings: Settings) -> str:
    """Empty if all is well."""
    tls = ssl.create_default_context() if settings.is_https else None
    connection = HttpConnection(settings.address, tls, Reach(answer_bytes=MAX_ANSWER))
    try:
        headers = {**settings.current_headers(), **HEADERS}
        request = HttpRequest("POST", settings.path, compressed([], settings.resource), headers)
        status = connection.exchange(request, monotonic() + _LIMIT_S).status
        return "" if 200 <= status < 300 else f"it answers {status}"
    except (OSError, HTTPException, ValueError) as error:
        return reason_of(error)
    finally:
        connection.close()
