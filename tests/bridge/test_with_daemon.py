"""`lookout run --bridge`: a real daemon with the bridge as its child."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.daemon import DEMO_MODEL, PATIENCE_S, ROOT, Lookout, wait_until
from tests.support.ports import free_port

_TOKEN = "a-token-that-is-long-enough"  # noqa: S105 - of these tests
_ALL = [[0, 0], [1, 0], [1, 1], [0, 1]]
_RULES = [  # an event each second, for longer than a bridge takes to begin
    {"name": f"zone-{begin}", "type": "zone", "points": _ALL, "dwell_s": [*range(begin, begin + 8)]}
    for begin in range(1, 257, 8)
]
_STREET = {"id": "street", "type": "synthetic", "width": 160, "height": 96, "fps": 10, "rules": _RULES}


def _file(folder: Path, name: str) -> dict[str, Any]:
    return {"name": name, "type": "file", "path": str(folder / f"{name}.jsonl")}


def _config(folder: Path, *targets: str) -> dict[str, Any]:
    return {
        "model": {"path": str(DEMO_MODEL), "backend": "fake"},
        "sources": [_STREET],
        "tracking": {"enabled": True},
        "events": {"journal": str(folder / "events.sqlite")},
        "http": {"enabled": True, "port": free_port(), "token": _TOKEN},
        "bridge": {
            "spool": str(folder / "bridge.sqlite"),
            "port": 0,
            "targets": [_file(folder, name) for name in targets],
        },
    }


def _events(folder: Path, name: str) -> list[str]:
    file = folder / f"{name}.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [row["id"] for row in rows if row["schema"] == "lookout.event/1"]


def test_the_bridge_lives_with_its_daemon(tmp_path: Path) -> None:
    config = _config(tmp_path, "lines")
    with Lookout(tmp_path, config, options=["--bridge"]) as lookout:
        wait_until(lambda: _events(tmp_path, "lines"), "an event is told")
        url = f"http://127.0.0.1:{config['http']['port']}"
        asking = {"Authorization": f"Bearer {_TOKEN}"}
        with httpx.Client(base_url=url, headers=asking, timeout=PATIENCE_S) as client:
            port = client.get("/api/v1/daemon").json()["bridge"]["port"]

            def account() -> dict[str, Any] | None:
                try:
                    found: dict[str, Any] = client.get(f"http://127.0.0.1:{port}/api/v1/bridge").json()
                except httpx.TransportError:
                    return None
                return found

            before = account()
            assert before is not None
            assert (before["targets"][0]["state"], before["feeds"][0]["daemon"]) == ("up", "here")

            (child,) = lookout.children("daemon.bridge.main")
            child.kill()
            wait_until(lambda: [row for row in lookout.children("daemon.bridge.main") if row != child], "another one")
            told = len(_events(tmp_path, "lines"))
            wait_until(lambda: len(_events(tmp_path, "lines")) > told, "it goes on")
            after = account()
            assert after is not None
            assert after["id"] == before["id"]
            assert after["targets"][0]["received"] >= before["targets"][0]["received"]

            written = yaml.safe_load(lookout.config.read_text())
            written["bridge"]["targets"].append(_file(tmp_path, "second"))
            lookout.config.write_text(yaml.safe_dump(written))
            lookout.process.send_signal(signal.SIGHUP)
            wait_until(lambda: _events(tmp_path, "second"), "the second target is told")
            assert client.get("/api/v1/daemon").json()["bridge"]["port"] == port
        (child,) = lookout.children("daemon.bridge.main")
        assert lookout.stop() == 0
        wait_until(lambda: not child.is_running(), "the bridge ends with it")
        assert "Traceback" not in lookout.log()
    ids = _events(tmp_path, "lines")
    assert len(ids) - len(set(ids)) <= 100  # of the kill


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"targets": []}, "bridge.targets: is empty"),
        ({"spool": "auto"}, "bridge.spool: name a file"),
        ({"port": "taken"}, "bridge.port: "),
    ],
)
def test_a_bridge_that_cannot_run_is_refused_at_the_start(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    config = _config(tmp_path, "lines")
    change = {key: config["http"]["port"] if value == "taken" else value for key, value in change.items()}
    config["bridge"] = {**config["bridge"], **change}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    done = subprocess.run(
        [sys.executable, "-m", "daemon", "run", "-c", str(file), "--bridge"],
        capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
