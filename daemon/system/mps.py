"""NVIDIA's Multi-Process Service, for the daemon and its capture processes alone.

Without it the GPU gives each process its turn, and nobody else runs meanwhile: on one H200 that cost a quarter to two
fifths of the engine's speed beside full decoding (docs/why.md, lesson 4). The service has a folder of its own, so no
other program is part of it, and ends with the daemon however that ends: `python -m daemon.system.mps FOLDER` keeps it
until its standard input is closed.
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
from daemon.system.gpus import name_visible
from daemon.system.signals import ignore_stop_signals, signals_blocked

log = structlog.get_logger(__name__)

_CONTROL = "nvidia-cuda-mps-control"
_WHERE = "CUDA_MPS_PIPE_DIRECTORY"
_PREFIX = "lookout-mps-"
_START_TIMEOUT_S = 10.0
_POLL_S = 0.05
_QUIT_S = 3
_SOON_S = 0.5


class Mps:
    """The service, in use by whatever this process starts, and by itself if it has not used the GPU yet.

    Attributes:
        reason: why there is none; None if there is.
    """

    def __init__(self) -> None:
        self._keeper: subprocess.Popen[str] | None = None
        self.reason = self._start()

    def _start(self) -> str | None:
        if os.environ.get(_WHERE):
            return f"{_WHERE} is set: whoever set it has one"
        if shutil.which(_CONTROL) is None:
            return f"{_CONTROL} is not installed"
        if reason := name_visible():
            return f"GPUs have no names: {reason}"
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        command = [sys.executable, "-m", __spec__.name, folder]
        with signals_blocked():
            self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        told = _line(self._keeper)
        if told != "ready":
            self.close()
            return told or "it does not start"
        os.environ[_WHERE] = folder
        return None

    def close(self) -> None:
        """Ask the service to end; returns after half a second at most."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        os.environ.pop(_WHERE, None)
        for pipe in (keeper.stdin, keeper.stdout):
            if pipe:
                pipe.close()
        reap(keeper, _SOON_S)  # as long as this process uses the GPU it will not end


def environment_outside() -> dict[str, str]:
    """For a process that is to have no part in the daemon's own service: one that crashes may take all others along."""
    own = Path(os.environ.get(_WHERE, "")).name.startswith(_PREFIX)
    return {name: value for name, value in os.environ.items() if not (own and name == _WHERE)}


def _line(keeper: subprocess.Popen[str]) -> str:
    """What it says first; empty if it says nothing in time."""
    assert keeper.stdout is not None  # noqa: S101 - a pipe was asked for
    came, _, _ = select.select([keeper.stdout], [], [], 2 * _START_TIMEOUT_S)
    return keeper.stdout.readline().strip() if came else ""


def _keep(folder: Path) -> int:
    ignore_stop_signals()
    environment = {**os.environ, _WHERE: str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
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
            # It has begun a server in a session of its own, which a client that was killed may keep from ending.
            with suppress(psutil.Error):
                servers = psutil.Process(control.pid).children(recursive=True)
            with suppress(subprocess.SubprocessError):
                quitting = f"quit -t {_QUIT_S}\n"
                subprocess.run([_CONTROL], env=environment, input=quitting, text=True, timeout=2 * _QUIT_S, check=False)
                control.wait(_QUIT_S)
        finally:
            if control.poll() is None:
                os.killpg(control.pid, signal.SIGKILL)
            for server in psutil.wait_procs(servers, timeout=_SOON_S)[1]:
                with suppress(psutil.Error):
                    server.kill()
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(_keep(Path(sys.argv[1])))
