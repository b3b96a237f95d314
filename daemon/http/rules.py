"""Rules for sources that come over the network: size, kind and secrets.

The API shows `***` for a secret. `***` in the same place of a request keeps the secret, so that a source can be read,
changed and put back. It never copies the secret to another place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from daemon.config.http import HttpConfig
from daemon.config.load import source_of
from daemon.config.sources import AvConfig, SourceConfig, SyntheticConfig
from daemon.errors import ConfigError
from daemon.redact import HIDDEN, Secret, Url

_ENVIRONMENT = re.compile(r"\$\{")
_MAX_PIXELS = 4 << 20  # of a synthetic picture
_MAX_FPS = 60
_MAX_TOTAL_PIXELS = 4 * _MAX_PIXELS  # of all synthetic sources: each takes memory
_MAX_PIXELS_PER_S = _MAX_TOTAL_PIXELS * _MAX_FPS  # takes CPU
_AUTHORITY = re.compile(r"([A-Za-z][\w+.-]*://)(?:\*\*\*@)?([^/?#]*)(.*)", re.DOTALL)


def source_from(
    content: bytes, config: HttpConfig, old: SourceConfig | None = None, id: str | None = None
) -> SourceConfig:
    """Parse a source in the API's format: JSON with the keys of config.yaml.

    Args:
        old: the source that it replaces.
        id: the id that it must have.

    Raises:
        ConfigError: it is invalid, or not allowed here; says why.
    """
    return _checked(_mapping(content), config, old, id)


def patched(content: bytes, config: HttpConfig, old: SourceConfig) -> SourceConfig:
    """Patch a source by RFC 7396: null resets a key to its default.

    Raises:
        ConfigError: as `source_from`.
    """
    changes = _mapping(content)
    if changes.get("type", old.__struct_config__.tag) != old.__struct_config__.tag:
        raise ConfigError("type: cannot be patched: PUT the whole source")
    shown = msgspec.to_builtins(old, enc_hook=str)
    return _checked(_merged(shown, changes), config, old, old.id)


def check_synthetic(sources: Sequence[SourceConfig], before: Sequence[SourceConfig]) -> None:
    """Check the total size of synthetic sources after a change over the network.

    Raises:
        ConfigError: it grows beyond what a remote caller may use of this machine.
    """
    for measure, limit, unit in (
        (_per_second, _MAX_PIXELS_PER_S, "megapixels a second"),
        (_pixels, _MAX_TOTAL_PIXELS, "megapixels"),
    ):
        drawn = measure(sources)
        if drawn > limit and drawn > measure(before):
            raise ConfigError(
                f"synthetic sources would draw {drawn / 1e6:,.0f} {unit}; over the network "
                f"{limit / 1e6:,.0f} are allowed: set http.allow_local"
            )


def _per_second(sources: Sequence[SourceConfig]) -> float:
    return sum(row.width * row.height * row.fps for row in _synthetic(sources))


def _pixels(sources: Sequence[SourceConfig]) -> float:
    return sum(row.width * row.height for row in _synthetic(sources))


def _synthetic(sources: Sequence[SourceConfig]) -> Iterator[SyntheticConfig]:
    return (row for row in sources if isinstance(row, SyntheticConfig) and row.enabled)


def _mapping(content: bytes) -> dict[str, Any]:
    try:
        raw: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"not JSON: {str(error)[:100]}") from error
    if not isinstance(raw, dict):
        raise ConfigError("a source must be an object with the keys of config.yaml")
    if _ENVIRONMENT.search(msgspec.json.encode(raw).decode()):
        raise ConfigError("${NAME} is for the configuration file: the API does not read the environment")
    return raw


def _checked(raw: dict[str, Any], config: HttpConfig, old: SourceConfig | None, id: str | None) -> SourceConfig:
    if id is not None:
        raw = {**raw, "id": raw.get("id", id)}
    source = source_of(_with_secrets(raw, old))
    if id is not None and source.id != id:
        raise ConfigError(f"id: {source.id!r} is not {id!r}")
    if not config.allow_local:
        _check_remote(source, config, old)
    return source


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _with_secrets(raw: dict[str, Any], old: SourceConfig | None) -> dict[str, Any]:
    """Replace `***` by the old source's secrets.

    Raises:
        ConfigError: the old source has no secret there.
    """
    previous = old if isinstance(old, AvConfig) and raw.get("type") == "av" else None
    filled = dict(raw)
    if previous and raw.get("url") == str(previous.url):
        filled["url"] = previous.url.written  # which may be a path with a `$`
    elif isinstance(url := raw.get("url"), str) and HIDDEN in url:
        filled["url"] = _url_with_secrets(url, previous.url if previous else None)
    same_host = previous is None or _host(str(raw.get("url", ""))) == _host(str(previous.url))
    for key in ("user", "password"):
        if raw.get(key) == HIDDEN:
            filled[key] = _current_secret(key, getattr(previous, key) if previous and same_host else None)
    if isinstance(options := raw.get("options"), dict):
        previous_options = previous.options if previous and same_host else {}
        filled["options"] = {
            key: _current_secret(f"options.{key}", previous_options.get(key)) if value == HIDDEN else value
            for key, value in options.items()
        }
    return filled


def _url_with_secrets(url: str, old: Url | None) -> str:
    """The old URL, or another path of its host with its credentials."""
    wanted, shown, written = (_AUTHORITY.fullmatch(text) for text in (url, str(old), old.written if old else ""))
    if old is None or not (wanted and shown and written) or HIDDEN in wanted[2] + wanted[3]:
        raise ConfigError(f"url: {HIDDEN} keeps the current secret: write the secret, or the URL as GET shows it")
    if (wanted[1], wanted[2]) != (shown[1], shown[2]):
        raise ConfigError(f"url: {HIDDEN} is not sent to another host: write the user name and password")
    credentials, at, _ = old.written.partition("://")[2].rpartition("@")
    return f"{wanted[1]}{credentials}{at}{wanted[2]}{wanted[3]}"


def _host(url: str) -> str:
    found = _AUTHORITY.fullmatch(url)
    return found[1] + found[2] if found else url


def _current_secret(key: str, secret: Secret | None) -> str:
    if secret is None:
        raise ConfigError(f"{key}: {HIDDEN} keeps the current secret, and there is none for this host: write it")
    return secret.written


def _check_remote(source: SourceConfig, config: HttpConfig, old: SourceConfig | None) -> None:
    """Check what is new in a source; what the old source has may stay."""
    opened = source.opened_here
    if opened is not None and (type(source) is not type(old) or opened != getattr(old, "opened_here", None)):
        kind = source.__struct_config__.tag
        raise ConfigError(f"type: {kind} opens what this machine has, and not over the network: set http.allow_local")
    if isinstance(source, SyntheticConfig) and (source.width * source.height > _MAX_PIXELS or source.fps > _MAX_FPS):
        limits = f"{_MAX_PIXELS / 1e6:.1f} megapixels at {_MAX_FPS} frames/s"
        raise ConfigError(f"width, height, fps: at most {limits} over the network: set http.allow_local")
    if isinstance(source, AvConfig):
        if source.url.scheme not in config.schemes and source.url != getattr(old, "url", None):
            raise ConfigError(
                f"url: only {', '.join(config.schemes)} are allowed here: see http.schemes and allow_local"
            )
        if source.options and source.options != getattr(old, "options", None):
            raise ConfigError("options: FFmpeg's options are not allowed over the network: set http.allow_local")
