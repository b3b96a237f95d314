"""The rules between recording and HTTP."""

from __future__ import annotations

import msgspec

from daemon.config.http import HttpConfig, check_http
from daemon.config.recording import RecordConfig
from daemon.errors import ConfigError


def check_playback(record: RecordConfig, http: HttpConfig) -> None:
    """
    Raises:
        ConfigError: nobody could use the API of recordings, or it has no port.
    """
    if record.port is None:
        return
    if not record.stores:
        raise ConfigError("record.port: there is nothing to serve: set record.stores")
    if http.token is None and http.token_file is None and not http.tokens:
        raise ConfigError("record.port: recordings are for holders of a token: set http.token or http.tokens")
    check_http(msgspec.structs.replace(http, enabled=True))
    if http.enabled and record.port and record.port == http.port:
        raise ConfigError(f"record.port: {record.port} is http.port: choose another one")
