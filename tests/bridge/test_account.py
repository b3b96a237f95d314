"""The bridge's account over HTTP: who may see it, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from daemon.bridge.http import BridgeServer, bridge_application, http_of, problems
from daemon.bridge.report import BridgeReport, FigureAccount
from daemon.clock import SystemClock
from daemon.config.bridge import BridgeConfig
from daemon.config.http import HttpConfig, TokenConfig
from daemon.config.load import parse
from daemon.errors import ConfigError
from daemon.http.access import Access
from daemon.redact import Secret
from tests.bridge.reports import report, target
from tests.support.asgi import InProcess, event_loop
from tests.support.daemon import PATIENCE_S, wait_until

_TOKEN = "a-token-that-is-long-enough"  # noqa: S105 - of these tests
_AWAY = target("home", "away", reason="connection refused", retry_in_s=4.0, received=14, spooled=4, oldest_s=61.5)


@dataclass
class _World:
    client: InProcess
    reports: list[BridgeReport] = field(default_factory=lambda: [report(_AWAY, target("phone", type="ntfy"))])

    def healthy(self, found: BridgeReport) -> tuple[int, bool]:
        self.reports[:] = [found]
        answer = self.client.get("/healthz")
        return answer.status, answer.json["ok"]

    def figures(self) -> dict[str, float]:
        text = self.client.get("/metrics").body.decode()
        return {name: float(value) for name, value in re.findall(r"^([a-z_]+(?:{.*})?) (\S+)$", text, re.MULTILINE)}


@pytest.fixture
def world() -> Iterator[_World]:
    access = Access(HttpConfig(token=Secret(_TOKEN)), SystemClock())
    reports: list[BridgeReport] = []
    with event_loop() as loop:
        made = _World(InProcess(bridge_application(lambda: reports[0], access), loop, _TOKEN))
        reports[:], made.reports = made.reports, reports
        yield made


def test_the_account_is_for_holders_of_a_token(world: _World) -> None:
    found = world.client.get("/api/v1/bridge")
    assert (found.status, found.json["schema"], len(found.json["targets"])) == (200, "lookout.bridge/1", 2)
    home = found.json["targets"][0]
    assert (home["state"], home["reason"], home["spooled"]) == ("away", "connection refused", 4)
    for path in ("/api/v1/bridge", "/metrics", "/openapi.json"):
        assert world.client.get(path, authorization="Bearer wrong").status == 401
    assert world.client.get("/healthz", authorization="Bearer wrong").status == 200
    described = world.client.get("/openapi.json").json["paths"]
    assert {*described} == {"/healthz", "/metrics", "/api/v1/bridge", "/openapi.json"}


def test_it_is_healthy_while_the_spool_is_written_and_a_daemon_heard(world: _World) -> None:
    assert world.healthy(report(target("home", "away"))) == (200, True)  # its records wait
    assert world.healthy(report(feed="away")) == (503, False)
    assert world.healthy(report(failure="no space left")) == (503, False)
    assert world.client.get("/healthz").json["reasons"] == ["the spool: no space left"]
    assert world.client.get("/healthz", authorization="Bearer wrong").json["reasons"] == []
    assert problems(report(feed="away")) == ["daemon hall is away: nothing answers"]


def test_figures_tell_the_fate_of_each_record(world: _World) -> None:
    figures = FigureAccount(received=9, sent=6, thinned=2, failed=1)
    row = target(
        "home", received=20, delivered=10, filtered=3, thinned=2, dropped={"stale": 1}, spooled=4, figures=figures
    )
    world.reports[:] = [report(row)]
    found = world.figures()
    settled = sum(found[f'lookout_bridge_records_total{{outcome="{name}",target="home"}}'] for name in
                  ("delivered", "filtered", "thinned"))  # fmt: skip
    dropped = sum(value for name, value in found.items() if name.startswith("lookout_bridge_dropped_total"))
    waiting = found['lookout_bridge_spooled{target="home"}']
    assert settled + dropped + waiting == found['lookout_bridge_received_total{target="home"}'] == 20


def test_figures_of_the_rest(world: _World) -> None:
    found = world.figures()
    assert found['lookout_bridge_target_up{target="home",type="mqtt"}'] == 0
    assert found['lookout_bridge_target_up{target="phone",type="ntfy"}'] == 1
    states = {name: value for name, value in found.items() if name.startswith("lookout_bridge_target_state")}
    assert [name for name, value in states.items() if value and "home" in name] == [
        'lookout_bridge_target_state{state="away",target="home"}'
    ]
    assert found['lookout_bridge_oldest_seconds{target="home"}'] == 61.5
    assert found['lookout_bridge_dropped_total{cause="refused",target="home"}'] == 0  # its first one is an increase
    assert found['lookout_bridge_feed_up{daemon="hall"}'] == 1
    assert found['lookout_bridge_feed_events_total{daemon="hall",way="wire"}'] == 10
    assert found['lookout_bridge_feed_events_total{daemon="hall",way="journal"}'] == 2
    assert found['lookout_bridge_feed_lost_total{daemon="hall"}'] == 1
    assert (found["lookout_bridge_spool_up"], found["lookout_bridge_spool_bytes"]) == (1, 4096)
    assert not any(name.startswith("lookout_bridge_figures_total") for name in found)  # it is told none


def test_a_port_serves_with_the_tokens_of_http_and_reads_them_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(_TOKEN)
    http = HttpConfig(tokens=[TokenConfig("screen", "view", None, file)])
    server = BridgeServer(http_of(BridgeConfig(port=0), http), lambda: report(_AWAY), SystemClock())
    server.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE_S) as client:
            asked = {"Authorization": f"Bearer {_TOKEN}"}
            assert client.get("/api/v1/bridge", headers=asked).status_code == 200
            assert client.get("/api/v1/bridge").status_code == 401
            assert client.get("/metrics").status_code == 200  # of this machine
            file.write_text(f"{_TOKEN}-2")
            assert server.reload(http)()
            assert client.get("/api/v1/bridge", headers=asked).status_code == 401
            file.unlink()
            with pytest.raises(ConfigError, match="cannot be read"):
                assert server.reload(http)()
            asked = {"Authorization": f"Bearer {_TOKEN}-2"}
            assert client.get("/api/v1/bridge", headers=asked).status_code == 200
    finally:
        server.close()
    wait_until(lambda: not server.is_alive, "it ends")


_MINIMAL = "{model: {path: m.onnx}, sources: [{id: a, type: synthetic}], bridge: {port: 9108}, http: %s}"


def test_a_port_that_everybody_could_read_is_refused() -> None:
    assert parse(_MINIMAL % "{}").bridge.port == 9108
    with pytest.raises(ConfigError, match=r"http.host: 0\.0\.0\.0 can be reached by the whole network"):
        parse(_MINIMAL % "{host: 0.0.0.0}")
    assert parse(_MINIMAL % f"{{host: 0.0.0.0, token: {_TOKEN}}}").bridge.port == 9108
    with pytest.raises(ConfigError, match=r"bridge.port: 9108 is http.port"):
        parse(_MINIMAL % "{enabled: true, port: 9108}")
