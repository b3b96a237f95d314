"""The HTTP interface of a running daemon, over real sockets."""

from __future__ import annotations

import json
import os
import random
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import cv2
import httpx
import numpy as np
import psutil
import pytest
import yaml

from daemon.cli import invoke
from daemon.config.load import parse
from daemon.errors import ConfigError
from lookout.messages import Detections, Status
from tests.support import hostile
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, Lookout, has_seen, is_state, lost, receive_until, wait_until
from tests.support.ports import free_port
from tests.support.served import HEADERS, TOKEN, Served, street


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("http"))
    yield served
    assert served.lookout.stop() == 0
    assert "Traceback" not in served.lookout.log()
    served.close()


def test_health_says_why(served: Served) -> None:
    """Without a token; a daemon whose every source is down is not ready, but lives."""
    bare = httpx.Client(base_url=served.url)
    for path in ("/live", "/startup", "/ready"):
        answer = bare.get(path)
        assert (answer.status_code, answer.json()) == (200, {"ok": True, "reasons": []})
    bare.close()


def test_a_daemon_without_frames_is_not_ready(tmp_path: Path) -> None:
    nobody = {"id": "gone", "type": "av", "url": f"rtsp://127.0.0.1:{free_port()}/none"}
    port = free_port()
    config: dict[str, object] = {"sources": [nobody], "model": {"path": str(DEMO_MODEL), "backend": "fake"},
              "http": {"enabled": True, "port": port}}  # fmt: skip
    with Lookout(tmp_path, config) as lookout:
        with lookout.subscribe() as subscriber:
            receive_until(subscriber, is_state("gone", "down"))
        ready = httpx.get(f"http://127.0.0.1:{port}/ready")
        assert ready.status_code == 503
        assert "no source is up: gone down" in ready.json()["reasons"][0]
        assert httpx.get(f"http://127.0.0.1:{port}/live").status_code == 200
        # Without a token there is no API, and figures may be read.
        assert httpx.get(f"http://127.0.0.1:{port}/api/v1/sources").status_code == 403
        assert httpx.get(f"http://127.0.0.1:{port}/metrics").status_code == 200
        assert lookout.stop() == 0


@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"])
def test_who_has_no_token_does_nothing(served: Served, header: str | None) -> None:
    headers = {b"Authorization": header.encode()} if header else {}
    with httpx.Client(base_url=served.url) as client:
        one = "/api/v1/sources/street-0"
        for method, path in (("GET", "/api/v1/sources"), ("GET", "/api/v1/config"), ("GET", f"{one}/snapshot.jpg"),
                             ("PUT", one), ("PATCH", one), ("DELETE", one), ("POST", "/api/v1/reload")):  # fmt: skip
            assert client.request(method, path, headers=headers).status_code == 401


def test_a_source_is_added_changed_looked_at_and_removed(served: Served) -> None:
    """And the others do not notice."""
    client = served.client
    with served.lookout.subscribe() as subscriber:
        receive_until(subscriber, lambda message: isinstance(message, Detections) and message.source == "street-1")
        assert client.post("/api/v1/sources", json=street("new")).status_code == 201
        messages = receive_until(subscriber, is_state("new", "up"))
        row = client.get("/api/v1/sources/new").json()
        assert (row["state"], row["config"]["fps"], row["format"]["width"]) == ("up", 10.0, 160)
        assert {row["config"]["id"] for row in client.get("/api/v1/sources").json()} == {"street-0", "street-1", "new"}
        assert client.post("/api/v1/sources", json=street("new")).status_code == 409
        assert client.put("/api/v1/sources/new", json=street("new", width=320)).status_code == 200
        messages += receive_until(subscriber, lambda row: isinstance(row, Detections) and row.image.width == 320)
        plain, drawn = (
            cv2.imdecode(np.frombuffer(client.get(f"/api/v1/sources/new/snapshot.jpg{query}").content, np.uint8), 1)
            for query in ("", "?boxes=true")
        )
        assert plain is not None
        assert drawn is not None
        assert plain.shape == drawn.shape == (96, 320, 3)
        assert client.delete("/api/v1/sources/new").status_code == 204
        messages += receive_until(subscriber, is_state("new", "ended"))
        messages += receive_until(subscriber, has_seen(1, "street-1"))
        assert client.get("/api/v1/sources/new").status_code == 404
        assert client.get("/api/v1/sources/new/snapshot.jpg").status_code == 404
    others = {message.state for message in messages if isinstance(message, Status) and message.source != "new"}
    assert others <= {"up", "stalled"}  # on a crowded machine; but nobody connected anew
    assert lost(messages, "street-1") == 0


