"""Daemons of a fleet as processes, over a real etcd."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.records import FleetView, SourceRecord
from tests.fleet.etcd_server import EtcdServer
from tests.support.daemon import PATIENCE_S, Lookout, wait_until
from tests.support.ports import free_port
from tests.support.served import TOKEN


class Daemons:
    """Attributes:
    coordinator: of the same fleet.
    ports: of the HTTP API of each daemon.
    """

    def __init__(self, folder: Path, server: EtcdServer, fleet: str, ttl_s: float = 2.0) -> None:
        self.folder, self._server, self._name, self._ttl_s = folder, server, fleet, ttl_s
        self.coordinator = EtcdCoordinator(server.settings(), fleet)
        self.running: dict[str, Lookout] = {}
        self.ports: dict[str, int] = {}
        self._stack = ExitStack()
        self._stack.callback(self.coordinator.close)

    def start(self, name: str, **fleet: Any) -> Lookout:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.ports[name] = free_port()
        settings = {"coordinator": f"etcd://127.0.0.1:{self._server.port}", "name": self._name, "ttl_s": self._ttl_s}
        config: dict[str, object] = {
            "sources": [],
            "model": {"path": "none.onnx", "backend": "fake"},
            "http": {"enabled": True, "port": self.ports[name], "token": TOKEN},
            "monitor": {"interval_s": 0.5, "stall_after_s": 60},
            "events": {"journal": "off"},
            "fleet": {**settings, "member": name, "address": "127.0.0.1", **fleet},
        }
        lookout = self.running[name] = Lookout(folder, config)
        self._stack.callback(lookout.close)
        return lookout

    def add(self, *sources: str, fps: float = 5.0, **record: Any) -> None:
        rows = {id: {"id": id, "type": "synthetic", "width": 64, "height": 48, "fps": fps} for id in sources}
        records = {id: SourceRecord(config=row, **record) for id, row in rows.items()}
        self.coordinator.put_sources(records, replace=False)

    def client(self, name: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.ports[name]}", headers=headers, timeout=PATIENCE_S)

    def owners(self) -> dict[str, str]:
        return {id: row.member for id, row in self.coordinator.view().owned.items()}

    def wait_for_members(self, *names: str) -> None:
        wait_until(partial(self._are_ready, names), f"{names} are ready", 2 * PATIENCE_S)

    def wait_until_owned(self, count: int) -> FleetView:
        """Wait until so many sources have their owner, and no other."""
        wait_until(partial(self._is_owned, count), f"{count} sources are owned: {self.owners()}")
        return self.coordinator.view()

    def _are_ready(self, names: tuple[str, ...]) -> bool:
        members = self.coordinator.view().members
        return all(name in members and members[name].state == "ready" for name in names)

    def _is_owned(self, count: int) -> bool:
        view = self.coordinator.view()
        wanted = {id: want.member for id, want in view.wants.items()}
        settled = [id for id, row in view.owned.items() if wanted.get(id) == row.member]
        return len(settled) == count == len(view.owned)

    def close(self) -> None:
        self._stack.close()
