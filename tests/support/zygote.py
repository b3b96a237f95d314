"""`lookout` as a process that begins where its imports have ended: it works a second sooner.

A process imports what a daemon does, and forks for each. Such a daemon has its own descriptors, folder, environment and
end, as if it were started by a shell. How a daemon begins before that is for tests that start one themselves.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

_IMPORTED = (
    "daemon.system.loading",
    "daemon.cli",
    "daemon.commands.run",
    "daemon.commands.batch",
    "daemon.http.server",
    "detectors.ort.detector",
    "daemon.analytics.compiled_step",
    "daemon.analytics.compiled_broad_phase",
)
_REQUEST_BYTES = 1 << 20
_STATUS = struct.Struct("i")


class Started:
    """A process, with the part of `subprocess.Popen` that tests use.

    Args:
        words: behind `lookout`.
        streams: descriptors of its standard streams.
        folder: where it works.
    """

    def __init__(self, words: Sequence[str], streams: tuple[int, int, int], folder: str) -> None:
        self.args = words
        self.returncode: int | None = None
        self.pid, self._ended = _zygote().fork(words, streams, folder)

    def poll(self) -> int | None:
        """The exit code, None while it runs; below 0 a signal's number, as `subprocess` has it."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises:
        subprocess.TimeoutExpired: it still runs.
        """
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            (self.returncode,) = _STATUS.unpack(os.read(self._ended, _STATUS.size))
            os.close(self._ended)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Zygote:
    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            command = [sys.executable, "-m", "tests.support.zygote", str(other.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()])

    def fork(self, words: Sequence[str], streams: tuple[int, int, int], folder: str) -> tuple[int, int]:
        """The child's pid, and a descriptor that tells its end."""
        ended, told = os.pipe()
        request = {"words": [*words], "folder": folder, "environment": dict(os.environ)}
        socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams, told])
        os.close(told)
        return int(self._socket.recv(64)), ended

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _zygote() -> _Zygote:
    zygote = _Zygote()
    atexit.register(zygote.close)
    return zygote


def _serve(requests: socket.socket) -> None:
    """Fork for each request, and tell the end of each child. Returns in a child, ready for `main`."""
    running: dict[int, tuple[int, int]] = {}  # by pidfd: the pid, and where its end is told
    while True:
        for ready in select.select([requests.fileno(), *running], [], [])[0]:
            if ready in running:
                pid, told = running.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(BrokenPipeError):  # nobody waits for it
                    os.write(told, _STATUS.pack(code))
                for descriptor in (ready, told):
                    os.close(descriptor)
                continue
            packet, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 4)
            if not packet:
                sys.exit(0)
            *streams, told = descriptors
            pid = os.fork()
            if not pid:
                requests.close()
                for descriptor in (told, *running, *(told for _, told in running.values())):
                    os.close(descriptor)
                _become(json.loads(packet), streams)
                return
            for descriptor in streams:
                os.close(descriptor)
            running[os.pidfd_open(pid)] = pid, told
            requests.send(str(pid).encode())


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """What the interpreter would find at its start."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, errors="backslashreplace", closefd=False) for number in (1, 2))
    sys.argv = ["lookout", *request["words"]]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    for name in _IMPORTED:
        with suppress(ImportError):  # an extra that is not installed: numba, or what serves HTTP
            importlib.import_module(name)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from daemon.__main__ import main

    main()