def test_a_source_that_is_disabled_is_still_there(served: Served) -> None:
    """It may be looked at, enabled and removed; and it is disabled once more without harm."""
    client, one = served.client, "/api/v1/sources/resting"
    assert client.post("/api/v1/sources", json=street("resting")).status_code == 201
    for _ in range(2):
        answer = client.put(one, json=street("resting", enabled=False))
        assert (answer.status_code, answer.json()["state"]) == (200, "disabled")
    assert client.get(one).json()["state"] == "disabled"
    assert "PATCH" in client.get(f"{one}/snapshot.jpg").json()["error"]
    assert "PUT or PATCH changes it" in client.post("/api/v1/sources", json=street("resting")).json()["error"]
    with served.lookout.subscribe() as subscriber:
        assert client.put(one, json=street("resting")).status_code == 200
        receive_until(subscriber, is_state("resting", "up"))
    assert client.put(one, json=street("resting", enabled=False)).status_code == 200
    assert client.delete(one).status_code == 204
    assert client.get(one).status_code == 404


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{", 422, "not JSON"),
        (b"[]", 422, "must be an object"),
        (b"[" * 60_000, 422, "not JSON"),
        (b'{"id": "x", "type": "webcam"}', 422, "av, camera, synthetic"),
        (b'{"id": "..", "type": "synthetic"}', 422, "means a folder"),
        (b'{"id": "x", "type": "av", "url": "rtsp://***@cam/1"}', 422, "url: *** keeps the current secret"),
        (b'{"id": "x", "type": "synthetic", "width": 9999, "height": 9999}', 422, "4.2 megapixels at 60"),
        (b'{"id": "x", "type": "synthetic", "fps": 5e-324}', 422, "between 0.001 and 1000"),
        (b'{"id": "x/y", "type": "synthetic"}', 422, "letters"),
        (b'{"id": "x", "type": "synthetic", "fps": -1}', 422, "fps"),
        (b'{"id": "x", "type": "synthetic", "labels": ["zebra"]}', 422, "zebra"),
        (b'{"id": "x", "type": "camera"}', 422, "what this machine has"),
        (b'{"id": "x", "type": "av", "url": "/etc/passwd"}', 422, "url: only rtsp"),
        (b'{"id": "x", "type": "av", "url": "file:///etc/passwd"}', 422, "url: only rtsp"),
        (b'{"id": "x", "type": "av", "url": "concat:/etc/passwd|/etc/hosts"}', 422, "url: only rtsp"),
        (b'{"id": "x", "type": "av", "url": "subfile,,start,0,end,9,,:/etc/passwd"}', 422, "url: only rtsp"),
        (b'{"id": "x", "type": "av", "url": "rtsp://h/", "options": {"protocol_whitelist": "file"}}', 422, "options"),
        (b'{"id": "x", "type": "av", "url": "http://evil/${LOOKOUT_SECRET}"}', 422, "the environment"),
        (b" " * 70_000, 413, "more than"),
    ],
)
def test_what_may_not_be_added(served: Served, body: bytes, code: int, words: str) -> None:
    answer = served.client.post("/api/v1/sources", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == code
    assert words in answer.json()["error"]


def test_there_is_a_most(tmp_path: Path) -> None:
    served = Served(tmp_path, {"max_sources": 3})
    try:
        codes = [served.client.post("/api/v1/sources", json=street(f"more-{n}")).status_code for n in range(3)]
        assert codes == [201, 409, 409]
    finally:
        served.close()


def test_what_is_persisted_is_there_after_a_restart(tmp_path: Path) -> None:
    """A password in a URL is in the file, which its owner alone can read, and nowhere else."""
    file = tmp_path / "sources.json"
    served = Served(tmp_path, {"sources_file": str(file)})
    camera = {"id": "camera", "type": "av", "url": f"rtsp://viewer:hunter2@127.0.0.1:{free_port()}/x"}
    try:
        assert served.client.post("/api/v1/sources", json=street("for-now")).status_code == 201
        assert served.client.delete("/api/v1/sources/for-now").status_code == 204
        assert served.client.post("/api/v1/sources?persist=true", json=camera).status_code == 201
        shown = served.client.get("/api/v1/sources").text + served.client.get("/api/v1/config").text
        shown += served.client.get("/metrics").text
        assert served.lookout.stop() == 0
        shown += served.lookout.log()
        shown += " ".join(psutil.Process().cmdline())
        assert "hunter2" not in shown
        assert TOKEN not in shown
    finally:
        served.close()
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert "hunter2" in file.read_text()
    again = Served(tmp_path, {"sources_file": str(file)})
    try:
        ids = [row["config"]["id"] for row in again.client.get("/api/v1/sources").json()]
        assert ids == ["street-0", "street-1", "camera"]
    finally:
        again.close()


@pytest.mark.needs("promtool")
def test_prometheus_accepts_the_figures(served: Served) -> None:
    text = served.client.get("/metrics").text
    done = subprocess.run(["promtool", "check", "metrics"], check=False, input=text, text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    names = [
        "lookout_frames_captured_total",
        "lookout_frames_dropped_total",
        "lookout_packets_passed_over",
        "lookout_masks_left_out_total",
        'cause="superseded"',
        "lookout_build_info",
    ]
    for name in [*names, 'lookout_stage_seconds_bucket{le="0.01",stage="infer"}', "lookout_model_info"]:
        assert name in text


def test_the_accounts_hold_in_the_figures(served: Served) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    sums: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(served.client.get("/metrics").text):
        for sample in family.samples:
            if "source" in sample.labels:
                row = sums.setdefault(sample.labels["source"], {})
                row[sample.name] = row.get(sample.name, 0.0) + sample.value
    for row in sums.values():
        assert row["lookout_frames_captured_total"] > 0
        rest = (
            row["lookout_frames_published_total"]
            + row["lookout_frames_dropped_total"]
            + row["lookout_frames_in_flight"]
        )
        assert row["lookout_frames_captured_total"] == rest


@pytest.mark.slow
@pytest.mark.needs("promtool")
def test_a_real_prometheus_scrapes_it(served: Served, tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(yaml.safe_dump({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "lookout", "authorization": {"credentials": TOKEN},
                            "static_configs": [{"targets": [f"127.0.0.1:{served.port}"]}]}],
    }))  # fmt: skip
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
               f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as prometheus:
        try:
            found = _ask(port, 'lookout_source_up{source="street-0"}')
        finally:
            prometheus.terminate()
    assert float(found[0]["value"][1]) == 1.0


def _ask(port: int, query: str) -> list[dict[str, Any]]:
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        try:
            answer = httpx.get(
                f"http://127.0.0.1:{port}/api/v1/query", params={"query": query}, timeout=PATIENCE_S
            ).json()
        except (httpx.HTTPError, json.JSONDecodeError):
            continue
        if answer.get("data", {}).get("result"):
            rows: list[dict[str, Any]] = answer["data"]["result"]
            return rows
    raise AssertionError("Prometheus has no such figure")


def test_a_scrape_costs_little(served: Served) -> None:
    """Of a core's second: CPU time of fifty scrapes, over fifty. What else runs has CPU time of its own."""
    served.client.get("/metrics")
    before = sum(served.lookout.inspect.cpu_times()[:2])
    began = monotonic()
    for _ in range(50):
        assert served.client.get("/metrics").status_code == 200
    idle_share = 0.1 * (monotonic() - began)  # what two streets take anyway is far below
    spent = sum(served.lookout.inspect.cpu_times()[:2]) - before - idle_share
    assert spent / 50 < 0.01


def _hostile(chance: random.Random) -> bytes:
    """A request that nobody sends who means well."""
    paths = [
        "/",
        "/live",
        "/api/v1/sources",
        "/api/v1/sources/%2e%2e%2fetc",
        f"/api/v1/sources/{'a' * 3000}",
        "/metrics",
    ]
    paths += ["//", f"/api/v1/sources/street-0/snapshot.jpg?boxes={'%00' * 9}", "*"]
    method = chance.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "BREW", "GET\x00", ""])
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randbytes(chance.randrange(400))
    if kind == 1:
        return f"{method} {chance.choice(paths)} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n".encode()
    if kind == 2:
        return (f"{method} {chance.choice(paths)} HTTP/1.1\r\n" + "X: y\r\n" * chance.randrange(300)).encode()
    if kind == 3:
        return f"{method} {chance.choice(paths)} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".encode()
    body = chance.randbytes(chance.randrange(200))
    head = (
        f"{method} {chance.choice(paths)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN[: chance.randrange(9)]}"
    )
    return f"{head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def _answers(served: Served) -> bool:
    with suppress(httpx.TransportError):
        return served.client.get("/live").status_code == 200
    return False


