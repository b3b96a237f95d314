"""A reload by a signal, and the answer of the process that gets it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemon.clock import Clock, SystemClock
from daemon.commands.running_daemon import CHANGE_S
from daemon.errors import ConfigError, LookoutError
from daemon.redact import printable
from daemon.system.reload_answer import ReloadAnswer, answer_path, read_answer
from daemon.system.stop_token import StopToken

_POLL_S = 0.05


def signal_to_reload(process: int, unheard: str) -> str:
    """Signal a process that runs with a file without mistakes, and return the changes in words.

    Two that ask at once both get the answer of a reload that began after they asked. It may be the same one, or the
    later of two, which names only what the earlier has not changed already.

    Args:
        process: its id.
        unheard: returned where there is no folder for its answer.

    Raises:
        ConfigError: it finds mistakes in the file all the same, with all of them; nothing has changed.
        LookoutError: it refuses it, cannot be signalled, or does not answer in time; says which.
    """
    answer, clock = answer_path(), SystemClock()
    asked_ns = clock.monotonic_ns()
    try:
        os.kill(process, signal.SIGHUP)
    except OSError as error:
        raise LookoutError(f"process {process} cannot be signalled: {error.strerror}") from error
    if answer is None:
        return unheard
    return words_of(_answer_of(process, answer, asked_ns, clock))


def _answer_of(process: int, path: Path, asked_ns: int, clock: Clock) -> Mapping[str, Any]:
    """The changes of a reload that began after it was asked for."""
    never = StopToken()
    while clock.monotonic_ns() < asked_ns + CHANGE_S * 1e9:
        found = read_answer(path)
        if found is not None and found.begun_ns >= asked_ns:
            if found.changed is not None:
                return found.changed
            raise _error_of(found)
        if not _lives(process):
            raise LookoutError(f"process {process} has ended: its log says why")
        clock.wait(never, _POLL_S)
    raise LookoutError(f"process {process} does not answer within {CHANGE_S:g} s; what became of it is in its log")


def _error_of(answer: ReloadAnswer) -> LookoutError:
    reason = printable(answer.error or "")
    if answer.is_half:
        return LookoutError(f"the reload failed half way, its log has more: {reason}")
    text = f"nothing has changed: {reason}"
    return ConfigError(text, [printable(row) for row in answer.mistakes]) if answer.mistakes else LookoutError(text)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def words_of(changed: Mapping[str, Any]) -> str:
    """The changes of a reload: names by what they are."""
    rows = [f"{name}: {', '.join(ids) if isinstance(ids, list) else 'changed'}" for name, ids in changed.items()]
    return "reloaded: " + ("; ".join(rows) or "nothing was different")
