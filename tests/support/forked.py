"""Commands of `lookout` as processes that begin where their imports have ended: a hundredth of a second each.

A process of its own imports the command line once and forks. So a command has its own powers, standard streams and exit
code, as in a shell.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HUNG = -1  # exit code of commands that were killed
_PATIENCE_S = 60.0
_IMPORTED = (
    "calibration.calibrate",
    "calibration.classification",
    "calibration.coco",
    "daemon.analytics.event_publisher",
    "daemon.analytics.journal",
    "daemon.analytics.process.remote",
    "daemon.analytics.snapshots",
    "daemon.analytics.stages",
    "daemon.build",
    "daemon.config.load",
    "daemon.control.changes",
    "daemon.control.decoders",
    "daemon.control.model_trial",
    "daemon.http.kit",
    "daemon.monitoring.monitor",
    "daemon.pipeline.lanes",
    "daemon.publish.packets",
    "daemon.publish.publisher",
    "daemon.publish.zeromq",
    "daemon.sources.ffmpeg",
    "daemon.sources.synthetic",
    "daemon.bench.repeats",
    "daemon.bench.search",
    "daemon.cli",
    "daemon.commands.batch",
    "daemon.commands.calibrate",
    "daemon.commands.check",
    "daemon.commands.dashboard",
    "daemon.commands.engine_comparison",
    "daemon.commands.engine_profile",
    "daemon.commands.engines",
    "daemon.commands.fleet_tables",
    "daemon.commands.init",
    "daemon.commands.mot",
    "daemon.commands.report.tables",
    "daemon.commands.run_sources",
    "daemon.commands.watch",
    "daemon.dashboard.server",
    "detectors.ort.detector",
)


@dataclass(frozen=True)
class Command:
    """Attributes:
    lines: the words after `lookout`; several commands are run one after the other, by one process.
    powerless: without the capabilities of root, who may otherwise read and enter everything.
    stdout: a path to open for writing; `closed`; `unread`, a pipe whose reader is gone; None to get it back.
    """

    lines: Sequence[Sequence[str]]
    powerless: bool = False
    stdout: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = str(ROOT)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Forker:
    """Runs commands, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def run(self, command: Command) -> list[Done]:
        """One for each line; after one that hangs there are no more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(command)) + "\n")
        self._process.stdin.flush()
        return [Done(**row) for row in json.loads(self._process.stdout.readline())]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Forker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        done = _forked(Command(**json.loads(line)))
        sys.stdout.write(json.dumps([asdict(row) for row in done]) + "\n")
        sys.stdout.flush()


def _forked(command: Command) -> list[Done]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as found:
        pid = os.fork()
        if not pid:
            _become(command, out.fileno(), err.fileno(), found.fileno())
        code = _wait(pid)
        done = [Done(**json.loads(row)) for row in _text(found.fileno()).splitlines()]
        if len(done) < len(command.lines):  # it has ended its process, or was killed
            done.append(Done(code, _text(out.fileno()), _text(err.fileno())))
        return done


def _become(command: Command, out: int, err: int, found: int) -> None:
    """In the child: what a shell would start. Does not return."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(err, 2)
        if command.stdout == "closed":
            os.close(1)
        elif command.stdout == "unread":
            reading, writing = os.pipe()
            os.close(reading)
            os.dup2(writing, 1)
        else:
            os.dup2(os.open(command.stdout, os.O_WRONLY) if command.stdout else out, 1)
        os.environ.update(command.environment)
        os.chdir(command.folder)
        if command.powerless:
            _drop_capabilities()
        # As the interpreter makes them at its start: none where the stream is closed.
        sys.stdin, sys.stderr = _stream(0, "r"), _stream(2, "w")
        sys.stdout = None if command.stdout == "closed" else _stream(1, "w")
        _run(command, out, err, found)
    except SystemExit as error:
        sys.stderr.flush()
        os._exit(error.code if isinstance(error.code, int) else 1)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _run(command: Command, out: int, err: int, found: int) -> None:
    from daemon.__main__ import main
    from daemon.cli import invoke

    if len(command.lines) == 1:
        sys.argv = ["lookout", *command.lines[0]]
        main()
    for line in command.lines:
        try:
            code = invoke(line)
        except BaseException:  # noqa: BLE001 - as the interpreter would
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        done = Done(code, _text(out), _text(err))
        os.write(found, json.dumps(asdict(done)).encode() + b"\n")
        for number in (out, err):
            os.ftruncate(number, 0)
            os.lseek(number, 0, os.SEEK_SET)


def _stream(number: int, mode: str) -> Any:
    return open(number, mode, closefd=False, errors="backslashreplace")


def _drop_capabilities() -> None:
    """Of this process and of those that it starts."""
    version, this_process, set_securebits, no_root = 0x20080522, 0, 28, 0b11
    header, none = struct.pack("Ii", version, this_process), bytes(24)
    libc = ctypes.CDLL(None, use_errno=True)
    if (not os.geteuid() and libc.prctl(set_securebits, no_root, 0, 0, 0)) or libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def _wait(pid: int) -> int:
    handle = os.pidfd_open(pid)
    until = monotonic() + _PATIENCE_S
    ready, _, _ = select.select([handle], [], [], max(0.0, until - monotonic()))
    os.close(handle)
    if not ready:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return HUNG
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _text(handle: int) -> str:
    os.lseek(handle, 0, os.SEEK_SET)
    found = b""
    while piece := os.read(handle, 1 << 20):
        found += piece
    return found.decode(errors="replace")


if __name__ == "__main__":
    _serve()
