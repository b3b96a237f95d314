"""`lookout status`, `reload` and `log-level`, which ask a running daemon over its HTTP API."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from daemon.cli import invoke
from daemon.commands.running_daemon import AwayError, RunningDaemon, running_daemon
from daemon.commands.status import status_of
from daemon.redact import Secret
from daemon.system.reload_answer import ReloadAnswer, read_answer, write_answer
from tests.support.daemon import DEMO_MODEL, Lookout, halt, is_state, receive_until, wait_until
from tests.support.ports import free_port
from tests.support.served import TOKEN, Served, street


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    sources = [street("street-0"), street("street-1")]
    served = Served(tmp_path_factory.mktemp("status"), sources=sources, capture_processes=0)
    yield served
    assert served.lookout.stop() == 0
    assert "Traceback" not in served.lookout.log()
    served.close()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command; its exit code, and what it printed."""

    def run(*args: object) -> tuple[int, str]:
        code = invoke([str(arg) for arg in args])
        heard = capsys.readouterr()
        return code, heard.out + heard.err

    return run


def test_all_is_well_until_a_source_is_down(served: Served, said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is down, since when, why and when it is tried again; for people, and for programs."""
    file = served.lookout.config
    words: list[str] = []

    def is_well() -> bool:
        code, text = said("status", "-c", file)
        words[:] = [" ".join(text.split())]
        return bool(code == 0)

    wait_until(is_well, "all is well")
    assert ("2 of 2 sources up" in words[0], "no troubles" in words[0]) == (True, True)
    door = {"id": "door", "type": "av", "url": f"rtsp://127.0.0.1:{free_port()}/none"}

    def told() -> dict[str, Any]:
        code, text = said("status", "-c", file, "--json")
        found: dict[str, Any] = json.loads(text)
        assert code == (0 if found["ok"] else 1)
        return found

    assert served.client.post("/api/v1/sources", json=door).status_code == 201
    try:
        _check_down(told)
        monkeypatch.setenv("LOOKOUT_TOKEN", f"{TOKEN}\n")  # as a file of variables may have it
        assert said("status", "--url", served.url)[0] == 1
        assert not is_well()
        assert ("Troubles" in words[0], "source door" in words[0]) == (True, True)
    finally:
        assert served.client.delete("/api/v1/sources/door").status_code == 204
    wait_until(is_well, "all is well again")


def _of_door(told: dict[str, Any]) -> dict[str, Any] | None:
    """Its trouble, which a busy machine may add others to."""
    return next((row for row in told["troubles"] if row["what"] == "source door"), None)


def _check_down(told: Callable[[], dict[str, Any]]) -> None:
    wait_until(lambda: _of_door(told()) is not None, "the source is down")
    found = told()
    trouble = _of_door(found)
    assert trouble is not None
    assert not found["ok"]
    first = next(row for row in found["daemon"]["sources"] if row["id"] == "door")
    assert "Connection refused" in trouble["reason"]
    assert first["state"] in ("down", "connecting")

    def again() -> dict[str, Any]:
        return _of_door(told()) or {}

    wait_until(lambda: again().get("retry_in_s") is not None, "the next try is told")
    later = again()
    assert (later["since"], later["reason"]) == (trouble["since"], trouble["reason"])  # of the first of all tries
    wait_until(lambda: told()["daemon"]["fps"] is not None, "the first interval of the monitor has ended")
    up = next(row for row in told()["daemon"]["sources"] if row["id"] == "street-0")
    assert (up["state"], up["published"] > 0, up["captured_fps"] is not None) == ("up", True, True)


def test_where_nobody_can_be_asked_it_says_what_to_do(served: Served, said: Any, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    for http, words in (
        ({}, "http.enabled is not true"),
        ({"enabled": True, "port": 0}, "http.port is 0"),
        ({"enabled": True, "port": free_port()}, "nobody listens there"),
        ({"enabled": True, "port": served.port}, "set LOOKOUT_TOKEN, or http.token"),
        ({"enabled": True, "port": served.port, "token": "of-another-daemon-than-this"}, "not one of this daemon's"),
    ):
        file.write_text(yaml.safe_dump({"http": http}))
        for command in ("status", "log-level"):
            code, told = said(command, "-c", file)
            assert (code, told.count("\n"), words in told) == (2, 1, True), told
    code, told = said("status", "--url", "ftp://127.0.0.1")
    assert (code, told.count("\n"), "is not the address of an HTTP API" in told) == (2, 1, True)


@pytest.mark.parametrize("token", ["first-line\nsecond-line", "töken-of-somebody"])
@pytest.mark.parametrize("command", [["status"], ["reload"], ["log-level"], ["events"], ["dashboard"]])
def test_a_token_that_cannot_be_sent_is_not_shown(
    command: list[str], token: str, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOKOUT_TOKEN", token)
    address = "http://127.0.0.1:9"
    code, told = said(*command, *([address] if command[0] in ("events", "dashboard") else ["--url", address]))
    assert (code, told.count("\n"), token[:5] in told) == (2, 1, False), told
    assert "LOOKOUT_TOKEN cannot be sent" in told


def test_the_rest_of_the_file_may_have_mistakes(served: Served, said: Any, tmp_path: Path) -> None:
    """Who has edited it still sees the daemon, which is told of the file by nobody but `reload`."""
    file = tmp_path / "config.yaml"
    http = {"enabled": True, "port": served.port, "token": TOKEN}
    file.write_text(yaml.safe_dump({"http": http, "lanes": "many", "sources": 7}))
    assert said("status", "-c", file)[0] in (0, 1)


def test_a_daemon_that_hangs_is_known_within_seconds(served: Served, said: Any) -> None:
    halt(served.lookout.process.pid)
    try:
        daemon = running_daemon(served.lookout.config, None, None, ("view", "operate"))
        with pytest.raises(AwayError, match=r"does not answer within 0\.2 s: it is starting, or hangs"):
            status_of(daemon, 0.2)
        code, told = said("reload", "-c", served.lookout.config)
        assert (code, told.count("\n"), "does not answer within 5 s" in told) == (2, 1, True)
    finally:
        served.lookout.process.send_signal(signal.SIGCONT)
    wait_until(lambda: said("status", "-c", served.lookout.config)[0] in (0, 1), "it goes on")


def test_the_level_of_the_log_changes_while_it_runs(served: Served, said: Any) -> None:
    """Until a reload, which takes that of the file; a viewer may not change it."""
    file = served.lookout.config
    assert said("log-level", "-c", file) == (0, "info\n")
    assert said("log-level", "debug", "-c", file) == (0, "debug\n")
    wait_until(lambda: '"event": "frame"' in served.lookout.log(), "each frame has a line")
    assert '"by": "token"' in next(row for row in served.lookout.log().splitlines() if "log level changed" in row)
    assert said("log-level", "-c", file) == (0, "debug\n")
    assert "log level debug" in " ".join(said("status", "-c", file)[1].split())
    assert served.client.put("/api/v1/log", json={"level": "loud"}).status_code == 422
    assert served.client.put("/api/v1/log", json={"level": "info", "more": 1}).status_code == 422
    assert said("reload", "-c", file) == (0, "reloaded: settings: log.level\n")
    assert said("log-level", "-c", file) == (0, "info\n")
    assert said("reload", "-c", file) == (0, "reloaded: nothing was different\n")


def test_reloads_at_once_are_done_one_after_the_other(served: Served) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: invoke(["reload", "-c", str(served.lookout.config)]), range(4)))
    assert done == [0, 0, 0, 0]


def test_a_refused_reload_names_each_mistake_in_a_line(served: Served, said: Any) -> None:
    """And is counted, whether the daemon found the mistake or the file is none."""
    file = served.lookout.config
    before, text = status_of(running_daemon(file, None, None, ("view", "operate"))).daemon.reloads, file.read_text()
    whole = yaml.safe_load(text)
    try:
        rows = [{**whole["sources"][0], "fpss": 3}, {**whole["sources"][1], "max_fps": -1}]
        file.write_text(yaml.safe_dump({**whole, "sources": rows, "lanes": 0}, sort_keys=False))
        code, told = said("reload", "-c", file)
        first, *lines = told.splitlines()
        assert (code, first) == (2, f"lookout: nothing has changed: {file}: 3 mistakes:")
        assert [line for line in lines if not line.startswith("  ") or ", line " not in line] == [lines[-1]]
        assert [words in line for words, line in zip(("fpss", "max_fps", "lanes"), lines)] == [True, True, True]
        file.write_text(yaml.safe_dump({**whole, "lanes": 3}))
        code, told = said("reload", "-c", file)
        assert (code, told.count("\n"), "nothing has changed: lanes: cannot change" in told) == (2, 1, True)
    finally:
        file.write_text(text)
    found = status_of(running_daemon(file, None, None, ("view", "operate"))).daemon.reloads
    assert (found["refused"], found["applied"]) == (before["refused"] + 2, before["applied"])


@contextmanager
def _answering(status: int, content: bytes) -> Iterator[RunningDaemon]:
    """Something that answers `/live`, and all else with this."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, b"{}") if self.path == "/live" else self._answer(status, content)

        def do_POST(self) -> None:
            self._answer(status, content)

        def _answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield RunningDaemon(f"http://127.0.0.1:{server.server_port}", Secret(TOKEN), is_here=True)
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (504, b'{"error": "it takes longer than a minute, and goes on"}', "what became of it is not known"),
        (503, b'{"error": "the daemon is stopping"}', "nothing has changed: the daemon is stopping"),
        (422, b'{"error": "a\\u001b[31m"}', "nothing has changed: a"),
        (200, b"<html>", "does not answer as Lookout does"),
        (200, b"[]", "does not answer as Lookout does"),
        (404, b"<html>", "answers 404"),
    ],
)
def test_other_answers_to_a_reload(
    status: int, content: bytes, words: str, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOKOUT_TOKEN", TOKEN)
    with _answering(status, content) as daemon:
        code, told = said("reload", "--url", daemon.url)
        assert (code, told.count("\n"), words in told, "\x1b" in told) == (2, 1, True, False), told
        if status == 504:
            assert "nothing has changed" not in told


@pytest.mark.parametrize(("status", "content"), [(404, b"{}"), (200, b"{}"), (200, b"x"), (500, b"")])
def test_what_is_no_daemon_has_no_status(
    status: int, content: bytes, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOKOUT_TOKEN", TOKEN)
    with _answering(status, content) as daemon:
        code, told = said("status", "--url", daemon.url)
    assert (code, told.count("\n")) == (2, 1), told


def test_a_store_and_a_bridge_that_do_not_work_are_troubles(tmp_path: Path, said: Any) -> None:
    port, disk = free_port(), tmp_path / "disk"
    disk.touch()
    record = {"stores": {"disk": {"path": str(disk)}}}
    with Served(tmp_path, bridge={"port": port}, record=record) as served:
        found: list[dict[str, Any]] = []

        def troubles() -> dict[str, str]:
            code, text = said("status", "-c", served.lookout.config, "--json")
            found[:] = [json.loads(text)]
            assert code == 1
            return {row["what"]: row["reason"] for row in found[0]["troubles"]}

        wait_until(lambda: "Not a directory" in troubles().get("store disk", ""), "the store has told why")
        assert f":{port} does not answer" in troubles()["bridge"]
        assert found[0]["daemon"]["stores"][0]["cause"] is not None
        assert served.lookout.stop() == 0


def test_without_http_a_service_finds_the_answer_in_its_folder(
    tmp_path: Path, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the reload that it has asked for, and of none before; elsewhere the daemon's log has it."""
    sources = [{"id": "cam", "type": "synthetic", "width": 64, "height": 64}]
    config: dict[str, object] = {"sources": sources, "model": {"path": str(DEMO_MODEL), "backend": "fake"}}
    folder = {"RUNTIME_DIRECTORY": str(tmp_path)}
    with Lookout(tmp_path, config, environment=folder) as lookout, lookout.subscribe() as subscriber:
        receive_until(subscriber, is_state("cam", "up"))
        whole, command = yaml.safe_load(lookout.config.read_text()), ("reload", "-c", lookout.config, "--pid")
        code, told = said(*command, lookout.process.pid)
        assert (code, "its log has the answer" in told) == (0, True)
        wait_until(lambda: '"reloaded"' in lookout.log(), "it is reloaded")
        monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
        lookout.config.write_text(yaml.safe_dump({**whole, "lanes": 3}))
        code, told = said(*command, lookout.process.pid)
        assert (code, told.count("\n"), "nothing has changed: lanes: cannot change" in told) == (2, 1, True)
        lookout.config.write_text(yaml.safe_dump({**whole, "log": {"format": "json", "level": "error"}}))
        assert said(*command, lookout.process.pid) == (0, "reloaded: settings: log.level\n")
        assert lookout.stop() == 0
        code, told = said(*command, lookout.process.pid)
        assert (code, told.count("\n"), "cannot be signalled: No such process" in told) == (2, 1, True)


def test_an_answer_may_name_a_file_whose_name_is_no_utf_8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    name = os.fsdecode(b"/etc/camera-\xff.yaml")
    write_answer(ReloadAnswer(5, None, f"{name}: cannot be read", [f"{name}, line 1: no"]))
    (found,) = [read_answer(path) for path in tmp_path.iterdir()]
    shown = "/etc/camera-\ufffd.yaml"
    assert found == ReloadAnswer(5, None, f"{shown}: cannot be read", [f"{shown}, line 1: no"])
