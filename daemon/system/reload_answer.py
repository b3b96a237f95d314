"""The answer to a reload that a signal has asked for: a file in the service's own folder of run time.

A signal is all that reaches a bridge, or a daemon without an HTTP API, and nothing comes back. systemd gives a service
and its ExecReload the same RUNTIME_DIRECTORY: there the process leaves its answer, and the command finds it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from daemon.redact import printable

_NAME = "reload.json"


class ReloadAnswer(msgspec.Struct, frozen=True):
    """
    Attributes:
        begun_ns: when the reload began, before the file was read; monotonic, which is the same for all processes.
        changed: names by what they are, of a daemon as its API tells it; None if it was refused.
        error: why it was refused.
        mistakes: of the configuration, one line each, where there are several.
        is_half: it failed on its way, and a part of it may be in use.
    """

    begun_ns: int
    changed: dict[str, Any] | None = None
    error: str | None = None
    mistakes: Sequence[str] = ()
    is_half: bool = False


def answer_path() -> Path | None:
    """Where the answer is; None for a process of no service."""
    folder = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(folder) / _NAME if folder else None


def write_answer(answer: ReloadAnswer) -> None:
    """Leave it for a command that waits, if there may be one. Any thread: the last one stays, whole."""
    path = answer_path()
    if path is None:
        return
    error = None if answer.error is None else printable(answer.error)  # the name of a file may be no UTF-8
    told = msgspec.structs.replace(answer, error=error, mistakes=[printable(row) for row in answer.mistakes])
    part = path.with_suffix(f".{threading.get_ident()}.part")
    with suppress(OSError, UnicodeError):
        part.write_bytes(msgspec.json.encode(told))
        part.replace(path)
    with suppress(OSError):
        part.unlink(missing_ok=True)


def read_answer(path: Path) -> ReloadAnswer | None:
    """The last one; None before the first."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ReloadAnswer)
    except (OSError, msgspec.MsgspecError):
        return None
