"""The HTTP server thread."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn

from daemon.config.http import HttpConfig
from daemon.errors import ConfigError
from daemon.files import check_is_file
from daemon.http.connections import ANSWER_S, limited_protocol

if TYPE_CHECKING:
    from starlette.applications import Starlette

log = structlog.get_logger(__name__)
logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # errors of clients do not concern the operator
_MAX_CONNECTIONS = 512  # fewer if the process may open few files
_FILE_SHARE = 4
_KEEP_ALIVE_S = 10
_SHUTDOWN_TIMEOUT_S = 0.2  # for open requests; from Python 3.12 on uvicorn has no other limit


class HttpServer(threading.Thread):
    """Binds the port in the constructor, so that a port in use is known before anything slow starts.

    `mount` comes before `start`.

    Args:
        section: of the configuration, for messages.
        bound: a port that is bound already.
        answer_s: from a request to the end of its answer.

    Raises:
        ConfigError: the port cannot be bound, or the TLS files cannot be read.
    """

    def __init__(
        self,
        config: HttpConfig,
        section: str = "http",
        *,
        bound: socket.socket | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        super().__init__(name="http", daemon=True)
        self._config, self._answer_s = config, answer_s
        check_tls(config, section)
        self._socket = bound or bind(config, section)
        self.port = int(self._socket.getsockname()[1])
        self._server: uvicorn.Server | None = None
        self._on_start: Callable[[], None] | None = None

    def mount(
        self,
        app: Starlette,
        websockets: type[asyncio.Protocol] | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> None:
        """Set the application, which is served from the start on.

        Args:
            websockets: protocol of WebSockets; None for none.
            on_start: called in the server's event loop before the first request.
        """
        config, self._on_start = self._config, on_start
        settings = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,  # type: ignore[arg-type]  # asyncio accepts fractions
            h11_max_incomplete_event_size=16 << 10,
            http=limited_protocol(
                min(_MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _FILE_SHARE), self._answer_s
            ),
            ws=websockets or "none",
            ws_max_size=16 << 10,
            ws_per_message_deflate=False,
            ssl_certfile=config.tls_certificate,
            ssl_keyfile=config.tls_key,
        )
        self._server = uvicorn.Server(settings)

    def run(self) -> None:
        server = self._server
        if server is None:
            return
        try:
            asyncio.run(self._serve(server))
        except Exception:
            log.exception("http failed: the daemon goes on without it")

    async def _serve(self, server: uvicorn.Server) -> None:
        asyncio.get_running_loop().set_exception_handler(_on_loop_error)
        if self._on_start is not None:
            self._on_start()
        await server.serve(sockets=[self._socket])
        for connection in [*server.server_state.connections]:
            connection.transport.abort()  # its client does not read the answer
        await asyncio.sleep(0)  # lets them close

    def stop(self, timeout_s: float) -> None:
        """Close the port, within the time; open requests are cut off."""
        if self._server:
            self._server.should_exit = True
        if self.ident is not None:
            self.join(timeout_s)
        self._socket.close()


def _on_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For example when no descriptor is left to accept a connection; asyncio retries in a second."""
    log.warning("http is in trouble", what=context["message"], reason=str(context.get("exception", "")))


def check_tls(config: HttpConfig, section: str) -> None:
    if config.tls_certificate is None or config.tls_key is None:
        return
    for key, path in (("tls_certificate", config.tls_certificate), ("tls_key", config.tls_key)):
        try:
            check_is_file(path)
            path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{section}.{key}: {path} cannot be read: {error.strerror}") from error
    try:
        # An empty password, so that OpenSSL never asks for one at a terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_certificate, config.tls_key, password=b"")
    except ssl.SSLError as error:
        raise ConfigError(f"{section}.tls_certificate, tls_key: cannot be read: {error}") from error


def bind(config: HttpConfig, section: str) -> socket.socket:
    """A socket that listens.

    Raises:
        ConfigError: the port cannot be bound.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio disables Nagle's algorithm, which costs 40 ms an answer, only if the protocol is given as TCP.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((config.host, config.port))
        found.listen(128)
    except OSError as error:
        found.close()
        raise ConfigError(
            f"{section}: cannot bind {config.host}:{config.port}: {error.strerror}; choose another port"
        ) from error
    return found
