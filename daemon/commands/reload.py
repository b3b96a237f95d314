"""`lookout reload`: has a daemon read its configuration again, and waits for its answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemon.clock import Clock, SystemClock
from daemon.commands.running_daemon import CHANGE_S, AwayError, RefusedError, RunningDaemon, running_daemon
from daemon.config.load import load_http
from daemon.control.source_store import load_effective
from daemon.errors import ConfigError, LookoutError
from daemon.redact import printable
from daemon.system.reload_answer import answer_path, read_answer
from daemon.system.stop_token import StopToken

_ALIVE_S = 5.0
_POLL_S = 0.05
_PATH = "/api/v1/reload"
_GOES_ON = 504
_UNKNOWN = "what became of it is not known: `lookout status` and the daemon's log say it"


def reload(path: Path, url: str | None, token: str | None, process: int | None) -> str:
    """Reload, and return the changes in words.

    Args:
        path: of the configuration file, which says where the daemon is.
        url, token: instead of those of the file.
        process: id of the daemon's process, to signal it where it has no HTTP API. Then its answer is waited for where
            systemd has made a folder for both; elsewhere its log has it.

    Raises:
        ConfigError: the file has mistakes, with all of them; nothing has changed.
        LookoutError: the daemon refuses it, or cannot be asked, or does not answer in time; says which.
    """
    if url is None and not load_http(path).enabled:
        if process is None:
            raise LookoutError(
                "the daemon's answer comes over HTTP: set http.enabled, or give --pid to signal it without"
            )
        return _signal(process, path)
    return _ask(running_daemon(path, url, token, ("operate", "view")))


def _ask(daemon: RunningDaemon) -> str:
    daemon.check_alive(_ALIVE_S)  # one that hangs is known at once
    try:
        changed = daemon.ask("POST", _PATH, {}, limit_s=CHANGE_S)
    except RefusedError as error:
        if error.status == _GOES_ON:
            raise LookoutError(f"{error}: {_UNKNOWN}") from error
        if error.mistakes:
            raise ConfigError(f"nothing has changed: {error}", error.mistakes) from error
        raise LookoutError(f"nothing has changed: {error}") from error
    except AwayError as error:
        raise LookoutError(f"{error}; {_UNKNOWN}") from error
    if not isinstance(changed, dict):
        raise LookoutError(f"{daemon.url}{_PATH} does not answer as Lookout does")
    return _words(changed)


def _words(changed: Mapping[str, Any]) -> str:
    rows = [f"{name}: {', '.join(ids) if isinstance(ids, list) else 'changed'}" for name, ids in changed.items()]
    return "reloaded: " + ("; ".join(rows) or "nothing was different")


def _signal(process: int, path: Path) -> str:
    config, answer, clock = load_effective(path), answer_path(), SystemClock()
    asked_ns = clock.monotonic_ns()
    try:
        os.kill(process, signal.SIGHUP)
    except OSError as error:
        raise LookoutError(f"process {process} cannot be signalled: {error.strerror}") from error
    if answer is None:
        return f"the file is right, with {len(config.active)} sources, and the daemon reads it; its log has the answer"
    return _words(_answer_of(process, answer, asked_ns, clock))


def _answer_of(process: int, path: Path, asked_ns: int, clock: Clock) -> Mapping[str, Any]:
    """The changes of a reload that began after it was asked for."""
    never = StopToken()
    while clock.monotonic_ns() < asked_ns + CHANGE_S * 1e9:
        found = read_answer(path)
        if found is not None and found.begun_ns >= asked_ns:
            if found.changed is not None:
                return found.changed
            text = f"nothing has changed: {printable(found.error or '')}"
            raise (
                ConfigError(text, [printable(row) for row in found.mistakes]) if found.mistakes else LookoutError(text)
            )
        if not _lives(process):
            raise LookoutError(f"process {process} has ended: its log says why")
        clock.wait(never, _POLL_S)
    raise LookoutError(f"process {process} does not answer within {CHANGE_S:g} s; {_UNKNOWN}")


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
