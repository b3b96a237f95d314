"""Requests over HTTP beside changes that take long, and beside the end of the daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from daemon.app import App
from daemon.config import HttpConfig, SourceConfig
from daemon.http import routes
from daemon.kept import Kept
from daemon.redact import Secret
from daemon.sources.decoding import Hardware
from daemon.sources.factory import make_source
from daemon.sources.port import Source
from tests.lifetimes.gate import Gate
from tests.lifetimes.running import STREET, config_of, edit, running, wait_up
from tests.support.ports import free_port

_TOKEN = "a-token-of-forty-characters-or-so-00001"  # noqa: S105 - of these tests
_GARDEN = {"id": "garden", "type": "synthetic", "fps": 50, "width": 16, "height": 16}
_PATIENCE_S = 60.0


class Served:
    """A daemon with the interface and a file for what is persisted; making the source `garden` may be held."""

    def __init__(self, file: Path) -> None:
        self.port, self.file, self.making = free_port(), file, Gate()
        self.http = HttpConfig(enabled=True, port=self.port, token=Secret(_TOKEN), sources_file=file)
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=_PATIENCE_S)

    @contextmanager
    def running(self, folder: Path, *sources: SourceConfig, **more: Any) -> Iterator[App]:
        """Whose configuration file names these sources."""
        whole = config_of(*sources, http=self.http)
        parts = {"make_source": self._make, "read": lambda: Kept(self.file).over(whole), **more}
        with self.client, running(folder, *sources, config={"http": self.http}, **parts) as app:
            try:
                yield app
            finally:
                self.making.open()

    def _make(self, config: SourceConfig, hardware: Hardware) -> Source:
        if config.id == "garden":
            self.making()
        return make_source(config, hardware)

    def add_garden(self) -> httpx.Response:
        return self.client.post("/api/v1/sources?persist=true", json=_GARDEN)

    @property
    def kept(self) -> list[str]:
        """Ids of the sources in the file."""
        return [row["id"] for row in json.loads(self.file.read_text())["sources"]]


def _ids(app: App) -> list[str]:
    return [source.id for source in app.config.sources]


def test_a_reload_behind_a_change_that_is_persisted_does_not_undo_it(tmp_path: Path) -> None:
    """D21: it is asked for while the change is made, and reads the file that the change has written."""
    served = Served(tmp_path / "sources.json")
    with served.running(tmp_path, STREET) as app, ThreadPoolExecutor(1) as beside:
        served.making.close()
        answer = beside.submit(served.add_garden)
        served.making.wait_for_one()
        reload = app.reload_file()
        served.making.open()
        reload.result(_PATIENCE_S)
        assert answer.result(_PATIENCE_S).status_code == 201
        assert _ids(app) == served.kept == ["street", "garden"]


def test_a_change_that_goes_on_after_its_answer_is_persisted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_PATIENCE_S", 0.01)
    served = Served(tmp_path / "sources.json")
    with served.running(tmp_path, STREET) as app:
        served.making.close()
        answer = served.add_garden()
        assert (answer.status_code, answer.json()["error"]) == (504, "it takes longer than a minute, and goes on")
        served.making.open()
        edit(app, lambda rows: rows).result(_PATIENCE_S)  # stands behind it
        assert _ids(app) == served.kept == ["street", "garden"]


def test_a_change_that_cannot_be_persisted_is_not_made(tmp_path: Path) -> None:
    """D21: such as on a full disk."""
    served = Served(tmp_path / "missing" / "sources.json")
    with served.running(tmp_path, STREET) as app:
        answer = served.add_garden()
        assert answer.status_code == 422
        assert "cannot be written" in answer.json()["error"]
        assert _ids(app) == [capture.id for capture in app.sources.captures] == ["street"]
        assert served.client.post("/api/v1/sources", json=_GARDEN).status_code == 201
        wait_up(app, "street", "garden")
        assert app.problems() == []
