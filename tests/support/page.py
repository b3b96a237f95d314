"""The page's server in this process, in front of real daemons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import msgspec

from daemon.clock import Clock, SystemClock
from daemon.config.http import DashboardConfig
from daemon.dashboard.server import Dashboard
from daemon.peers.addresses import DaemonAddress
from daemon.redact import Secret
from tests.support.daemon import PATIENCE_S, wait_until
from tests.support.ports import free_port
from tests.support.served import TOKEN, Served
from tests.support.websocket import WebSocketClient


def address_of(served: Served, name: str = "here") -> DaemonAddress:
    return DaemonAddress(name, served.lookout.endpoint, served.url, Secret(TOKEN))


class Page:
    """A page of some daemons, ready once it knows the sources of each that it waits for."""

    def __init__(
        self,
        addresses: Sequence[DaemonAddress],
        config: DashboardConfig | None = None,
        clock: Clock | None = None,
        awaits: Sequence[str] = ("here",),
    ) -> None:
        self.port = free_port()
        config = msgspec.structs.replace(config or DashboardConfig(), port=self.port)
        self.dashboard = Dashboard(config, addresses, clock or SystemClock())
        self.dashboard.start()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, headers={"Origin": self.url}, timeout=PATIENCE_S)
        if awaits:
            wait_until(lambda: self._knows(awaits), "it knows the daemons")

    def _knows(self, names: Sequence[str]) -> bool:
        hub = self.dashboard.hub
        return all(hub.daemons[name].rows and hub.daemons[name].statuses for name in names)

    def get(self, path: str, **parameters: str) -> Any:
        """The body of an answer, which must be a success."""
        answer = self.client.get(path, params=parameters)
        assert answer.is_success, answer.text
        return answer.json()

    def sources(self) -> dict[str, Any]:
        return {row["id"]: row for row in self.get("/api/sources")}

    def socket(self, path: str, **headers: str) -> WebSocketClient:
        return WebSocketClient(self.port, path, **headers)

    def close(self) -> None:
        self.client.close()
        self.dashboard.close()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
