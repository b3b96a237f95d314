"""`lookout health`, which containers ask whether to go on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.publish.curve_keys import new_pair
from tests.support.daemon import PATIENCE_S, ROOT, Lookout, wait_until
from tests.support.ports import free_port

# A camera that is down is not the daemon's illness.
DOWN = {"id": "door", "type": "av", "url": "rtsp://127.0.0.1:1/door"}


def _health(config: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "daemon", "health", "-c", str(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.share(2)
@pytest.mark.parametrize("way", ["plain", "curve", "http"])
@pytest.mark.slow
def test_a_daemon_lives_until_it_is_stopped(tmp_path: Path, way: str) -> None:
    config: dict[str, object] = {"sources": [DOWN], "monitor": {"interval_s": 0.2}}
    if way == "curve":
        _, secret = new_pair(tmp_path, "server")
        config["publisher"] = {"curve": {"secret_key_file": str(secret)}}
    if way == "http":
        config["http"] = {"enabled": True, "port": free_port()}
    with Lookout(tmp_path, config) as lookout:
        wait_until(lambda: '"event": "ready"' in lookout.log(), "it is ready")
        code, words = _health(lookout.config)
        assert (code, "Traceback" in words) == (0, False), words
        lookout.stop()
        code, words = _health(lookout.config)
        assert (code, len(words.splitlines())) == (1, 1)


def test_where_only_known_keys_are_let_in_it_says_how_to_ask(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    curve = {"secret_key": "x" * 40, "clients": "clients"}
    config.write_text(json.dumps({"model": {"path": "m"}, "sources": [DOWN], "publisher": {"curve": curve}}))
    code, words = _health(config)
    assert (code, words.count("\n")) == (2, 1)
    assert "set http.enabled" in words
