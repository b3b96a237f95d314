"""Lets a process beside the daemon use its HTTP API."""

from __future__ import annotations

import secrets

import msgspec

from daemon.config.http import TokenConfig
from daemon.config.root import Config
from daemon.redact import Secret


def new_token() -> Secret:
    """A token for one run of the daemon."""
    return Secret(secrets.token_hex(32))


def with_access(config: Config, *rows: TokenConfig) -> Config:
    """A configuration whose HTTP API the holders of these tokens may use; without an API, one on this machine alone."""
    http = config.http
    if not http.enabled:
        http = msgspec.structs.replace(http, enabled=True, host="127.0.0.1", port=0)
    return msgspec.structs.replace(config, http=msgspec.structs.replace(http, tokens=[*http.tokens, *rows]))
