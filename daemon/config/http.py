"""Keys of the HTTP API and of the page."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from daemon.config.section import Section, SourceId
from daemon.errors import ConfigError
from daemon.redact import Secret

Role = Literal["view", "operate"]


class TokenConfig(Section, frozen=True):
    name: SourceId
    role: Role = "view"
    token: Secret | None = None
    token_file: Path | None = None


class HttpConfig(Section, frozen=True):
    enabled: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9105
    token: Secret | None = None
    token_file: Path | None = None
    tokens: list[TokenConfig] = []
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_sources: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 256
    schemes: tuple[str, ...] = ("rtsp", "rtsps", "http", "https", "rtmp", "rtmps")
    allow_local: bool = False
    sources_file: Path | None = None


class DaemonConfig(Section, frozen=True):
    """A daemon that the page shows; at least one of `endpoint` and `http`."""

    name: SourceId
    endpoint: str | None = None
    http: str | None = None
    token: Secret | None = None
    token_file: Path | None = None
    server_key: str | None = None
    secret_key_file: Path | None = None


class DashboardConfig(Section, frozen=True):
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9106
    hosts: list[str] = []
    tokens: list[TokenConfig] = []
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_viewers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    daemons: list[DaemonConfig] = []


def check_http(http: HttpConfig) -> None:
    if not http.enabled:
        return
    if http.token is not None and http.token_file is not None:
        raise ConfigError("http: set one of token and token_file")
    if (http.tls_certificate is None) != (http.tls_key is None):
        raise ConfigError("http: tls_certificate and tls_key go together")
    _check_tokens(http.tokens, "http")
    has_token = http.token is not None or http.token_file is not None or http.tokens
    if not is_loopback(http.host) and not has_token:
        raise ConfigError(f"http.host: {http.host} can be reached by the whole network: set http.token or tokens")


def _check_tokens(tokens: list[TokenConfig], where: str) -> None:
    for index, row in enumerate(tokens):
        if (row.token is None) == (row.token_file is None):
            raise ConfigError(f"{where}.tokens[{index}]: set one of token and token_file")
        if row.name in [other.name for other in tokens[:index]]:
            raise ConfigError(f"{where}.tokens[{index}].name: {row.name!r} is used twice")


def check_dashboard(page: DashboardConfig) -> None:
    if (page.tls_certificate is None) != (page.tls_key is None):
        raise ConfigError("dashboard: tls_certificate and tls_key go together")
    _check_tokens(page.tokens, "dashboard")
    if not is_loopback(page.host) and not page.tokens:
        raise ConfigError(f"dashboard.host: {page.host} can be reached by the whole network: set dashboard.tokens")
    for index, row in enumerate(page.daemons):
        where = f"dashboard.daemons[{index}]"
        if row.endpoint is None and row.http is None:
            raise ConfigError(f"{where}: set endpoint, http, or both")
        if row.token is not None and row.token_file is not None:
            raise ConfigError(f"{where}: set one of token and token_file")
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", row.name):
            raise ConfigError(f"{where}.name: {row.name!r} may hold letters, digits, '_', '.' and '-' only")
        if row.name in [other.name for other in page.daemons[:index]]:
            raise ConfigError(f"{where}.name: {row.name!r} is used twice; each daemon needs its own")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and can be reached from nowhere else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in ("localhost", "lo")
