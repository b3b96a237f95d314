"""The part of `lookout check` that is about the page and the bridge, as `lookout run` has them beside the daemon."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec

from daemon.analytics.journal_store import check_path, check_writable
from daemon.commands.run import check_page_libraries
from daemon.config.root import Config
from daemon.errors import ConfigError
from daemon.http import check_libraries
from daemon.peers.addresses import bridged_addresses, server_key_of
from daemon.system.database_lock import Lock


def try_page(config: Config, *, ports: bool) -> socket.socket | None:
    """Try what `lookout run --dashboard` opens.

    Args:
        ports: also its port.

    Returns:
        The port, bound.

    Raises:
        ConfigError: the page could not be served; says why.
    """
    check_page_libraries()
    from daemon.dashboard.server import http_of
    from daemon.http.access import tokens_of
    from daemon.http.server import bind, check_tls

    server_key_of(config.publisher)
    tokens_of(config.dashboard.tokens, "dashboard")
    http = http_of(config.dashboard)
    check_tls(http, "dashboard")
    return bind(http, "dashboard") if ports else None


def try_bridge(config: Config, *, ports: bool) -> socket.socket | None:
    """Try what `lookout run --bridge` opens; its targets are those of `lookout bridge check`.

    Args:
        ports: also its port, and whether another bridge has the spool.

    Returns:
        The port, bound; None without one.

    Raises:
        ConfigError: the bridge could not run; says why.
    """
    from daemon.bridge.bridge import spool_path
    from daemon.bridge.kit import check_can_run

    check_can_run(config.bridge)
    if config.bridge.daemons:
        bridged_addresses(config, None)
    else:
        server_key_of(config.publisher, "bridge.daemons")
    _try_spool(spool_path(config.bridge), alone=ports)
    if config.bridge.port is None:
        return None
    check_libraries()
    from daemon.http.access import read_tokens
    from daemon.http.server import bind, check_tls

    http = msgspec.structs.replace(config.http, port=config.bridge.port)
    read_tokens(http)
    check_tls(http, "bridge")
    return bind(http, "bridge") if ports else None


def _try_spool(path: Path, *, alone: bool) -> None:
    """Leaves nothing."""
    reason = check_path(path)
    if reason is None:
        try:
            check_writable(path)
        except OSError as error:
            reason = f"{path} cannot be written: {error.strerror}"
    if reason is not None:
        raise ConfigError(f"bridge.spool: {reason}")
    if alone and Lock.path_of(path).exists():
        Lock(path, "bridge.spool").close()
