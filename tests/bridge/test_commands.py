"""`lookout bridge`, `check` and `test`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from daemon.bridge.http import BridgeServer
from daemon.bridge.worker import Target
from daemon.cli import invoke
from daemon.clock import SystemClock
from daemon.commands import signalled_reload
from daemon.commands.bridge import _reload
from daemon.config.http import HttpConfig
from daemon.config.root import LogConfig
from daemon.system.reload_answer import ReloadAnswer, read_answer, write_answer
from tests.bridge.publisher import EventSource
from tests.bridge.rig import Rig
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, wait_until
from tests.support.held_file import HeldFile
from tests.support.ports import free_port
from tests.support.pushes import HERE, PushServer, Reply
from tests.support.served import street


def _config(folder: Path, source: EventSource | None = None, **changed: object) -> Path:
    bridge = {
        "spool": str(folder / "spool.sqlite"),
        "daemons": [source.config() if source else {"name": "here", "http": "http://127.0.0.1:1"}],
        "targets": [
            {"name": "lines", "type": "file", "path": str(folder / "lines.jsonl")},
            {"name": "away", "type": "redis", "url": f"redis://127.0.0.1:{free_port()}", "password": "hunter2"},
        ],
        **changed,
    }
    path = folder / "bridge.yaml"
    path.write_text(yaml.safe_dump({"bridge": bridge}))
    return path


def _told(path: Path) -> list[str]:
    return [json.loads(line)["schema"] for line in path.read_text().splitlines()] if path.exists() else []


def test_it_runs_beside_a_daemon_reloads_and_stops(tmp_path: Path) -> None:
    lines, more = tmp_path / "lines.jsonl", tmp_path / "more.jsonl"
    with EventSource(["door"]) as source:
        config = _config(tmp_path, source, targets=[{"name": "lines", "type": "file", "path": str(lines)}])
        command = [sys.executable, "-m", "lookoutd", "bridge", "-c", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                wait_until(lambda: bool(source.emit()) and "lookout.event/1" in _told(lines), "an event in the file")
                _config(tmp_path, source, targets=[{"name": "more", "type": "file", "path": str(more)}])
                process.send_signal(signal.SIGHUP)
                wait_until(
                    lambda: bool(source.emit()) and "lookout.event/1" in _told(more), "an event in the other file"
                )
            finally:
                process.terminate()
                log = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0
    assert "a target was removed" in log
    assert "Traceback" not in log


def test_a_reload_of_a_service_has_its_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where systemd has made a folder for both; elsewhere the bridge's log has it."""
    first = {"name": "lines", "type": "file", "path": str(tmp_path / "lines.jsonl")}
    second = {**first, "name": "more"}

    def asked(process: int, **changed: object) -> tuple[int | None, str]:
        config = _config(tmp_path, source, **{"targets": [first, second], **changed})
        code = invoke(["bridge", "reload", "-c", str(config), "--pid", str(process)])
        told = capsys.readouterr()
        return code, told.out + told.err

    with EventSource(["door"]) as source:
        command = [sys.executable, "-m", "lookoutd", "bridge", "-c", str(_config(tmp_path, source, targets=[first]))]
        environment = {**os.environ, "RUNTIME_DIRECTORY": str(tmp_path)}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
            try:
                wait_until(lambda: bool(source.emit()) and "lookout.event/1" in _told(tmp_path / "lines.jsonl"), "runs")
                monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
                assert asked(process.pid) == (0, "reloaded: targets: more\n")
                assert asked(process.pid) == (0, "reloaded: nothing was different\n")
                words = "reloaded: targets: more; takes effect after a restart: bridge.spool_mib\n"
                assert asked(process.pid, targets=[first], spool_mib=77) == (0, words)
                code, told = asked(process.pid, targets=[])
                assert (code, told.count("\n"), "bridge.targets: is empty" in told) == (2, 1, True)
                monkeypatch.delenv("RUNTIME_DIRECTORY")
                code, told = asked(process.pid)
                assert (code, told.endswith("with 2 targets, and the bridge reads it; its log has the answer\n")) == (
                    0,
                    True,
                )
            finally:
                process.terminate()
                process.communicate(timeout=PATIENCE_S)
        code, told = asked(process.pid)
        assert (code, told.count("\n"), "cannot be signalled: No such process" in told) == (2, 1, True)


