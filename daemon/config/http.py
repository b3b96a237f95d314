"""Keys of the HTTP API and of the page."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from daemon.config.section import Section, SourceId
from daemon.errors import ConfigError
from daemon.redact import Secret

Role = Literal["view", "operate"]


class TokenConfig(Section, frozen=True):
    name: SourceId
    """letters, digits, '_', '.', '-'"""
    role: Role = "view"
    """view reads sources, snapshots and the configuration; operate changes sources, too"""
    token: Secret | None = None
    """such as "${SCREEN_TOKEN}", which is taken from the environment"""
    token_file: Path | None = None
    """or the file that holds it, which a reload reads again"""


class HttpConfig(Section, frozen=True):
    enabled: bool = False
    """false: no port is opened"""
    host: str = "127.0.0.1"
    """another address than loopback needs a token"""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9105
    """0 takes a free one"""
    token: Secret | None = None
    """its holder may change sources: "${LOOKOUT_TOKEN}"; null: health and metrics only"""
    token_file: Path | None = None
    """or the file that holds it"""
    tokens: list[TokenConfig] = []
    """or several, such as {name: screen, role: view, token: "${SCREEN_TOKEN}"}; roles are view and operate, and
    token_file may stand for token. A reload reads them all again"""
    tls_certificate: Path | None = None
    """PEM; with tls_key"""
    tls_key: Path | None = None
    """PEM, of tls_certificate"""
    max_sources: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 256
    """there may be, with those added over the network"""
    schemes: tuple[str, ...] = ("rtsp", "rtsps", "http", "https", "rtmp", "rtmps")
    """of URLs that are taken over the network"""
    allow_local: bool = False
    """true: files, cameras, FFmpeg's options and drawn sources of any size over the network, too"""
    sources_file: Path | None = None
    """where sources that are persisted over the network are written, and read at the start"""


class DaemonConfig(Section, frozen=True):
    """A daemon that the page shows, or whose messages the bridge passes on; at least one of `endpoint` and `http`."""

    name: SourceId
    """letters, digits, '_', '.', '-'"""
    endpoint: str | None = None
    """its publisher.endpoint, as it is reached from here"""
    http: str | None = None
    """its HTTP API, such as http://192.0.2.7:9105"""
    token: Secret | None = None
    """of its API"""
    token_file: Path | None = None
    """or the file that holds it"""
    server_key: str | None = None
    """for CURVE: 40 characters, or the .key file"""
    secret_key_file: Path | None = None
    """for CURVE: the key of the one that asks"""


class DashboardConfig(Section, frozen=True):
    host: str = "127.0.0.1"
    """another address than loopback needs tokens, and should have TLS"""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9106
    """0 takes a free one"""
    hosts: list[str] = []
    """further names under which browsers reach it, such as [cams.example]"""
    tokens: list[TokenConfig] = []
    """of people, as in http.tokens: {name: screen, role: view, token: "${SCREEN_TOKEN}"}; with none, everybody on this
    machine may see and change everything"""
    sessions: str = "auto"
    """a file of mode 0600 that keeps sign-ins over restarts; auto: sessions-PORT.json in $STATE_DIRECTORY, which
    systemd sets, else none; off: none"""
    tls_certificate: Path | None = None
    """PEM; with tls_key"""
    tls_key: Path | None = None
    """PEM, of tls_certificate"""
    max_viewers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    """open tabs and live pictures, together"""
    seen: str = "auto"
    """a file that keeps marks of seen events over restarts; auto: seen-PORT.jsonl in $STATE_DIRECTORY, which systemd
    sets, else none; off: none"""
    daemons: list[DaemonConfig] = []
    """that it shows; none: this configuration's own. Each has a name, and endpoint, http, or both: {name: hall, http:
    "http://192.0.2.7:9105", token: "${HALL_TOKEN}"}, and for CURVE server_key (40 characters, or the .key file) and
    secret_key_file"""


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
    check_daemons(page.daemons, "dashboard.daemons")


def check_daemons(daemons: Sequence[DaemonConfig], key: str) -> None:
    """
    Args:
        key: under which they stand.

    Raises:
        ConfigError: one cannot be reached, or a name is used twice.
    """
    for index, row in enumerate(daemons):
        where = f"{key}[{index}]"
        if row.endpoint is None and row.http is None:
            raise ConfigError(f"{where}: set endpoint, http, or both")
        if row.token is not None and row.token_file is not None:
            raise ConfigError(f"{where}: set one of token and token_file")
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", row.name):
            raise ConfigError(f"{where}.name: {row.name!r} may hold letters, digits, '_', '.' and '-' only")
        if row.name in [other.name for other in daemons[:index]]:
            raise ConfigError(f"{where}.name: {row.name!r} is used twice; each daemon needs its own")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and can be reached from nowhere else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host in ("localhost", "lo")
