"""Many clients at once change sources while the daemon is killed again and again: nothing that was kept is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
import yaml
import zmq

from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout, wait_until
from tests.support.ports import free_port
from tests.support.served import HEADERS, TOKEN

_SECONDS = float(os.environ.get("LOOKOUT_API_SECONDS", "12"))
_CLIENTS = int(os.environ.get("LOOKOUT_API_CLIENTS", "50"))
_ENABLED = 4  # clients whose sources are connected, to nothing; the others' are disabled
_LIVES_S = 4.0  # of a daemon, before it is killed
_ANY = object()  # what a source is, where nobody was told


class Daemon:
    """One after the other, on the same ports and files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.file = folder / "sources.json"
        self._endpoint = f"tcp://127.0.0.1:{free_port()}"
        self.logs: list[str] = []
        self.told: list[str] = []  # status messages
        self._lookout: Lookout | None = None

    def listen(self, stop: threading.Event) -> None:
        """What every life of it says of sources, as it comes over the wire."""
        context = zmq.Context()
        with context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.SUBSCRIBE, b"status/")
            socket.connect(self._endpoint)
            while not stop.is_set():
                if socket.poll(100):
                    self.told.append(b" ".join(socket.recv_multipart()).decode())
        context.term()

    def start(self) -> None:
        http = {"enabled": True, "port": self.port, "token": TOKEN, "sources_file": str(self.file)}
        config: dict[str, object] = {
            "sources": [{"id": "street", "type": "synthetic", "width": 64, "height": 64, "fps": 5}],
            "model": {"path": str(DEMO_MODEL), "backend": "fake"},
            "publisher": {"endpoint": self._endpoint},
            "http": {**http, "max_sources": 1000},
        }
        self._lookout = Lookout(self.folder, config)
        wait_until(self._is_ready, "it is ready")

    def kill(self) -> None:
        assert self._lookout is not None
        self._lookout.process.send_signal(signal.SIGKILL)
        self._lookout.process.wait(PATIENCE_S)
        self._note()

    def stop(self) -> int:
        assert self._lookout is not None
        code = self._lookout.stop()
        self._note()
        return code

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=HEADERS, timeout=PATIENCE_S)

    def _is_ready(self) -> bool:
        with self.client() as client:
            try:
                return client.get("/startup").status_code == 200
            except httpx.TransportError:
                return False

    def _note(self) -> None:
        assert self._lookout is not None
        self.logs.append(self._lookout.log())
        self._lookout.close()


class Client(threading.Thread):
    """Owns some sources, and looks at all.

    Attributes:
        known: what was answered of each of its sources: its `max_fps`, None if it is gone; `_ANY` after no answer.
        secret: that it sets, and nobody should see again.
    """

    def __init__(self, number: int, daemon: Daemon, stop: threading.Event) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._daemon, self._stopping, self._chance = daemon, stop, random.Random(number)
        self.ids = [f"c{number}-{name}" for name in "abc"]
        self._passing = f"p{number}"  # which is never asked to be kept
        self._enabled = number < _ENABLED
        self.known: dict[str, object] = dict.fromkeys(self.ids)
        self.secret = f"pass-{number}-word"
        self.seen: list[str] = []
        self.codes: set[int] = set()

    def run(self) -> None:
        with self._daemon.client() as client:
            while not self._stopping.is_set():
                id, rate = self._chance.choice(self.ids), self._chance.randrange(1, 100)
                try:
                    self._one(client, id, rate)
                except httpx.TransportError:  # it was killed, or is not there yet
                    self._stopping.wait(0.1)

    def _one(self, client: httpx.Client, id: str, rate: int) -> None:
        one, persist = f"/api/v1/sources/{id}", {"persist": "true"}
        whole = {"id": id, "type": "av", "url": f"rtsp://127.0.0.1:9/{id}", "user": "me", "password": self.secret,
                 "enabled": self._enabled, "max_fps": rate}  # fmt: skip
        match self._chance.randrange(8):
            case 0:
                self._changes(id, rate, lambda: client.post("/api/v1/sources", json=whole, params=persist), (201,))
            case 1:
                self._changes(id, rate, lambda: client.patch(one, json={"max_fps": rate}, params=persist), (200,))
            case 2:
                self._put_back(client, id, rate)
            case 3:
                self._changes(id, None, lambda: client.delete(one, params=persist), (204,))
            case 4:
                self._look(client.get("/api/v1/sources"))
            case 5:
                self._look(client.post("/api/v1/sources", json={**whole, "id": self._passing}))
            case 6:
                self._look(client.patch(f"/api/v1/sources/{self._passing}", json={"max_fps": rate}))
            case _:
                self._look(client.get(one))

    def _put_back(self, client: httpx.Client, id: str, rate: int) -> None:
        """As it was read, with another rate."""
        one = f"/api/v1/sources/{id}"
        answer = client.get(one)
        self._look(answer)
        if answer.status_code == 200:
            body = {**answer.json()["config"], "max_fps": rate}
            self._changes(id, rate, lambda: client.put(one, json=body, params={"persist": "true"}), (200,))

    def _changes(self, id: str, to: object, send: Any, done: tuple[int, ...]) -> None:
        before, self.known[id] = self.known[id], _ANY
        answer = send()
        self._look(answer)
        if answer.status_code in done:
            self.known[id] = to
        elif answer.status_code < 500:  # refused: it is as it was, unless nobody knows what that is
            self.known[id] = before

    def _look(self, answer: httpx.Response) -> None:
        self.codes.add(answer.status_code)
        self.seen.append(answer.text)


