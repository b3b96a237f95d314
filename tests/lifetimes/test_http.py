"""HTTP requests beside slow changes, and beside the end of the daemon."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from daemon.config.http import HttpConfig
from daemon.config.sources import SourceConfig
from daemon.control.source_store import SourceStore
from daemon.daemon import Daemon
from daemon.http import source_pictures, submission
from daemon.http.server import HttpServer
from daemon.http.snapshots import Snapshots
from daemon.redact import Secret
from daemon.sources.decode import DecoderPool
from daemon.sources.factory import make_source
from daemon.sources.port import Source
from daemon.system.time_limits import Limits
from detectors.fake.detector import FakeDetector
from detectors.port import Options
from tests.lifetimes.gate import Gate
from tests.lifetimes.parts import Camera
from tests.lifetimes.rig import wait_until
from tests.lifetimes.running import STREET, config_of, edit, running, wait_up
from tests.support.ports import free_port

_TOKEN = "a-token-of-forty-characters-or-so-00001"  # noqa: S105 - of these tests
_GARDEN = {"id": "garden", "type": "synthetic", "fps": 50, "width": 16, "height": 16}
_TIMEOUT_S = 60.0
_AMPLE = Limits(stop=20)  # for a crowded machine to answer in


class Served:
    """A daemon with the API and a file of persisted sources; making the source `garden` can be held."""

    def __init__(self, file: Path) -> None:
        self.port, self.file, self.making = free_port(), file, Gate()
        self.http = HttpConfig(enabled=True, port=self.port, token=Secret(_TOKEN), sources_file=file)
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=_TIMEOUT_S)

    @contextmanager
    def running(self, folder: Path, *sources: SourceConfig, **more: Any) -> Iterator[Daemon]:
        """A client whose configuration file names these sources."""
        whole = config_of(*sources, http=self.http)
        parts = {"make_source": self._make, "read": lambda: SourceStore(self.file).apply_to(whole), **more}
        with self.client, running(folder, *sources, config={"http": self.http}, **parts) as app:
            try:
                yield app
            finally:
                self.making.open()

    def _make(self, config: SourceConfig, hardware: DecoderPool) -> Source:
        if config.id == "garden":
            self.making()
        return make_source(config, hardware)

    def snapshot(self, id: str) -> httpx.Response:
        return self.client.get(f"/api/v1/sources/{id}/snapshot.jpg?boxes=true")

    def add_garden(self) -> httpx.Response:
        return self.client.post("/api/v1/sources?persist=true", json=_GARDEN)

    @property
    def kept(self) -> list[str]:
        """Ids of the sources in the file."""
        return [row["id"] for row in json.loads(self.file.read_text())["sources"]]


def _note_of_takes(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a snapshot is requested."""
    taking, take = threading.Event(), Snapshots.jpeg

    def noted(*args: Any, **more: Any) -> Any:
        taking.set()
        return take(*args, **more)

    monkeypatch.setattr(Snapshots, "jpeg", noted)
    return taking


def _settle(app: Daemon) -> None:
    """Wait until each captured frame is accounted for."""
    wait_until(lambda: all(count.in_flight == 0 for count in app.ledger.counts().values()), "all frames are out")


def _ids(app: Daemon) -> list[str]:
    return [source.id for source in app.changes.config.sources]


def test_a_reload_behind_a_change_that_is_persisted_does_not_undo_it(tmp_path: Path) -> None:
    """A reload that is requested during a change reads the file that the change has written."""
    served = Served(tmp_path / "sources.json")
    with served.running(tmp_path, STREET) as app, ThreadPoolExecutor(1) as beside:
        served.making.close()
        answer = beside.submit(served.add_garden)
        served.making.wait_for_one()
        reload = app.reload()
        served.making.open()
        reload.result(_TIMEOUT_S)
        assert answer.result(_TIMEOUT_S).status_code == 201
        assert _ids(app) == served.kept == ["street", "garden"]


