"""The process of the page: connections to daemons, and the server for browsers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing

import structlog
import zmq

from daemon.clock import Clock
from daemon.config.http import DashboardConfig, HttpConfig, is_loopback
from daemon.dashboard.hub import Hub
from daemon.dashboard.live import Live
from daemon.dashboard.routes import PageRoutes
from daemon.dashboard.seen import SeenMarks, seen_file_of
from daemon.dashboard.sessions import Sessions
from daemon.http.connections import limited_websockets
from daemon.http.server import HttpServer
from daemon.peers.addresses import DaemonAddress
from lookout.client import use_curve

log = structlog.get_logger(__name__)
_END_S = 2.0
_ANSWER_S = 3600.0  # a clip of ten minutes over a slow line


class Dashboard:
    """The page's server; the constructor binds its port.

    Attributes:
        url: for a browser on this machine.
        hub: the daemons, and what is known of them.
        live: watched sources.

    Raises:
        ConfigError: the port cannot be bound, a token or key cannot be read, or a file of its state is refused.
    """

    def __init__(self, config: DashboardConfig, addresses: Sequence[DaemonAddress], clock: Clock) -> None:
        http = http_of(config)
        with ExitStack() as opened:
            self._sessions = opened.enter_context(closing(Sessions(config, clock)))
            self._marks = opened.enter_context(closing(SeenMarks(seen_file_of(config.seen, config.port), clock)))
            for address in addresses:
                _check_keys(address)
            self._server = HttpServer(http, "dashboard", answer_s=_ANSWER_S)
            opened.pop_all()
        self.url = _url(config, self._server.port)
        self.hub = Hub(addresses, clock)
        self.live = Live(self.hub, clock)
        routes = PageRoutes(config, self.hub, self.live, self._sessions, self._marks, clock)
        self._app = routes.starlette()
        if not is_loopback(config.host) and config.tls_certificate is None:
            log.warning("the page is not encrypted: set dashboard.tls_certificate, or put a proxy with TLS before it")

    def start(self) -> None:
        self._server.mount(self._app, limited_websockets(), self.hub.start)
        self._server.start()

    @property
    def is_alive(self) -> bool:
        """Whether it serves."""
        return self._server.is_alive()

    def close(self) -> None:
        """Stop serving, and leave the daemons. A second call does nothing."""
        self._server.stop(_END_S)
        self.live.close()
        self.hub.close()
        self._sessions.close()
        self._marks.close()


def http_of(config: DashboardConfig) -> HttpConfig:
    """Host, port and certificate of the page."""
    return HttpConfig(
        enabled=True,
        host=config.host,
        port=config.port,
        tls_certificate=config.tls_certificate,
        tls_key=config.tls_key,
    )


def _check_keys(address: DaemonAddress) -> None:
    """Raises:
    ConfigError: a CURVE key cannot be read.
    """
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        use_curve(socket, address.server_key, address.secret_key)


def _url(config: DashboardConfig, port: int) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(config.host, config.host)  # noqa: S104 - not bound here
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{'https' if config.tls_certificate else 'http'}://{shown}:{port}/"