@pytest.mark.long
def test_many_clients_and_a_daemon_that_is_killed(tmp_path: Path) -> None:
    """LOOKOUT_API_SECONDS=60 for a minute."""
    daemon, stop = Daemon(tmp_path), threading.Event()
    daemon.start()
    clients = [Client(number, daemon, stop) for number in range(_CLIENTS)]
    listener = threading.Thread(target=daemon.listen, args=(stop,), daemon=True)
    for thread in (*clients, listener):
        thread.start()
    until = monotonic() + _SECONDS
    while monotonic() < until:
        stop.wait(_LIVES_S)
        daemon.kill()
        daemon.start()
    asked = [len(client.seen) for client in clients]
    more = 3 * len(clients[0].ids)  # so that what most sources are is known
    wait_until(lambda: all(len(client.seen) >= most + more for client, most in zip(clients, asked)), "each is answered")
    stop.set()
    for thread in (*clients, listener):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    with daemon.client() as looking:
        last = looking.patch("/api/v1/sources/street", json={"max_fps": 4}, params={"persist": "true"})
        assert last.status_code == 200  # all that there is is kept with it
        rows = {row["config"]["id"]: row["config"] for row in looking.get("/api/v1/sources").json()}
    kept = {row["id"]: row for row in json.loads(daemon.file.read_text())["sources"]}
    assert daemon.stop() == 0
    _check(daemon, clients, rows, kept)


def _check(
    daemon: Daemon, clients: list[Client], rows: dict[str, dict[str, Any]], kept: dict[str, dict[str, Any]]
) -> None:
    assert set(rows) == set(kept)
    assert any(id.startswith("p") for id in rows)
    hidden = ("password", "user")
    for id, row in rows.items():
        assert {key: value for key, value in kept[id].items() if key not in hidden}.items() <= row.items(), id
    told = 0
    for client in clients:
        assert client.codes <= {200, 201, 204, 404, 409, 503}
        for id, known in client.known.items():
            if known is not _ANY:
                told += 1
                assert (rows[id]["max_fps"] if id in rows else None) == known, id
            if id in kept:
                assert kept[id]["password"] == client.secret
    assert told > _CLIENTS
    assert any('"state":"down"' in text for text in daemon.told)
    public = "".join(text for client in clients for text in client.seen) + "".join(daemon.logs + daemon.told)
    public += "".join(path.read_text() for path in daemon.folder.iterdir() if path != daemon.file and path.is_file())
    assert [client.secret for client in clients if client.secret in public] == []
    assert "Traceback" not in public
    assert [path.name for path in daemon.folder.iterdir() if path.name.startswith(".sources")] == []
    assert yaml.safe_load(daemon.file.read_text())["about"].startswith("written by Lookout")