def test_an_operator_sees_a_daemon_whose_change_hangs(tmp_path: Path) -> None:
    """Its status is answered at once; another level of the log waits for its turn, and holds from then on."""
    served = Served(tmp_path / "sources.json")
    with served.running(tmp_path, STREET) as app, ThreadPoolExecutor(2) as beside:
        wait_up(app, "street")
        served.making.close()
        added = beside.submit(served.add_garden)
        served.making.wait_for_one()
        level = beside.submit(served.client.put, "/api/v1/log", json={"level": "warning"})
        found = served.client.get("/api/v1/status").json()
        assert (found["state"], found["log_level"], found["troubles"]) == ("running", "info", [])
        assert [row["id"] for row in found["sources"]] == ["street"]
        served.making.open()
        assert added.result(_TIMEOUT_S).status_code == 201
        assert level.result(_TIMEOUT_S).json() == {"level": "warning"}
        wait_up(app, "street", "garden")
        found = served.client.get("/api/v1/status").json()
        assert found["log_level"] == served.client.get("/api/v1/log").json()["level"] == "warning"
        assert [(row["id"], row["state"]) for row in found["sources"]] == [("street", "up"), ("garden", "up")]
        assert app.reload().result(_TIMEOUT_S).settings == ["log.level"]  # as the file has it


def test_a_change_that_goes_on_after_its_answer_is_persisted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "_TIMEOUT_S", 0.01)
    served = Served(tmp_path / "sources.json")
    with served.running(tmp_path, STREET) as app:
        served.making.close()
        answer = served.add_garden()
        assert (answer.status_code, answer.json()["error"]) == (504, "it takes longer than a minute, and goes on")
        served.making.open()
        edit(app, lambda rows: rows).result(_TIMEOUT_S)  # stands behind it
        assert _ids(app) == served.kept == ["street", "garden"]


def test_a_change_that_cannot_be_persisted_is_not_made(tmp_path: Path) -> None:
    """For example on a full disk."""
    served = Served(tmp_path / "missing" / "sources.json")
    with served.running(tmp_path, STREET) as app:
        answer = served.add_garden()
        assert answer.status_code == 422
        assert "cannot be written" in answer.json()["error"]
        assert _ids(app) == [capture.id for capture in app.sources.captures] == ["street"]
        assert served.client.post("/api/v1/sources", json=_GARDEN).status_code == 201
        wait_up(app, "street", "garden")
        assert app.health.problems() == []


class Named(FakeDetector):
    """Its labels have the model's name in them.

    Attributes:
        closed: set when it is, after its last batch.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.closed = threading.Event()
        labels = tuple(f"{options.path.name}-{label}" for label in self.info.labels)
        self.info = dataclasses.replace(self.info, labels=labels)

    def close(self) -> None:
        self.closed.set()


def test_a_snapshot_names_boxes_as_the_model_that_found_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is swapped while a snapshot is waiting."""
    texts, put_text = list[str](), cv2.putText
    opened: list[Named] = []

    def open_detector(_: object, options: Options) -> Named:
        opened.append(Named(options))
        return opened[-1]

    def noted(picture: Any, text: str, *args: Any) -> Any:
        texts.append(text)
        return put_text(picture, text, *args)

    monkeypatch.setattr(cv2, "putText", noted)
    monkeypatch.setattr(source_pictures, "_TIMEOUT_S", _TIMEOUT_S)
    served, library = Served(tmp_path / "sources.json"), Gate()
    parts = {"open_detector": open_detector, "make_source": lambda _, __: Camera(library)}
    with served.running(tmp_path, STREET, **parts) as app, ThreadPoolExecutor(1) as beside:
        wait_up(app, "street")
        library.close()
        library.wait_for_one()
        _settle(app)
        taking = _note_of_takes(monkeypatch)
        answer = beside.submit(served.snapshot, "street")
        assert taking.wait(_TIMEOUT_S)
        model = msgspec.structs.replace(app.changes.config.model, path=Path("other"))
        app.changes.submit(lambda now: msgspec.structs.replace(now, model=model)).result(_TIMEOUT_S)
        assert opened[0].closed.wait(_TIMEOUT_S)
        library.open()
        assert answer.result(_TIMEOUT_S).status_code == 200
        assert texts == ["other-dark 1.00"]


