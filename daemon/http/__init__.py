"""The daemon's HTTP API: health, metrics, sources and snapshots. Its libraries are an optional extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.clock import Clock
from daemon.config import HttpConfig
from daemon.errors import ConfigError

if TYPE_CHECKING:
    from daemon.http.access import Access
    from daemon.http.server import HttpServer


def open_http(config: HttpConfig, clock: Clock) -> tuple[HttpServer, Access]:
    """The server, bound to its port, and its access control.

    Raises:
        ConfigError: the port cannot be bound, a token cannot be read, or a library is not installed.
    """
    try:
        from daemon.http.access import Access
        from daemon.http.server import HttpServer
    except ImportError as error:
        raise ConfigError(f"http needs {error.name}: pip install '.[http]'") from error
    access = Access(config, clock)
    return HttpServer(config), access
