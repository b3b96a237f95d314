"""The bridge's own account over HTTP: for Prometheus, for the page, and for who starts it."""

from __future__ import annotations

import socket
from collections.abc import Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from daemon.bridge.exposition import BridgeExposition
from daemon.bridge.report import BridgeReport
from daemon.clock import Clock
from daemon.config.bridge import BridgeConfig
from daemon.config.http import HttpConfig
from daemon.http.access import Access
from daemon.http.answers import json_answer
from daemon.http.exposition import CONTENT_TYPE
from daemon.http.health import HEALTH
from daemon.http.operation import Answer, Operation
from daemon.http.routes import application
from daemon.http.server import HttpServer

_END_S = 1.0
_FIXED = "host", "tls_certificate", "tls_key"
Report = Callable[[], BridgeReport]


def http_of(bridge: BridgeConfig, http: HttpConfig) -> HttpConfig:
    """Host, tokens and certificate of the API, with the bridge's port, which is set."""
    return msgspec.structs.replace(http, enabled=True, port=bridge.port or 0)


class BridgeOperations:
    """
    Args:
        report: of now.
    """

    def __init__(self, report: Report, access: Access) -> None:
        self._report, self._access = report, access
        self._exposition = BridgeExposition(report)

    def operations(self) -> list[Operation]:
        healthy = {200: Answer("Yes", HEALTH), 503: Answer("No, and why", HEALTH)}
        return [
            Operation("GET", "/healthz", self._health, "public", "The spool is written, and a daemon heard", healthy),
            Operation("GET", "/metrics", self._metrics, "local", "Figures for Prometheus", {200: Answer("text")}),
            Operation("GET", "/api/v1/bridge", self._show, "view",
                      "Targets, daemons and the spool", {200: Answer("All", BridgeReport)}),
        ]  # fmt: skip

    async def _health(self, request: Request) -> Response:
        reasons = problems(self._report())
        shown = reasons if self._access.may_view(request) else []
        return json_answer({"ok": not reasons, "reasons": shown}, 503 if reasons else 200)

    async def _metrics(self, _: Request) -> Response:
        return Response(self._exposition.text(), media_type=CONTENT_TYPE)

    async def _show(self, _: Request) -> Response:
        return json_answer(self._report())


def problems(report: BridgeReport) -> list[str]:
    """Why nothing new can be passed on; empty if it can. A target that is away is none: its records wait."""
    found = [f"the spool: {report.spool.failure}"] if report.spool.failure else []
    if not any(row.state == "up" for row in report.feeds):
        found += [f"daemon {row.daemon} is {row.state}: {row.reason or 'not heard yet'}" for row in report.feeds[:10]]
    return found


def bridge_application(report: Report, access: Access) -> Starlette:
    """The account, for those that may see it."""
    return application(BridgeOperations(report, access).operations(), access)


class BridgeServer:
    """Serves the account. The constructor binds the port, unless it gets one that is bound.

    Args:
        config: of `http_of`.

    Attributes:
        port: that is bound.

    Raises:
        ConfigError: the port cannot be bound, or a token or a TLS file cannot be read.
    """

    def __init__(self, config: HttpConfig, report: Report, clock: Clock, bound: socket.socket | None = None) -> None:
        self._config, self._access = config, Access(config, clock)
        self._server = HttpServer(config, "bridge", bound=bound)
        self._server.mount(bridge_application(report, self._access))
        self.port = self._server.port

    def start(self) -> None:
        self._server.start()

    def reload(self, http: HttpConfig) -> Callable[[], bool]:
        """Read the tokens again; the function that it returns puts them into use, and says whether they differ.

        Raises:
            ConfigError: one cannot be read; those of before stay.
        """
        return self._access.reload(http)

    def later(self, http: HttpConfig) -> list[str]:
        """Keys that differ and take a restart."""
        return [f"http.{name}" for name in _FIXED if getattr(http, name) != getattr(self._config, name)]

    @property
    def is_alive(self) -> bool:
        """Whether it serves."""
        return self._server.is_alive()

    def close(self) -> None:
        """Stop serving. A second call does nothing."""
        self._server.stop(_END_S)
