"""`lookout reload`: has a daemon read its configuration again, and waits for its answer."""

from __future__ import annotations

import json
import os
import signal
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from daemon.config import Config, HttpConfig
from daemon.control.source_store import load_effective
from daemon.dashboard.addresses import operator_of, own_http
from daemon.errors import LookoutError
from daemon.redact import printable

_LIMIT_S = 90.0  # the daemon answers within a minute
_MAX_BYTES = 1 << 20


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
    url = f"{own_http(http)}/api/v1/reload"
    headers = {"Content-Type": "application/json"}
    if token := operator_of(http):
        headers["Authorization"] = f"Bearer {token.reveal()}"
    request = urllib.request.Request(url, b"{}", headers, method="POST")  # noqa: S310 - always http
    # The certificate names the machine, not localhost.
    context = ssl._create_unverified_context() if http.tls_certificate else None  # noqa: S323
    try:
        with urllib.request.urlopen(request, timeout=_LIMIT_S, context=context) as answer:  # noqa: S310 - likewise
            changed = json.loads(answer.read(_MAX_BYTES))
    except urllib.error.HTTPError as error:
        raise LookoutError(f"nothing has changed: {_reason(error)}") from error
    except (OSError, ValueError) as error:
        raise LookoutError(f"{url} does not answer as Lookout does: {getattr(error, 'reason', error)}") from error
    rows = [f"{name}: {', '.join(ids) if isinstance(ids, list) else 'changed'}" for name, ids in changed.items()]
    return "reloaded: " + ("; ".join(rows) or "nothing was different")


def _reason(error: urllib.error.HTTPError) -> str:
    body = error.read(_MAX_BYTES)
    try:
        return printable(str(json.loads(body)["error"]))
    except (ValueError, LookupError, TypeError):
        return f"the daemon answers {error.code}"


def _signal(process: int, config: Config) -> str:
    try:
        os.kill(process, signal.SIGHUP)
    except OSError as error:
        raise LookoutError(f"process {process} cannot be signalled: {error.strerror}") from error
    return f"the file is right, with {len(config.active)} sources, and the daemon reads it; its log has the answer"