@pytest.mark.slow
def test_hostile_requests_change_nothing(served: Served) -> None:
    """LOOKOUT_HOSTILE=10000 sends as many."""
    chance = random.Random(7)
    config, open_before = served.client.get("/api/v1/config").json(), served.lookout.inspect.num_fds()
    for _ in range(hostile.COUNT):
        with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as peer:
            try:
                peer.sendall(_hostile(chance))
                if chance.random() < 0.02:
                    peer.settimeout(0.05)
                    peer.recv(4096)
            except OSError:
                continue
    # What still waits to be looked at goes first, and a connection that was idle for so long may be gone.
    wait_until(lambda: _answers(served), "it answers")
    assert served.client.get("/api/v1/config").json() == config
    wait_until(lambda: served.lookout.inspect.num_fds() <= open_before + 2, "connections that were left go home")
    with served.lookout.subscribe() as subscriber:
        receive_until(subscriber, lambda message: isinstance(message, Detections))


@pytest.mark.slow
def test_the_description_is_true(served: Served) -> None:
    """Requests made from it, good and bad: none ends in an error of the server's."""
    import schemathesis

    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    chance = random.Random(3)
    seen = 0
    for result in schema.get_all_operations():
        operation: Any = result.ok()
        if operation.method.lower() == "delete" or operation.path == "/api/v1/reload":
            continue
        strategy = operation.as_strategy()
        for _ in range(8):
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                case = strategy.example()
            headers = dict(HEADERS) if chance.random() < 0.9 else {}
            answer = case.call(headers=headers)
            seen += 1
            expected = {503, 504} if operation.path.endswith("snapshot.jpg") else set()
            assert answer.status_code < 500 or answer.status_code in expected, (operation.path, answer.status_code)
    assert seen > 50
    assert served.client.put("/api/v1/log", json={"level": "info"}).json() == {"level": "info"}  # others read lines
    for row in served.client.get("/api/v1/sources").json():
        if not row["config"]["id"].startswith("street-"):
            assert served.client.delete(f"/api/v1/sources/{row['config']['id']}").status_code == 204


