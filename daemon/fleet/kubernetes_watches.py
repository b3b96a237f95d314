"""Changes of a fleet's Leases and ConfigMaps in the order in which Kubernetes tells them, each kind from a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from daemon.fleet.kubernetes_client import GoneError, Kind, KubernetesClient
from daemon.fleet.kubernetes_objects import Event
from daemon.fleet.port import CoordinatorError
from daemon.system.http_client import HttpConnection
from daemon.system.stop_token import StopToken


@dataclass(frozen=True)
class Change:
    kind: Kind
    event: Event


class Watches:
    """Attributes:
    must_list: the server no longer has the changes; the watches have ended.
    """

    def __init__(self, client: KubernetesClient, labels: Mapping[str, str], versions: Mapping[Kind, int]) -> None:
        self._client, self._labels = client, labels
        self._arrived: queue.SimpleQueue[Change | Exception] = queue.SimpleQueue()
        self._ending, self.must_list = StopToken(), False
        self._lock, self._open = threading.Lock(), dict[Kind, HttpConnection]()
        self._threads = [
            threading.Thread(target=self._run, args=row, name=f"watch-{row[0]}", daemon=True)
            for row in versions.items()
        ]
        for thread in self._threads:
            thread.start()

    def changes(self, wait_s: float) -> list[Change]:
        """Changes that are there, after so many seconds at most.

        Raises:
            CoordinatorAwayError, CoordinatorError: a watch has ended.
        """
        found: list[Change] = []
        try:
            arrived = self._arrived.get(timeout=wait_s)
            while True:
                if isinstance(arrived, GoneError):
                    self.must_list = True
                elif isinstance(arrived, Exception):
                    raise arrived
                else:
                    found.append(arrived)
                arrived = self._arrived.get_nowait()
        except queue.Empty:
            return found

    def close(self) -> None:
        """End the watches, which takes no time: their threads end with their connections."""
        self._ending.set()
        with self._lock:
            for connection in self._open.values():
                connection.interrupt()

    def _opened(self, kind: Kind, connection: HttpConnection) -> None:
        with self._lock:
            self._open[kind] = connection
            if self._ending.is_set:
                connection.interrupt()

    def _run(self, kind: Kind, version: int) -> None:
        try:
            while not self._ending.is_set:
                with self._client.watch(kind, self._labels, version, partial(self._opened, kind)) as events:
                    for event in events:
                        version = event.object.version or version
                        self._arrived.put(Change(kind, event))
        except CoordinatorError as error:
            self._arrived.put(error)