def test_a_snapshot_that_is_waited_for_when_the_daemon_stops_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, even if the snapshot could wait for a minute; later requests, too."""
    monkeypatch.setattr(source_pictures, "_TIMEOUT_S", _TIMEOUT_S)
    served, library = Served(tmp_path / "sources.json"), Gate()
    with (
        served.running(tmp_path, STREET, make_source=lambda _, __: Camera(library), limits=_AMPLE) as app,
        ThreadPoolExecutor(1) as beside,
    ):
        wait_up(app, "street")
        library.close()
        library.wait_for_one()
        _settle(app)
        taking = _note_of_takes(monkeypatch)
        answer = beside.submit(served.snapshot, "street")
        assert taking.wait(_TIMEOUT_S)
        stopping = threading.Thread(target=app.stop)
        stopping.start()
        found = answer.result(_TIMEOUT_S)  # while the camera still blocks in its library
        assert (found.status_code, found.json()["error"]) == (503, "the daemon is stopping")
        assert served.snapshot("street").status_code == 503
        library.open()
        stopping.join(_TIMEOUT_S)
        assert not stopping.is_alive()


def test_many_snapshots_hold_up_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a wall of cameras without a frame: metrics and health answer, and further snapshots are refused."""
    monkeypatch.setattr(source_pictures, "_TIMEOUT_S", _TIMEOUT_S)
    served, library = Served(tmp_path / "sources.json"), Gate()
    with (
        served.running(tmp_path, STREET, make_source=lambda _, __: Camera(library), limits=_AMPLE) as app,
        ThreadPoolExecutor(40) as beside,
    ):
        wait_up(app, "street")
        library.close()
        library.wait_for_one()
        _settle(app)
        answers = [beside.submit(served.snapshot, "street") for _ in range(40)]
        wait_until(lambda: sum(answer.done() for answer in answers) == 8, "eight are refused")
        assert {answer.result().status_code for answer in answers if answer.done()} == {503}
        assert [served.client.get(path).status_code for path in ("/metrics", "/live", "/ready")] == [200] * 3
        library.open()
        assert sorted(answer.result(_TIMEOUT_S).status_code for answer in answers) == [200] * 32 + [503] * 8


def test_open_requests_leave_the_other_parts_their_time_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example a request that waits for a hanging change; the end of the daemon does not wait for it."""
    given, stop = list[float](), HttpServer.stop

    def noted(server: HttpServer, timeout_s: float) -> None:
        given.append(timeout_s)
        stop(server, timeout_s)

    monkeypatch.setattr(HttpServer, "stop", noted)
    served = Served(tmp_path / "sources.json")
    with ThreadPoolExecutor(1) as beside, served.running(tmp_path, STREET, limits=_AMPLE) as app:
        served.making.close()
        beside.submit(served.add_garden)
        served.making.wait_for_one()
        assert app.stop() == 0
        assert given
        assert max(given) <= _AMPLE.requests


def test_a_client_that_does_not_read_does_not_keep_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on, `wait_closed` waits for every connection; this does so in older versions."""
    asked = threading.Event()

    async def endless(_: Request) -> Response:
        async def zeros() -> AsyncIterator[bytes]:
            while True:
                asked.set()
                yield bytes(1 << 20)

        return StreamingResponse(zeros())

    monkeypatch.setattr(asyncio.base_events.Server, "wait_closed", _wait_for_all)
    server = HttpServer(HttpConfig(enabled=True, port=free_port()))
    server.mount(Starlette(routes=[Route("/", endless)]))
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), _TIMEOUT_S) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(_TIMEOUT_S)
        server.stop(_TIMEOUT_S)
        assert not server.is_alive()


async def _wait_for_all(server: Any) -> None:
    """As Python 3.12 has it."""
    while server._waiters is not None:  # it is closed, and its last connection has gone
        await asyncio.sleep(0.01)