@pytest.mark.parametrize(
    ("http", "words"),
    [
        ("{enabled: true, host: 0.0.0.0}", "can be reached by the whole network"),
        ("{enabled: true, tls_key: x}", "go together"),
        ("{enabled: true, token: abcdefghijklmnopqrst, token_file: x}", "set one of"),
        ("{enabled: true, port: 99999}", "65535"),
    ],
)
def test_bad_settings(http: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(f"model: {{path: m}}\nsources: [{{id: a, type: synthetic}}]\nhttp: {http}\n")


def test_levels_and_intervals_change_while_it_runs_and_a_refusal_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`lookout reload` says what the daemon made of the file."""
    served = Served(tmp_path)
    file = served.lookout.config
    whole = yaml.safe_load(file.read_text())

    def reload(**changes: object) -> tuple[int, str]:
        file.write_text(yaml.safe_dump(whole | changes))
        code = invoke(["reload", "-c", str(file)])
        said = capsys.readouterr()
        return code, said.out + said.err

    changed = {"log": {"format": "json", "level": "error"}, "monitor": {"interval_s": 0.3, "stall_after_s": 60}}
    assert reload(**changed) == (0, "reloaded: settings: log.level, monitor.interval_s\n")
    quiet = served.lookout.log().count('"level": "info"')
    assert served.client.get("/api/v1/config").json()["monitor"]["interval_s"] == 0.3
    code, said = reload(**changed, lanes=3)
    assert (code, said.count("\n")) == (2, 1)
    assert "nothing has changed: lanes: cannot change while running" in said
    assert served.lookout.log().count('"level": "info"') == quiet
    assert reload(log=changed["log"], monitor={"interval_s": 0.3, "stall_after_s": 60, "stuck_after_s": 9})[0] == 2
    figures = served.client.get("/metrics").text
    assert 'lookout_reloads_total{result="refused"} 2.0' in figures
    assert 'lookout_reloads_total{result="applied"} 1.0' in figures
    file.write_text(yaml.safe_dump(whole | {"http": {"enabled": False}}))
    assert invoke(["reload", "-c", str(file)]) == 2
    assert "set http.enabled, or give --pid" in capsys.readouterr().err
    file.write_text("sources: nothing")
    assert invoke(["reload", "-c", str(file), "--pid", str(served.lookout.process.pid)]) == 2
    assert served.lookout.stop() == 0
    served.close()
