"""The API of a fleet's member: roles, commands, sources, figures, and the document that describes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import anyio
import httpx
import jsonschema
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from daemon.config.http import HttpConfig, TokenConfig
from daemon.config.load import source_of
from daemon.fleet.figures import FleetParts, OwnFigures
from daemon.fleet.records import FleetView, SourceRecord, StreamFormat
from daemon.http.fleet import FleetCommands, FleetOperations, written_row
from daemon.http.fleet_exposition import FleetExposition
from daemon.http.kit import open_server
from daemon.http.routes import application
from daemon.redact import Secret
from tests.fleet.memory_coordinator import MemoryCoordinator, MemoryEngine
from tests.fleet.site import Site
from tests.fleet.views import camera, cameras
from tests.support.clock import ManualClock

OPERATE, VIEW = "a-token-that-may-operate", "a-token-that-may-view-only"


@dataclass
class Api:
    """A member's HTTP API over a fleet in memory.

    Attributes:
        view: as the member has followed it.
    """

    engine: MemoryEngine
    site: Site
    view: FleetView | None = None

    @property
    def parts(self) -> FleetParts:
        own = OwnFigures(member="a/gpu0", coordinator_up=True, lease="renewed", lease_age_s=0.5, owned=3)
        open_one = lambda: MemoryCoordinator(self.engine)  # noqa: E731
        return FleetParts("test", lambda: self.view, open_one, lambda: own, self.site.placer)

    @contextmanager
    def client(self, token: str | None = OPERATE, *, fleet: bool = True) -> Iterator[httpx.Client]:
        """A client of a real server."""
        tokens = [
            TokenConfig(name="o", role="operate", token=Secret(OPERATE)),
            TokenConfig(name="v", role="view", token=Secret(VIEW)),
        ]
        config = HttpConfig(enabled=True, port=0, tokens=tokens)
        operations = FleetOperations(FleetCommands(self.parts) if fleet else None).operations()
        server, access = open_server(config, ManualClock())
        try:
            server.mount(application(operations, access))
            server.start()
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=headers, timeout=60) as client:
                yield client
        finally:
            server.stop(5.0)

    def follow(self) -> None:
        self.site.settle()
        self.view = self.site.coordinator.view()


@pytest.fixture
def api() -> Api:
    engine = MemoryEngine()
    site = Site(MemoryCoordinator(engine), {"a/gpu0": 5, "b/gpu0": 5})
    site.coordinator.put_sources({**cameras(8), "x": camera("x", affinity={"site": "moon"})}, replace=False)
    found = Api(engine, site)
    found.follow()
    return found


def post(client: httpx.Client, command: str, **body: object) -> Any:
    return client.post(f"/api/v1/fleet/{command}", json=body)


def test_status_is_as_the_document_says(api: Api) -> None:
    with api.client(VIEW) as client:
        answer = client.get("/api/v1/fleet")
        components = client.get("/openapi.json").json()["components"]
    assert answer.status_code == 200
    found = answer.json()
    assert (found["name"], found["unplaced"], found["own"]["owned"], found["own"]["leads"]) == ("test", 1, 3, True)
    assert "config" not in json.dumps(found)
    jsonschema.Draft202012Validator.check_schema(components["schemas"]["Fleet"])
    jsonschema.validate(found, {"$ref": "#/components/schemas/Fleet", "components": components})


def test_roles_and_daemons_without_a_fleet(api: Api) -> None:
    with api.client(VIEW) as client:
        assert post(client, "drain", member="a/gpu0").status_code == 403
    with api.client(None) as client:
        assert client.get("/api/v1/fleet").status_code == 401
    with api.client(fleet=False) as client:
        answers = [client.get("/api/v1/fleet"), post(client, "drain", member="a/gpu0")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json() == {"error": "this daemon is in no fleet: see `fleet` in its configuration"}
    api.view = None
    with api.client() as client:
        assert client.get("/api/v1/fleet").status_code == 503


def test_commands(api: Api) -> None:
    with api.client() as client:
        drained = post(client, "drain", member="b/gpu0", reason="new disk")
        assert (drained.status_code, len(drained.json()["without_room"])) == (200, 3)
        api.follow()
        assert set(api.site.owners().values()) == {"a/gpu0"}
        assert post(client, "undrain", member="b/gpu0").json() == {}
        api.follow()
        assert len(api.site.owners()) == 8
        dry = post(client, "rebalance", dry_run=True).json()
        assert (len(dry["moves"]), len(api.site.owners())) == (1, 8)
        api.follow()
        source = next(id for id, owner in api.site.owners().items() if owner == "a/gpu0")
        assert post(client, "move", sources=[source], member="b/gpu0").status_code == 200
        api.follow()
        assert api.site.owners()[source] == "b/gpu0"
        assert post(client, "rebalance").status_code == 200


def test_mistakes_have_one_line(api: Api) -> None:
    with api.client() as client:
        cases = [
            (post(client, "drain", member="c/gpu0"), 404, "c/gpu0 is not a member of the fleet"),
            (post(client, "undrain", member="a/gpu0"), 409, "a/gpu0 is not drained"),
            (post(client, "move", sources=["none"], member="a/gpu0"), 404, "not a source of the fleet: none"),
            (
                post(client, "move", sources=["x"], member="a/gpu0"),
                409,
                "x cannot be moved to a/gpu0: no member has the label",
            ),
            (post(client, "drain", name="a/gpu0"), 422, "the request: Object"),
            (post(client, "destroy"), 404, "no such command of a fleet: there are drain, undrain, move, rebalance"),
            (client.post("/api/v1/fleet/drain", content="x"), 415, ""),
        ]
        api.engine.away = True
        cases += [(post(client, "drain", member="a/gpu0"), 503, "the coordinator does not answer")]
    for answer, code, words in cases:
        assert answer.status_code == code, answer.text
        assert answer.json()["error"].startswith(words)


# --- sources of a member -------------------------------------------------------------------------------------------


def test_changes_of_sources_are_written_to_the_fleet(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    record = SourceRecord(
        config={"id": "gate", "type": "av", "url": "rtsp://u:${PASSWORD}@10.0.0.7/1"},
        affinity={"site": "north"}, priority=3, expected=StreamFormat(fps=5),
    )  # fmt: skip
    api.site.coordinator.put_sources({"gate": record}, replace=False)
    old = source_of(record.config)
    new = msgspec.structs.replace(old, max_fps=5.0, confidence=0.25)
    extra = source_of({"id": "new", "type": "synthetic", "fps": 5})

    async def write() -> None:
        await FleetCommands(api.parts).write([old], [new, extra])
        await FleetCommands(api.parts).write([new, extra], [new])

    anyio.run(write)
    sources = api.site.coordinator.view().sources
    assert sources["gate"] == msgspec.structs.replace(
        record, config={**record.config, "max_fps": 5.0, "confidence": 0.25}
    )
    assert "new" not in sources
    assert "hunter2" not in repr(sources)


@pytest.mark.parametrize(
    "row",
    [
        {"type": "camera", "id": "1", "device": 2, "rotate": 90},
        {"type": "synthetic", "id": "1", "fps": 12.5, "tracking": True},
        {
            "type": "av",
            "id": "1",
            "url": "rtsp://x/1",
            "options": {"max_pixels": "5"},
            "tiles": "2x2",
            "labels": ["car"],
        },
    ],
)
def test_a_row_is_written_as_a_person_writes_it(row: dict[str, object]) -> None:
    assert written_row(source_of(row)) == row


# --- figures -------------------------------------------------------------------------------------------------------


def figures(api: Api) -> dict[tuple[str, ...], float]:
    from prometheus_client import CollectorRegistry, generate_latest

    class Collector:
        collect = staticmethod(FleetExposition(api.parts).collect)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast(Any, Collector()))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(row.name, *row.labels.values()): row.value for family in families for row in family.samples}


def test_figures(api: Api) -> None:
    found = figures(api)
    assert found["lookout_fleet_members", "ready"] == 2
    assert (found["lookout_fleet_sources", "owned"], found["lookout_fleet_sources", "waiting"]) == (8, 1)
    assert found["lookout_fleet_lease_age_seconds",] == 0.5
    assert found["lookout_fleet_placer",] == 1
    assert 0.5 < found["lookout_fleet_member_use", "a/gpu0", "the detector"] < 0.95
    api.site.members.pop("b/gpu0").renewal.revoke()
    api.follow()
    found = figures(api)
    assert found["lookout_fleet_failovers_total",] == 1
    assert found["lookout_fleet_members_lost_total",] == 1
    assert found["lookout_fleet_members", "gone"] == 1
    assert found["lookout_fleet_sources", "waiting"] == 4
    api.view = None
    assert ("lookout_fleet_members", "ready") not in figures(api)
