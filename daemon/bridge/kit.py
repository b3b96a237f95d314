"""Attaches the bridge: its account to a port, and its process to a daemon, for `lookout run --bridge`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import structlog

from daemon.errors import ConfigError
from daemon.lifecycle import Phase, Steps

if TYPE_CHECKING:
    from daemon.bridge.http import BridgeServer
    from daemon.bridge.process import BridgeOrder
    from daemon.bridge.report import BridgeReport
    from daemon.clock import Clock
    from daemon.config.bridge import BridgeConfig
    from daemon.config.http import HttpConfig
    from daemon.config.root import Config
    from daemon.http.kit import Api
    from daemon.peers.addresses import DaemonAddress
    from daemon.pipeline.core import Core
    from daemon.publish.kit import Publishing
    from daemon.redact import Secret

log = structlog.get_logger(__name__)
Reload = Callable[["Config"], Callable[[], None]]


def check_can_run(bridge: BridgeConfig) -> None:
    """
    Raises:
        ConfigError: there are no targets, or the spool has no place.
    """
    from daemon.bridge.bridge import spool_path

    if not bridge.targets:
        raise ConfigError("bridge.targets: is empty: write to whom events go, see docs/bridges.md")
    spool_path(bridge)


def open_account(
    bridge: BridgeConfig,
    http: HttpConfig,
    report: Callable[[], BridgeReport],
    clock: Clock,
    bound: socket.socket | None = None,
) -> BridgeServer | None:
    """The server of `bridge.port`; None without one. It is not started.

    Args:
        bound: its port, if it is bound already.

    Raises:
        ConfigError: the port cannot be bound, or a library, a token or a TLS file is missing.
    """
    if bridge.port is None:
        return None
    from daemon.http import check_libraries

    check_libraries()
    from daemon.bridge.http import BridgeServer, http_of

    return BridgeServer(http_of(bridge, http), report, clock, bound)


def open_bridge(host: str, token: Secret, core: Core, api: Api | None, publishing: Publishing) -> list[Reload]:
    """The bridge's process, as a part of a daemon; how it follows a reload.

    Args:
        host: of its port; the API of a daemon that was configured without one is on this machine alone.
        token: with which the API lets it view.

    Raises:
        ConfigError: there are no targets, the spool has no place, the port cannot be bound, or a token is missing.
    """
    from daemon.bridge.process import BridgeOrder, BridgeProcess
    from daemon.http.access import read_tokens
    from daemon.http.server import bind, check_tls

    config, endpoint, url = core.config, publishing.socket.endpoint, api.url if api else None

    def order_of(new: Config) -> BridgeOrder:
        check_can_run(new.bridge)
        read_tokens(new.http)
        bridge = msgspec.structs.replace(new.bridge, port=config.bridge.port)
        return BridgeOrder(
            bridge, _addresses(new, endpoint, url, token), msgspec.structs.replace(new.http, host=host), new.log
        )

    order, bound = order_of(config), None
    if config.bridge.port is not None:
        http = msgspec.structs.replace(config.http, host=host, port=config.bridge.port)
        check_tls(http, "bridge")
        bound = bind(http, "bridge")
    process = BridgeProcess(order, core.runtime.clock, bound)
    core.life.add(
        Steps("bridge", start=process.start, request_stop=process.request_stop, join=process.finish), Phase.API
    )
    if bound is not None and api is not None:
        api.facts["bridge"] = {"port": int(bound.getsockname()[1])}

    def reload(new: Config) -> Callable[[], None]:
        wanted = order_of(new)
        if new.bridge.port != config.bridge.port:
            log.warning("bridge.port takes effect after a restart")

        def use() -> None:
            nonlocal order
            if wanted != order:  # targets are connected again, and go on where they were
                order = wanted
                process.change(order)

        return use

    return [reload]


def _addresses(config: Config, endpoint: str, url: str | None, token: Secret) -> list[DaemonAddress]:
    """The daemons of `bridge.daemons`, which do not get the token, or else the one that runs here."""
    from daemon.peers.addresses import DaemonAddress, bridged_addresses, server_key_of

    if config.bridge.daemons:
        return bridged_addresses(config, None)
    key = server_key_of(config.publisher, "bridge.daemons")
    return [DaemonAddress("here", endpoint, url, token, key, is_here=True)]
