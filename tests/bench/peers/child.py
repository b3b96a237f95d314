"""Runs one engine in a process of its own: a library may crash, or never return."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.errors import LookoutError
from daemon.redact import printable
from daemon.system.children import reap
from tests.bench.peers.program import Arrays, load

_OURS = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
_REAP_TIMEOUT_S = 5.0
_MAX_TEXT = 300
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_REASONS = [
    re.compile(text) for text in (r"Failed to .*", r"\w*(?:Error|Exception): .*", r".*not found.*", r"\[error *\].*")
]


@dataclass(frozen=True)
class Measured:
    """Attributes:
    figures: see `tests.bench.peers.program.measured`.
    outputs: raw outputs of the pictures that are compared.
    """

    figures: dict[str, Any]
    outputs: Arrays


def run(command: Sequence[str], folder: Path, job: dict[str, Any], timeout_s: float) -> Measured:
    """Run a program over a folder, which is its last argument, and take what it leaves there.

    Raises:
        LookoutError: it does not run here, crashed, or is late.
    """
    (folder / "job.json").write_text(json.dumps(job))
    code = _wait(command, folder, timeout_s)
    try:
        figures = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError) as error:
        if code is None:
            raise LookoutError(f"no result within {timeout_s:g} s (--peer-timeout){_reason(folder)}") from error
        raise LookoutError(f"its process {_ending(code)}{_reason(folder)}") from error
    if "refused" in figures:
        raise LookoutError(printable(f"{figures['refused']}{_reason(folder)}"))
    return Measured(figures, load(folder / "outputs.npz"))


def _wait(command: Sequence[str], folder: Path, timeout_s: float) -> int | None:
    """Start the program and wait for its end; returns its exit code, None if it was late. Nothing of it is left."""
    foreign = command[0] != sys.executable
    environment = {name: value for name, value in os.environ.items() if not (foreign and name in _OURS)}
    with (folder / "log").open("wb") as log:
        try:
            process = subprocess.Popen(
                [*command, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise LookoutError(f"{command[0]}: {error.strerror}") from error
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the processes it started
        reap(process, _REAP_TIMEOUT_S)


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code} and without a result"


def _reason(folder: Path) -> str:
    """The first line of the log that looks like a reason, from where the reason begins; empty without one."""
    lines = _COLOUR.sub("", (folder / "log").read_text(errors="replace")).splitlines()
    found = [match[0] for reason in _REASONS for match in map(reason.search, lines) if match]
    return f" (its log: {printable(found[0].strip())[:_MAX_TEXT]})" if found else ""