@pytest.mark.parametrize("command", ["run", "bridge"])
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "process {} is no `lookout {}`: it is not signalled"),
        (["lookout", "{}"], "process {} listens for no reload: is it the id of `lookout {}` itself?"),
    ],
)
def test_a_program_that_sighup_would_end_is_not_signalled(
    command: str,
    words: list[str],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signalled_reload, "_BEGIN_S", 0.1 if words else PATIENCE_S)
    config = _config(tmp_path)
    if command == "run":
        config.write_text(yaml.safe_dump({"model": {"path": str(DEMO_MODEL)}, "sources": [street("street")]}))
    asking = ["bridge", "reload"] if command == "bridge" else ["reload"]
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()", *(word.format(command) for word in words)]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as process:
        assert invoke([*asking, "-c", str(config), "--pid", str(process.pid)]) == 2
        assert capsys.readouterr().err == f"lookout: {reason.format(process.pid, command)}\n"
    assert process.returncode == 0


def test_a_bridge_that_was_just_started_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of `systemctl restart`, and `systemctl reload` at once."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    for name in ("_BEGIN_S", "CHANGE_S"):
        monkeypatch.setattr(signalled_reload, name, PATIENCE_S)  # a busy machine
    lines = {"name": "lines", "type": "file", "path": str(tmp_path / "lines.jsonl")}
    with EventSource(["door"]) as source:
        config = _config(tmp_path, source, targets=[lines])
        with _started(config) as process:
            try:
                assert invoke(["bridge", "reload", "-c", str(config), "--pid", str(process.pid)]) == 0
                assert capsys.readouterr().out == "reloaded: nothing was different\n"
            finally:
                process.terminate()
                process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_signals_before_it_runs_end_it_well_or_not_at_all(tmp_path: Path) -> None:
    config = _config(tmp_path)
    with closing(HeldFile(config)) as held, _started(config) as process:
        try:
            wait_until(lambda: held.is_wanted, "it reads the configuration")
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, log) == (0, "")


def _started(config: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lookoutd", "bridge", "-c", str(config)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_what_a_running_bridge_refuses_is_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a variable that the command has and the bridge has not."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    lines = {"name": "lines", "type": "file", "path": str(tmp_path / "lines.jsonl")}
    with EventSource(["door"]) as source:
        command = [sys.executable, "-m", "lookoutd", "bridge", "-c", str(_config(tmp_path, source, targets=[lines]))]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                wait_until(lambda: bool(source.emit()) and "lookout.event/1" in _told(tmp_path / "lines.jsonl"), "runs")
                monkeypatch.setenv("ELSEWHERE", "http://127.0.0.1:1/x")
                hook = {"name": "hook", "type": "webhook", "url": "${ELSEWHERE}", "allow": HERE}
                config = _config(tmp_path, source, targets=[lines, hook])
                assert invoke(["bridge", "reload", "-c", str(config), "--pid", str(process.pid)]) == 2
                (line,) = capsys.readouterr().err.splitlines()
                assert "nothing has changed: " in line
                assert "ELSEWHERE" in line
            finally:
                process.terminate()
                process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_check_says_of_each_target_whether_it_can_be_told_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["bridge", "check", "-c", str(_config(tmp_path))]) == 2
    first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["lines", "file", "ok"]
    assert second.split()[:2] == ["away", "redis"]
    assert "hunter2" not in second
    assert _told(tmp_path / "lines.jsonl") == []


def test_check_goes_on_behind_a_server_that_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with PushServer(lambda _: Reply(403)) as server:
        me = {"name": "me", "type": "telegram", "token": "1:AAE-a_token_of_a_bot", "chat": "1", "allow": HERE}
        lines = {"name": "lines", "type": "file", "path": str(tmp_path / "lines.jsonl")}
        config = _config(tmp_path, targets=[{**me, "api": server.url("")}, lines])
        assert invoke(["bridge", "check", "-c", str(config)]) == 2
    first, second = capsys.readouterr().out.splitlines()
    assert "Telegram refuses it: 403" in first
    assert second.split() == ["lines", "file", "ok"]


