"""A reload by a signal, and the answer of the process that gets it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from daemon.clock import Clock, SystemClock
from daemon.commands.running_daemon import CHANGE_S
from daemon.errors import ConfigError, LookoutError
from daemon.redact import printable
from daemon.system.reload_answer import ReloadAnswer, answer_path, read_answer
from daemon.system.stop_token import StopToken

_POLL_S = 0.05
_BEGIN_S = 20.0  # until a process that was just started listens
_PROGRAMS = "lookout", "lookoutd", "daemon"  # the last two behind `python -m`


def signal_to_reload(process: int, command: str, unheard: str) -> str:
    """Signal a process that runs with a file without mistakes, and return the changes in words.

    Two that ask at once both get the answer of a reload that began after they asked. It may be the same one, or the
    later of two, which names only what the earlier has not changed already.

    Args:
        process: its id. One that was just started is waited for.
        command: of `lookout`, that it runs; SIGHUP would end another program.
        unheard: returned where there is no folder for its answer.

    Raises:
        ConfigError: it finds mistakes in the file all the same, with all of them; nothing has changed.
        LookoutError: it is another program, refuses it, cannot be signalled, or does not answer in time; says which.
    """
    answer, clock = answer_path(), SystemClock()
    until_ns = clock.monotonic_ns() + round(CHANGE_S * 1e9)
    _wait_for_handler(process, command, clock)
    asked_ns = clock.monotonic_ns()
    try:
        os.kill(process, signal.SIGHUP)
    except OSError as error:
        raise LookoutError(f"process {process} cannot be signalled: {error.strerror}") from error
    if answer is None:
        return unheard
    return words_of(_answer_of(process, answer, asked_ns, until_ns, clock))


def _runs(process: int, command: str) -> bool:
    """False for a moment while it is being started, when it has no words yet.

    Raises:
        LookoutError: it is another program.
    """
    try:
        text = os.fsdecode(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:  # there is none, or the system does not tell it: the signal shows which
        return True
    names = [os.path.basename(word) for word in text.split("\0")]
    if text and not any(name in _PROGRAMS and following == command for name, following in pairwise(names)):
        raise LookoutError(f"process {process} is no `lookout {command}`: it is not signalled")
    return bool(text)


def _wait_for_handler(process: int, command: str, clock: Clock) -> None:
    """Before it has one, the signal would be lost, or end it."""
    never, until_ns = StopToken(), clock.monotonic_ns() + _BEGIN_S * 1e9
    while not all((_runs(process, command), _hears_reload(process))):
        if clock.monotonic_ns() >= until_ns:
            raise LookoutError(f"process {process} listens for no reload: is it the id of `lookout {command}` itself?")
        clock.wait(never, _POLL_S)


def _hears_reload(process: int) -> bool:
    """Whether it catches SIGHUP, or blocks it to pass it on, as the first process of a container does; True where the
    system does not tell it.

    Raises:
        LookoutError: it has ended.
    """
    try:
        text = Path(f"/proc/{process}/status").read_text(errors="replace")
    except OSError:
        return True
    rows = dict(row.split(":\t", 1) for row in text.splitlines() if ":\t" in row)
    if rows.get("State", "").startswith("Z"):
        raise LookoutError(f"process {process} has ended: its log says why")
    signals = [int(rows[name], 16) for name in ("SigCgt", "SigBlk") if name in rows]
    return not signals or any(mask >> (signal.SIGHUP - 1) & 1 for mask in signals)


def _answer_of(process: int, path: Path, asked_ns: int, until_ns: int, clock: Clock) -> Mapping[str, Any]:
    """The changes of a reload that began after it was asked for."""
    never = StopToken()
    while clock.monotonic_ns() < until_ns:
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
