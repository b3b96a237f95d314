"""The routes of a running daemon and its OpenAPI document are the same table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from daemon.config.http import HttpConfig
from daemon.http.server import HttpServer
from daemon.redact import Secret
from tests.lifetimes.running import STREET, running
from tests.support.ports import free_port

_TOKEN = "a-token-of-forty-characters-or-so-00001"  # noqa: S105 - of these tests
_PUBLIC = {"/live", "/ready", "/startup"}
_LOCAL = {"/metrics", "/openapi.json"}
_REMOTE = {"Host": "camera-wall.example"}  # as a page of another origin asks


@dataclass
class Running:
    """A running daemon as its clients see it.

    Attributes:
        mounted: the application that its server has.
        described: its OpenAPI document.
    """

    client: httpx.Client
    mounted: Starlette
    described: dict[str, Any]

    @property
    def operations(self) -> list[tuple[str, str]]:
        """Methods and paths of the document."""
        return [
            (method.upper(), path)
            for path, item in self.described["paths"].items()
            for method in item
            if method != "parameters"
        ]

    def status(self, method: str, path: str, **headers: str) -> int:
        """Of the answer to a request without a useful body."""
        named = path.replace("{id}", "nothing").replace("{command}", "nothing")
        return self.client.request(method, named, headers=headers).status_code


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    mounted: list[Starlette] = []
    mount, port = HttpServer.mount, free_port()

    def noted(server: HttpServer, app: Starlette, *args: Any, **more: Any) -> None:
        mounted.append(app)
        mount(server, app, *args, **more)

    http = HttpConfig(enabled=True, port=port, token=Secret(_TOKEN))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpServer, "mount", noted)
        with (
            running(tmp_path_factory.mktemp("api"), STREET, config={"http": http}),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):
            yield Running(client, mounted[0], client.get("/openapi.json").json())


def test_each_route_is_described_and_each_description_has_its_route(api: Running) -> None:
    routes = [row for row in api.mounted.routes if isinstance(row, Route)]
    assert len(routes) == len(api.mounted.routes)
    served = [(method, row.path) for row in routes for method in (row.methods or set()) - {"HEAD"}]
    assert sorted(served) == sorted(api.operations)
    assert len(served) == len(set(served)) > 20


def test_each_right_is_asked_for(api: Running) -> None:
    """Without a token, and with a wrong one; on this machine a local client sees figures."""
    for method, path in api.operations:
        expected = {200, 503} if path in _PUBLIC else {401}
        assert api.status(method, path, **_REMOTE) in expected, (method, path)
        if path not in _PUBLIC | _LOCAL:
            assert api.status(method, path, Authorization=f"Bearer {_TOKEN}x") == 401, (method, path)
        item = api.described["paths"][path][method.lower()]
        assert (item.get("security") == []) == (path in _PUBLIC), (method, path)


def test_each_refusal_of_an_empty_request_is_described(api: Running) -> None:
    for method, path in api.operations:
        if path != "/api/v1/reload":
            status = api.status(method, path, Authorization=f"Bearer {_TOKEN}")
            assert str(status) in api.described["paths"][path][method.lower()]["responses"], (method, path, status)


def test_no_request_is_led_to_a_host_that_it_names(api: Running) -> None:
    """By a slash at the end of a path that is known without it, or the other way round."""
    for method, path in api.operations:
        assert api.status(method, f"{path}/", Authorization=f"Bearer {_TOKEN}", **_REMOTE) == 404, (method, path)


def test_each_reference_of_the_document_leads_somewhere(api: Running) -> None:
    schemas = api.described["components"]["schemas"]
    used = {value.rpartition("/")[2] for value in _references(api.described)}
    assert used <= schemas.keys()


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for row in value.values():
            yield from _references(row)
    elif isinstance(value, list):
        for row in value:
            yield from _references(row)
