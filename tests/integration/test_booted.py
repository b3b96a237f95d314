"""The service under a real systemd: installed by `make install`, with all of the unit's hardening."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
import yaml

from lookout.client import Subscriber
from lookout.messages import Detections
from tests.support.booted import Booted, copy_sources
from tests.support.daemon import PATIENCE_S, ROOT, wait_until
from tests.support.ports import free_port

pytestmark = [pytest.mark.needs("systemd-container", "mounts"), pytest.mark.slow(8)]
UNIT = "lookout"
_IMPORTED = (
    "daemon.cli", "daemon.commands.run", "daemon.commands.bridge", "daemon.system.loading", "detectors.ort.detector",
)  # fmt: skip
# As the unit has it, but sooner.
_HASTE = "[Service]\nWatchdogSec=8\nTimeoutAbortSec=1\nRestartSec=100ms\nRestartSteps=0\n[Unit]\nStartLimitBurst=100\n"


class Installed:
    """Lookout in a systemd."""

    def __init__(self, systemd: Booted) -> None:
        self.systemd = systemd
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        copy_sources(ROOT, systemd.root / "src")
        # As a packager would, whose tree is unpacked elsewhere. Of all that is installed a tenth is ever imported.
        make = ("make", "-C", "/src", "install", "PYTHON=/usr/bin/python3", "DESTDIR=/package")
        systemd.run("env", "PIP_NO_COMPILE=1", *make)
        systemd.run("cp", "-a", "/package/.", "/")
        systemd.run("rm", "-rf", "/package")
        systemd.run("/opt/lookout/bin/python", "-c", f"import {', '.join(_IMPORTED)}")  # what the service cannot write
        drop_in = systemd.root / "etc/systemd/system/lookout.service.d"
        drop_in.mkdir()
        (drop_in / "haste.conf").write_text(_HASTE)
        systemd.run("systemctl", "daemon-reload")

    def configure(self, sources: int = 1, **rest: object) -> None:
        config: dict[str, object] = {
            "sources": [{"id": f"s{n}", "type": "synthetic", "fps": 4, "seed": n} for n in range(sources)],
            "model": {"path": "/etc/lookout/models/demo.onnx", "threads": 1},
            "publisher": {"endpoint": self.endpoint},
            "monitor": {"interval_s": 0.5, "stuck_after_s": 5},
            **rest,
        }
        (self.systemd.root / "etc/lookout/config.yaml").write_text(yaml.safe_dump(config))

    def is_up(self, sources: int = 1) -> bool:
        return self.systemd.show(UNIT, "StatusText").startswith(f"{sources} of {sources} sources up")

    def restarts(self) -> int:
        return int(self.systemd.show(UNIT, "NRestarts"))

    def state(self) -> tuple[str, str]:
        """Such as ("active", "success")."""
        return self.systemd.show(UNIT, "ActiveState"), self.systemd.show(UNIT, "Result")


def _says(systemd: Booted, words: str) -> bool:
    return words in systemd.journal(UNIT)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    with Booted(tmp_path_factory.mktemp("systemd")) as systemd:
        yield Installed(systemd)


@pytest.fixture
def running(installed: Installed) -> Iterator[Installed]:
    installed.configure()
    installed.systemd.run("systemctl", "start", UNIT)
    wait_until(installed.is_up, "the source is up")
    yield installed
    installed.systemd.run("systemctl", "stop", UNIT)


def test_it_starts_detects_and_stops(running: Installed) -> None:
    process = running.systemd.main_process(UNIT)
    assert process.uids().real > 0
    with closing(Subscriber(running.endpoint)) as subscriber:
        wait_until(lambda: isinstance(subscriber.receive(0.2), Detections), "detections come")
    running.systemd.run("systemctl", "stop", UNIT)
    assert running.state() == ("inactive", "success")  # not "timeout": within what the unit gives it
    assert running.systemd.show(UNIT, "ExecMainStatus") == "0"
    assert not process.is_running()


def test_a_reload_keeps_the_process(running: Installed) -> None:
    """What the daemon refuses fails `systemctl reload`, whether the file is wrong or only cannot be used now."""
    process, systemd = running.systemd.main_process(UNIT), running.systemd
    running.configure(sources=3)
    systemd.run("systemctl", "reload", UNIT)
    wait_until(lambda: running.is_up(3), "the new sources are up")
    mistakes: list[tuple[dict[str, object], str]] = [
        ({"board": {"depth": -1}}, "board.depth: must be"),
        ({"lanes": 3}, "nothing has changed: lanes: cannot change"),
    ]
    for mistake, words in mistakes:
        running.configure(sources=3, **mistake)
        with pytest.raises(AssertionError, match="systemctl reload"):
            systemd.run("systemctl", "reload", UNIT)
        wait_until(partial(_says, systemd, words), "the mistake is named")
    assert running.is_up(3)
    assert systemd.main_process(UNIT) == process
    assert running.restarts() == 0


def test_the_page_shows_what_runs_beside_it(installed: Installed) -> None:
    systemd, unit, port = installed.systemd, "lookout-dashboard", free_port()
    http = {"enabled": True, "port": free_port(), "token": "a-token-that-is-long-enough"}
    installed.configure(http=http, dashboard={"port": port})
    systemd.run("systemctl", "start", UNIT, unit)

    def shown() -> list[tuple[str, str]]:
        with suppress(httpx.TransportError):
            rows = httpx.get(f"http://127.0.0.1:{port}/api/sources", timeout=PATIENCE_S).json()
            return [(row["id"], row["state"]) for row in rows]
        return []

    try:
        wait_until(lambda: shown() == [("s0", "up")], "the page shows the source")
    finally:
        systemd.run("systemctl", "stop", unit, UNIT)
    assert (systemd.show(unit, "Result"), systemd.show(unit, "NRestarts")) == ("success", "0")


def test_what_the_bridge_refuses_fails_its_reload(running: Installed) -> None:
    systemd, unit = running.systemd, "lookout-bridge"

    def configure(*names: str) -> None:
        folder = "/var/log/lookout-bridge"
        running.configure(
            bridge={"targets": [{"name": name, "type": "file", "path": f"{folder}/{name}"} for name in names]}
        )

    configure("first")
    systemd.run("systemctl", "start", unit)
    try:
        wait_until(lambda: "the bridge runs" in systemd.journal(unit), "it runs")
        process = systemd.main_process(unit)
        configure("first", "second")
        systemd.run("systemctl", "reload", unit)
        assert "reloaded: targets: second" in systemd.journal(unit)
        configure()
        with pytest.raises(AssertionError, match="systemctl reload"):
            systemd.run("systemctl", "reload", unit)
        wait_until(lambda: "bridge.targets: is empty" in systemd.journal(unit), "the mistake is named")
        assert systemd.main_process(unit) == process
    finally:
        systemd.run("systemctl", "stop", unit)
    assert (systemd.show(unit, "Result"), systemd.show(unit, "NRestarts")) == ("success", "0")


def test_a_frozen_lane_ends_the_process_which_comes_again(running: Installed) -> None:
    before = running.restarts()
    freeze = [
        sys.executable,
        str(ROOT / "tests/support/freeze.py"),
        str(running.systemd.main_process(UNIT).pid),
        "lane-0",
    ]
    with subprocess.Popen(freeze, stdout=subprocess.PIPE) as frozen:
        assert frozen.stdout is not None
        assert frozen.stdout.readline() == b"frozen\n"
        wait_until(lambda: running.restarts() > before, "it is started again")
    wait_until(running.is_up, "the source is up again")
    assert "lane-0 is stuck for" in running.systemd.journal(UNIT)


def test_a_frozen_process_is_killed_by_the_watchdog(running: Installed) -> None:
    before = running.restarts()
    running.systemd.main_process(UNIT).send_signal(signal.SIGSTOP)
    wait_until(lambda: running.restarts() > before, "it is started again")
    wait_until(running.is_up, "the source is up again")
    assert "Watchdog timeout" in running.systemd.run("journalctl", "--no-pager", "--unit", UNIT)


def test_a_mistake_in_the_configuration_is_not_tried_again(installed: Installed) -> None:
    installed.configure(board={"depth": -1})
    installed.systemd.run("systemctl", "start", UNIT, check=False)
    assert installed.state() == ("failed", "exit-code")
    assert installed.systemd.show(UNIT, "ExecMainStatus") == "2"
    assert "board.depth" in installed.systemd.journal(UNIT)
    installed.systemd.run("systemctl", "reset-failed", UNIT)


def test_a_process_for_each_gpu_has_files_of_its_own(installed: Installed) -> None:
    """Also where one for all has been before."""
    installed.configure()
    etc: Path = installed.systemd.root / "etc/lookout"
    (etc / "0.yaml").write_text((etc / "config.yaml").read_text())
    installed.systemd.run("systemctl", "start", "lookout@0", check=False)
    assert installed.systemd.show("lookout@0", "ActiveState") == "active", installed.systemd.journal("lookout@0")
    installed.systemd.run("systemctl", "stop", "lookout@0")
