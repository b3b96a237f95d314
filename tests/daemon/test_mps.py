"""NVIDIA's Multi-Process Service around the daemon, with a stand-in for its control program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from daemon.system.mps import Mps
from tests.support.daemon import wait_until

_WHERE = "CUDA_MPS_PIPE_DIRECTORY"
# In the foreground: a pipe, and gone when told to quit. Without -f: tells the one in the foreground.
_CONTROL = """#!/bin/sh
if [ "$1" = "-f" ]; then
    trap "" INT TERM
    echo $$ > "$LOOKOUT_TEST_PID"
    echo "$CUDA_VISIBLE_DEVICES" > "$LOOKOUT_TEST_PID.gpus"
    mkfifo "$CUDA_MPS_PIPE_DIRECTORY/control"
    read told < "$CUDA_MPS_PIPE_DIRECTORY/control"
    echo "$told" > "$LOOKOUT_TEST_PID.told"
else
    cat > "$CUDA_MPS_PIPE_DIRECTORY/control"
fi
"""


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in is found; where it writes its process id."""
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text(_CONTROL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LOOKOUT_TEST_PID", str(tmp_path / "pid"))
    monkeypatch.delenv(_WHERE, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-of-this-test")  # a name: nobody asks the driver
    return tmp_path / "pid"


def _wait_for_end(pid: int) -> None:
    wait_until(lambda: not psutil.pid_exists(pid), f"process {pid} has ended")


def test_it_serves_who_is_started_meanwhile_and_ends_in_order(control: Path) -> None:
    mps = Mps()
    assert mps.reason is None
    folder = Path(os.environ[_WHERE])
    assert (folder / "control").exists()
    mps.close()
    assert _WHERE not in os.environ
    _wait_for_end(int(control.read_text()))
    assert control.with_name("pid.told").read_text().startswith("quit")
    wait_until(lambda: not folder.exists(), "it is removed by the process that kept it")


def test_it_ends_when_the_daemon_is_killed(control: Path) -> None:
    code = "from daemon.system.mps import Mps\nm = Mps()\nprint(m.reason, flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as daemon:
        assert daemon.stdout
        assert daemon.stdout.readline().strip() == "None"
        daemon.kill()
    _wait_for_end(int(control.read_text()))


def test_a_server_that_does_not_end_is_killed(control: Path) -> None:
    """As one may whose client was killed in the middle of its work."""
    program = control.with_name("nvidia-cuda-mps-control")
    server = 'setsid sh -c \'trap "" INT TERM; echo $$ > "$LOOKOUT_TEST_PID.server"; exec sleep 60\' &\n    mkfifo'
    program.write_text(_CONTROL.replace("mkfifo", server))
    mps = Mps()
    assert mps.reason is None
    told = control.with_name("pid.server")
    wait_until(lambda: told.exists() and told.read_text().strip(), "it writes its process id")
    pid = int(told.read_text())
    assert psutil.pid_exists(pid)
    mps.close()
    _wait_for_end(pid)


def test_somebody_elses_is_left_alone(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_WHERE, "/somewhere")
    mps = Mps()
    assert "is set" in (mps.reason or "")
    mps.close()
    assert os.environ[_WHERE] == "/somewhere"
    assert not control.exists()


def test_without_it_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(_WHERE, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-of-this-test")  # a name: nobody asks the driver
    assert "not installed" in (Mps().reason or "")


def test_one_that_does_not_start_is_a_reason(control: Path) -> None:
    (control.parent / "nvidia-cuda-mps-control").write_text("#!/bin/sh\nexit 7\n")
    assert "ended with 7" in (Mps().reason or "")
    assert _WHERE not in os.environ
