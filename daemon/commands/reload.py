"""`lookout reload`: has a daemon read its configuration again, and waits for its answer."""

from __future__ import annotations

from pathlib import Path

from daemon.commands.running_daemon import CHANGE_S, AwayError, RefusedError, RunningDaemon, running_daemon
from daemon.commands.signalled_reload import signal_to_reload, words_of
from daemon.config.load import load_http
from daemon.control.source_store import load_effective
from daemon.errors import ConfigError, LookoutError

_ALIVE_S = 5.0
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
    return words_of(changed)


def _signal(process: int, path: Path) -> str:
    sources = len(load_effective(path).active)
    return signal_to_reload(
        process, "run", f"the file is right, with {sources} sources, and the daemon reads it; its log has the answer"
    )
