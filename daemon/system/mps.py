"""NVIDIA's Multi-Process Service (MPS), for the daemon and its capture processes only.

Without MPS processes share a GPU by time slicing: on one H200 that costs 25 to 40 % of the engine's speed beside full
decoding (docs/why.md, lesson 4). This service has a folder of its own, so that no other program uses it. A keeper
process, `python -m daemon.system.mps FOLDER`, ends the service when its standard input is closed, that is, when the
daemon ends.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import structlog

from daemon.system.children import reap
from daemon.system.gpus import name_visible_gpus
from daemon.system.signals import ignore_stop_signals, signals_blocked

log = structlog.get_logger(__name__)

_CONTROL = "nvidia-cuda-mps-control"
_PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_PREFIX = "lookout-mps-"
_START_TIMEOUT_S = 10.0
_POLL_S = 0.05
_QUIT_S = 3
_REAP_TIMEOUT_S = 0.5


class Mps:
    """The service. Child processes use it, and this process too if it has not used the GPU yet.

    Attributes:
        reason: why there is no service, None if there is.
    """

    def __init__(self) -> None:
        self._keeper: subprocess.Popen[str] | None = None
        self.reason = self._start()

    def _start(self) -> str | None:
        if os.environ.get(_PIPE_VARIABLE):
            return f"{_PIPE_VARIABLE} is set: a service exists"
        if shutil.which(_CONTROL) is None:
            return f"{_CONTROL} is not installed"
        if reason := name_visible_gpus():
            return f"GPUs have no names: {reason}"
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        command = [sys.executable, "-m", __spec__.name, folder]
        with signals_blocked():
            self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = _line(self._keeper)
        if answer != "ready":
            self.close()
            return answer or "MPS does not start"
        os.environ[_PIPE_VARIABLE] = folder
        return None

    def close(self) -> None:
        """Ask the service to end; returns after at most half a second."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        os.environ.pop(_PIPE_VARIABLE, None)
        for pipe in (keeper.stdin, keeper.stdout):
            if pipe:
                pipe.close()
        reap(keeper, _REAP_TIMEOUT_S)  # the service does not end while this process uses the GPU


def environment_without_mps() -> dict[str, str]:
    """Environment without the daemon's own service, for a process that may crash: a crash would end all its clients."""
    own = Path(os.environ.get(_PIPE_VARIABLE, "")).name.startswith(_PREFIX)
    return {name: value for name, value in os.environ.items() if not (own and name == _PIPE_VARIABLE)}


def _line(keeper: subprocess.Popen[str]) -> str:
    """The keeper's first line; empty if there is none in time."""
    assert keeper.stdout is not None  # noqa: S101 - a pipe was asked for
    came, _, _ = select.select([keeper.stdout], [], [], 2 * _START_TIMEOUT_S)
    return keeper.stdout.readline().strip() if came else ""


def _run_keeper(folder: Path) -> int:
    ignore_stop_signals()
    environment = {**os.environ, _PIPE_VARIABLE: str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    pause = threading.Event()
    servers: list[psutil.Process] = []
    with subprocess.Popen(
        [_CONTROL, "-f"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as control:
        try:
            waited = 0.0
            while not (folder / "control").exists():
                if control.poll() is not None or waited > _START_TIMEOUT_S:
                    sys.stdout.write(f"{_CONTROL} ended with {control.poll()}\n")
                    return 1
                pause.wait(_POLL_S)
                waited += _POLL_S
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.read()
            # The control process starts a server in a session of its own. A killed client may keep it from ending.
            with suppress(psutil.Error):
                servers = psutil.Process(control.pid).children(recursive=True)
            with suppress(subprocess.SubprocessError):
                quitting = f"quit -t {_QUIT_S}\n"
                subprocess.run([_CONTROL], env=environment, input=quitting, text=True, timeout=2 * _QUIT_S, check=False)
                control.wait(_QUIT_S)
        finally:
            if control.poll() is None:
                os.killpg(control.pid, signal.SIGKILL)
            for server in psutil.wait_procs(servers, timeout=_REAP_TIMEOUT_S)[1]:
                with suppress(psutil.Error):
                    server.kill()
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(_run_keeper(Path(sys.argv[1])))
