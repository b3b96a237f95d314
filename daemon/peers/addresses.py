"""Which daemons the page shows, and how they are reached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import zmq

from daemon.config.http import DaemonConfig, HttpConfig, Role
from daemon.config.publisher import PublisherConfig
from daemon.config.root import BridgeFile, Config, PageConfig
from daemon.errors import ConfigError
from daemon.files import read_text
from daemon.publish.curve_keys import secret_key
from daemon.redact import Secret
from lookout.messages import is_port

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1", "": "127.0.0.1"}  # noqa: S104 - not bound here
_EXAMPLE = "such as http://127.0.0.1:9105 or tcp://127.0.0.1:5556"


@dataclass(frozen=True)
class DaemonAddress:
    """A daemon.

    Attributes:
        name: short and unique; in links of the page.
        endpoint: of its messages; None to ask its HTTP API.
        http: URL of its HTTP API; None without.
        token: for the HTTP API.
        server_key: its public CURVE key, or the file that holds it.
        secret_key: file of the page's own CURVE key.
        is_here: it runs on this machine from the same configuration, so that its certificate need not be checked.
    """

    name: str
    endpoint: str | None
    http: str | None
    token: Secret | None = None
    server_key: str | None = None
    secret_key: Path | None = None
    is_here: bool = False


def addresses_of(
    config: Config | PageConfig | None, arguments: Sequence[str], token: Secret | None
) -> list[DaemonAddress]:
    """The daemons of the command line, or else those of the configuration, or else the configuration's own.

    Args:
        arguments: [NAME=]URL or [NAME=]URL,URL.
        token: for the HTTP API of each daemon without one of its own.

    Raises:
        ConfigError: says which is wrong, and how it looks.
    """
    if arguments:
        found = [replace(_from_argument(text), token=token) for text in arguments]
        return _with_unique_names(found)
    if config is None:
        raise ConfigError(f"no daemon to show: give its address, {_EXAMPLE}, or a configuration with -c")
    if config.dashboard.daemons:
        return [_from_config(row, token) for row in config.dashboard.daemons]
    if isinstance(config, PageConfig):
        raise ConfigError("dashboard.daemons: is empty: name a daemon, such as {name: here, http: http://...}")
    return [_own(config, token or operator_of(config.http), "dashboard.daemons")]


def bridged_addresses(config: Config | BridgeFile, token: Secret | None) -> list[DaemonAddress]:
    """The daemons whose messages a bridge passes on: those of `bridge.daemons`, or else the configuration's own.

    Raises:
        ConfigError: says which is wrong, and how it looks.
    """
    if config.bridge.daemons:
        return [_from_config(row, token) for row in config.bridge.daemons]
    if isinstance(config, BridgeFile):
        raise ConfigError("bridge.daemons: is empty: name a daemon, such as {name: here, http: http://...}")
    return [_own(config, token or token_of(config.http, ("view", "operate")), "bridge.daemons")]


def _from_argument(text: str) -> DaemonAddress:
    name, equals, urls = text.partition("=")
    if not equals or "://" in name:
        name, urls = "", text
    endpoint = http = None
    for url in urls.split(","):
        if url.startswith(("http://", "https://")):
            http = http_address(url)
        elif url.startswith(("tcp://", "ipc://")):
            endpoint = _checked_endpoint(url)
        else:
            raise ConfigError(f"{text!r} is not the address of a daemon: {_EXAMPLE}")
    host = urlsplit(http or endpoint or "").hostname or "daemon"
    name = name or re.sub(r"[^A-Za-z0-9_.-]", "-", host)
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise ConfigError(f"{text!r}: a name may hold letters, digits, '_', '.' and '-' only")
    return DaemonAddress(name, endpoint, http)


def _with_unique_names(found: Sequence[DaemonAddress]) -> list[DaemonAddress]:
    names: dict[str, int] = {}
    rows = []
    for row in found:
        names[row.name] = number = names.get(row.name, 0) + 1
        rows.append(row if number == 1 else replace(row, name=f"{row.name}-{number}"))
    return rows


def _from_config(row: DaemonConfig, token: Secret | None) -> DaemonAddress:
    http = http_address(row.http) if row.http else None
    own = _token(row.name, row.token, row.token_file) or token
    endpoint = _checked_endpoint(row.endpoint) if row.endpoint else None
    return DaemonAddress(row.name, endpoint, http, own, row.server_key, row.secret_key_file)


def _own(config: Config, token: Secret | None, others: str) -> DaemonAddress:
    """The daemon that runs with this configuration, on this machine.

    Args:
        others: the key that can name a daemon with keys and addresses of its own.
    """
    publisher, key = config.publisher, server_key_of(config.publisher, others)
    http = own_http(config.http) if config.http.enabled else None
    endpoint: str | None = re.sub(r"^tcp://(\*|0\.0\.0\.0)(?=:)", "tcp://127.0.0.1", publisher.endpoint)
    if endpoint and endpoint.endswith((":*", ":0")):
        endpoint = None
    if endpoint is None and http is None:
        raise ConfigError("publisher.endpoint has no fixed port: set one, or http.enabled, so that it can be asked")
    return DaemonAddress("here", endpoint, http, token, key, is_here=True)


def server_key_of(publisher: PublisherConfig, others: str = "dashboard.daemons") -> str | None:
    """The public CURVE key of the configuration's own daemon; None without encryption.

    Raises:
        ConfigError: a key of its own is needed.
    """
    if publisher.curve is None:
        return None
    if publisher.curve.clients:
        raise ConfigError(f"publisher.curve.clients admits known keys only: give one in {others}")
    return zmq.curve_public(secret_key(publisher.curve)).decode()


def own_http(http: HttpConfig) -> str:
    """The URL of the HTTP API on this machine."""
    host = _ANYWHERE.get(http.host, http.host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if http.tls_certificate else 'http'}://{shown}:{http.port}"


def operator_of(http: HttpConfig) -> Secret | None:
    """A token of the daemon's own configuration: one that may change sources, or else one that may view."""
    return token_of(http, ("operate", "view"))


