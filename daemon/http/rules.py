"""What may come in over the network: who, how much, and which sources."""

from __future__ import annotations

import hmac
import re
from typing import Any

import msgspec

from daemon.config import AvConfig, CameraConfig, HttpConfig, SourceConfig, source_of
from daemon.errors import ConfigError
from daemon.redact import Secret

MOST_BODY = 64 << 10
_ENVIRONMENT = re.compile(r"\$\{")


def knows(token: Secret | None, header: str | None) -> bool:
    """Whether an Authorization header has the token, in a time that does not tell how much of it was right."""
    if token is None or header is None:
        return False
    scheme, _, given = header.partition(" ")
    right = hmac.compare_digest(given.strip().encode(), token.reveal().encode())
    return right and scheme.lower() == "bearer"


def source_from(content: bytes, config: HttpConfig, id: str | None = None) -> SourceConfig:
    """A source as the API takes it: JSON with the keys of config.yaml.

    Args:
        id: that it must have.

    Raises:
        ConfigError: it is none, or is not allowed here; says why.
    """
    try:
        raw: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"not JSON: {str(error)[:100]}") from error
    if not isinstance(raw, dict):
        raise ConfigError("a source is an object with the keys of config.yaml")
    if id is not None:
        raw = {**raw, "id": raw.get("id", id)}
    if _ENVIRONMENT.search(msgspec.json.encode(raw).decode()):
        raise ConfigError(
            "${NAME} is for the configuration file: what comes over the network may not read the environment"
        )
    source = source_of(raw)
    if id is not None and source.id != id:
        raise ConfigError(f"id: {source.id!r} is not {id!r}")
    if len(source.id) > 64:
        raise ConfigError("id: more than 64 characters")
    if not config.allow_local:
        _check_remote(source, config)
    return source


def _check_remote(source: SourceConfig, config: HttpConfig) -> None:
    if isinstance(source, CameraConfig):
        raise ConfigError("type: cameras of this machine are not added over the network: set http.allow_local")
    if isinstance(source, AvConfig):
        if source.url.scheme not in config.schemes:
            raise ConfigError(
                f"url: only {', '.join(config.schemes)} are allowed here: see http.schemes and allow_local"
            )
        if source.options:
            raise ConfigError("options: FFmpeg's own are not taken over the network: set http.allow_local")
