"""`lookout reload`: has a daemon read its configuration again, and waits for its answer."""

from __future__ import annotations

import json
import os
import signal
from http.client import HTTPException
from pathlib import Path

from daemon.config.http import HttpConfig
from daemon.config.root import Config
from daemon.control.source_store import load_effective
from daemon.errors import LookoutError
from daemon.peers.addresses import operator_of, own_http
from daemon.redact import printable
from daemon.system.http_client import HttpAnswer, HttpRequest, fetch, unverified_tls

_LIMIT_S = 90.0  # the daemon answers within a minute
_PATH = "/api/v1/reload"


def reload(path: Path, process: int | None) -> str:
    """Reload, and return the changes in words.

    Args:
        path: of the configuration file.
        process: id of the daemon's process, to signal it where it has no HTTP API.

    Raises:
        LookoutError: the file has a mistake, the daemon refuses it, or cannot be asked; nothing has changed.
    """
    config = load_effective(path)
    if config.http.enabled:
        return _request_reload(config.http)
    if process is None:
        raise LookoutError("the daemon's answer comes over HTTP: set http.enabled, or give --pid to signal it without")
    return _signal(process, config)


def _request_reload(http: HttpConfig) -> str:
    url, headers = own_http(http), {"Content-Type": "application/json"}
    if token := operator_of(http):
        headers["Authorization"] = f"Bearer {token.reveal()}"
    try:
        answer = fetch(url, HttpRequest("POST", _PATH, b"{}", headers), _LIMIT_S, unverified_tls())
        if answer.status != 200:
            raise LookoutError(f"nothing has changed: {_reason(answer)}")
        changed = json.loads(answer.content)
    except (OSError, HTTPException, ValueError) as error:
        raise LookoutError(f"{url}{_PATH} does not answer as Lookout does: {error}") from error
    rows = [f"{name}: {', '.join(ids) if isinstance(ids, list) else 'changed'}" for name, ids in changed.items()]
    return "reloaded: " + ("; ".join(rows) or "nothing was different")


def _reason(answer: HttpAnswer) -> str:
    try:
        return printable(str(json.loads(answer.content)["error"]))
    except (ValueError, LookupError, TypeError):
        return f"the daemon answers {answer.status}"


def _signal(process: int, config: Config) -> str:
    try:
        os.kill(process, signal.SIGHUP)
    except OSError as error:
        raise LookoutError(f"process {process} cannot be signalled: {error.strerror}") from error
    return f"the file is right, with {len(config.active)} sources, and the daemon reads it; its log has the answer"