def test_a_reload_without_targets_is_refused(tmp_path: Path) -> None:
    with EventSource() as source, Rig(tmp_path, source, [{"name": "lines"}]) as rig:
        _reload(rig.bridge, None, LogConfig(), _config(tmp_path, source, targets=[]))
        assert [row.name for row in rig.bridge.report().targets] == ["lines"]


def _answer_of(folder: Path, rig: Rig, account: BridgeServer | None, config: Path) -> ReloadAnswer:
    _reload(rig.bridge, account, LogConfig(), config)
    answer = read_answer(folder / "reload.json")
    assert answer is not None
    return answer


def test_the_answer_names_what_differs_beside_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    with EventSource() as source, Rig(tmp_path, source, [{"name": "lines"}]) as rig:
        row = {"name": "lines", "type": "file", "path": "unused"}
        config = _config(tmp_path, source, targets=[row])
        whole = yaml.safe_load(config.read_text())
        whole["bridge"]["daemons"] = []
        account = BridgeServer(HttpConfig(port=0), rig.bridge.report, SystemClock())
        try:

            def answer(**more: object) -> ReloadAnswer:
                config.write_text(yaml.safe_dump({**whole, **more}))
                return _answer_of(tmp_path, rig, account, config)

            token = {"token": "a-token-of-some-length"}
            answer()  # the rig's own configuration is another
            assert answer().changed == {}
            assert answer(http=token).changed == {"http.tokens": True}
            assert answer(http=token).changed == {}
            later = answer(http={**token, "host": "127.0.0.2"}, log={"level": "debug"}).changed
            assert later == {"takes effect after a restart": ["http.host", "log"]}
        finally:
            account.close()


def test_a_bridge_that_ends_refuses_a_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is used."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    with EventSource() as source, Rig(tmp_path, source, [{"name": "lines"}]) as rig:
        rig.bridge.stop()
        answer = _answer_of(tmp_path, rig, None, _config(tmp_path, source))
    assert (answer.changed, answer.error, answer.is_half) == (None, "the bridge ends", False)


def test_a_reload_that_fails_half_way_has_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the system gives no more threads."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))

    def fail(_: Target) -> None:
        raise RuntimeError("can't start new thread")

    with EventSource() as source, Rig(tmp_path, source, [{"name": "lines"}]) as rig:
        monkeypatch.setattr(Target, "start", fail)
        answer = _answer_of(tmp_path, rig, None, _config(tmp_path, source))
        monkeypatch.undo()
    assert (answer.changed, answer.error, answer.is_half) == (None, "RuntimeError: can't start new thread", True)


def test_answers_of_many_threads_are_each_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    long = [f"mistake {index}" for index in range(20_000)]

    def write(begun_ns: int) -> None:
        for _ in range(20):
            write_answer(ReloadAnswer(begun_ns, None, "refused", long))
            found = read_answer(tmp_path / "reload.json")
            assert found is not None
            assert len(found.mistakes) == len(long)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert [path.name for path in tmp_path.iterdir()] == ["reload.json"]


def test_test_sends_one_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(_config(tmp_path))
    assert invoke(["bridge", "test", "lines", "-c", config]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        [kind, "taken"] for kind in ("event", "status", "clip", "loss")
    ]
    assert _told(tmp_path / "lines.jsonl") == [f"lookout.{name}/1" for name in ("event", "notice", "clip", "loss")]
    assert invoke(["bridge", "test", "away", "-c", config]) == 2
    assert invoke(["bridge", "test", "nobody", "-c", config]) == 2
    assert "none is named 'nobody'; there are: lines, away" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bridge", "-c", "{}"], "bridge.targets: is empty: write to whom events go, see docs/bridges.md"),
        (["bridge", "-c", "{}", "check"], "-c stands behind the command: lookout bridge check -c"),
    ],
)
def test_what_cannot_run_says_why_in_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _config(tmp_path, targets=[])
    assert invoke([text.format(config) for text in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