def token_of(http: HttpConfig, roles: Sequence[Role]) -> Secret | None:
    """A token of the daemon's own configuration, of the first of these roles that has one."""
    rows = [("operate", http.token, http.token_file), *((row.role, row.token, row.token_file) for row in http.tokens)]
    for role in roles:
        for row_role, token, file in rows:
            if row_role == role and (token or file):
                return _token("http", token, file)
    return None


def given_token(text: str | None) -> Secret | None:
    """A token of the command line or the environment; None for an empty one.

    Raises:
        ConfigError: it cannot be sent.
    """
    return _sendable("the token of --token or LOOKOUT_TOKEN", text) if text and text.strip() else None


def _sendable(whose: str, text: str) -> Secret:
    """A token as a header takes it, without spaces and line breaks around it, as a file or a variable may have them.

    Raises:
        ConfigError: it cannot be sent; does not show it.
    """
    token = text.strip()
    if not token.isascii() or not token.isprintable():
        raise ConfigError(f"{whose} cannot be sent: it has a line break, or a character beyond ASCII")
    return Secret(token)


def _token(name: str, token: Secret | None, file: Path | None) -> Secret | None:
    whose = f"the token of {name!r}"
    if file is None:
        return None if token is None else _sendable(whose, token.reveal())
    try:
        return _sendable(whose, read_text(file))
    except OSError as error:
        raise ConfigError(f"{whose}: {file} cannot be read: {error.strerror}") from error


def _checked_endpoint(url: str) -> str:
    scheme, _, address = url.partition("://")
    host, _, port = address.rpartition(":")
    if scheme == "ipc" and address:
        return url
    if scheme != "tcp" or not host or not (is_port(port) and int(port)):
        raise ConfigError(f"{url} is not where a daemon's messages come from: {_EXAMPLE}")
    return url


def http_address(url: str) -> str:
    """The URL of an HTTP API, without a slash at its end.

    Raises:
        ConfigError: it is none.
    """
    try:
        parts = urlsplit(url)
        well_formed = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        well_formed = False
    if (
        not well_formed
        or parts.scheme not in ("http", "https")
        or parts.username
        or parts.query
        or parts.path.strip("/")
    ):
        raise ConfigError(f"{Secret(url) if '@' in url else url} is not the address of an HTTP API: {_EXAMPLE}")
    return url.rstrip("/")
