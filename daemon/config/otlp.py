"""Keys of tracing: docs/tracing.md explains it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from daemon.config.http import is_loopback
from daemon.config.section import Count, Section
from daemon.errors import ConfigError
from daemon.redact import Url


class OtlpConfig(Section, frozen=True):
    endpoint: Url | None = None
    """a collector of OpenTelemetry, over HTTP, such as http://127.0.0.1:4318; null: OTEL_EXPORTER_OTLP_ENDPOINT of the
    environment, and without that nothing is traced"""
    headers_file: Path | None = None
    """a file with headers for it, such as a token, each a line `Name: value`, which not everybody may read; null:
    OTEL_EXPORTER_OTLP_HEADERS"""
    allow_plaintext: bool = False
    """send these headers over http:// to another machine: they can be read on the way"""
    every: Count = 1000
    """one of so many published frames is traced, and beside them those that are slow or dropped"""
    slow_ms: Annotated[float, msgspec.Meta(ge=0.001, le=3_600_000)] = 200.0
    """captured to sent; a slower frame is traced, as long as there are at most 10 traces a second"""


def check_otlp(otlp: OtlpConfig) -> None:
    """
    Raises:
        ConfigError: the endpoint is none, or its headers could be read on the way.
    """
    if otlp.endpoint is not None:
        check_endpoint(otlp.endpoint, "otlp.endpoint")
        if otlp.headers_file is not None:
            check_headers(otlp, otlp.endpoint, "otlp.headers_file")


def check_headers(otlp: OtlpConfig, url: Url, where: str) -> None:
    """
    Args:
        url: of a collector that gets headers.
        where: they are written, for messages.

    Raises:
        ConfigError: they could be read on the way.
    """
    parts = urlsplit(url.reveal())
    if parts.scheme != "https" and not is_loopback(parts.hostname or "") and not otlp.allow_plaintext:
        raise ConfigError(
            f"{where}: could be read on the way to {url}: write https://, or set otlp.allow_plaintext: true"
        )


def check_endpoint(url: Url, where: str) -> None:
    """
    Args:
        where: it is written, for messages.

    Raises:
        ConfigError: it is no address of a collector, or has a secret.
    """
    try:
        parts = urlsplit(url.reveal())
        host, _ = parts.hostname, parts.port
    except ValueError:  # a port that is none
        host, parts = None, urlsplit("")
    if url.has_credentials or "@" in parts.netloc:
        raise ConfigError(f"{where}: has a user name: write it as a header, see otlp.headers_file")
    if parts.scheme not in ("http", "https") or not host or not url.reveal().isascii() or " " in url.reveal():
        raise ConfigError(f"{where}: {url} is none of http://HOST:4318 and https://HOST:4318")
    if parts.query or parts.fragment:
        raise ConfigError(f"{where}: has a query: write a key as a header, see otlp.headers_file")
