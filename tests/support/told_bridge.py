"""A daemon whose HTTP API tells of a bridge, and the real server of such an account, which tells what a test wants."""

from __future__ import annotations

from contextlib import ExitStack

import zmq
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from daemon.bridge.http import BridgeServer
from daemon.bridge.report import BridgeReport
from daemon.clock import SystemClock
from daemon.config.http import HttpConfig, TokenConfig
from daemon.http.server import HttpServer
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret

_TOKEN = "a-token-that-is-long-enough"  # noqa: S105 - of these tests


class ToldBridge:
    """
    Attributes:
        report: that is told.
        asked: how often.
        told: what the daemon tells of the bridge.
    """

    def __init__(self, report: BridgeReport) -> None:
        self.report, self.asked = report, 0
        config = HttpConfig(enabled=True, port=0, tokens=[TokenConfig("page", "view", Secret(_TOKEN))])
        routes = [Route("/api/v1/daemon", self._daemon), Route("/api/v1/sources", self._sources)]
        with ExitStack() as undo:
            context = zmq.Context()
            undo.callback(context.destroy, 0)
            publisher = context.socket(zmq.PUB)
            undo.callback(publisher.close, 0)
            self._endpoint = f"tcp://127.0.0.1:{publisher.bind_to_random_port('tcp://127.0.0.1')}"
            bridge = BridgeServer(config, self._report, SystemClock())
            undo.callback(bridge.close)
            api = HttpServer(config, "test")
            undo.callback(api.stop, 2)
            api.mount(Starlette(routes=routes))
            bridge.start()
            api.start()
            self._undo = undo.pop_all()
        self.told: dict[str, int] | None = {"port": bridge.port}
        self.url = f"http://127.0.0.1:{api.port}"

    def address(self, name: str = "here", token: str = _TOKEN) -> DaemonAddress:
        return DaemonAddress(name, self._endpoint, self.url, Secret(token))

    def _report(self) -> BridgeReport:
        self.asked += 1
        return self.report

    async def _daemon(self, _: Request) -> JSONResponse:
        return JSONResponse({"version": "1", "bridge": self.told})

    async def _sources(self, _: Request) -> JSONResponse:
        return JSONResponse([])

    def close(self) -> None:
        self._undo.close()

    def __enter__(self) -> ToldBridge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
