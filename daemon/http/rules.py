"""What may come in over the network: how much, and which sources.

The API shows `***` for the secrets of a source. What comes back with `***` in the same place means the secret that
is there, so that a source can be read, changed and put back; it never means that secret somewhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from daemon.config import AvConfig, HttpConfig, SourceConfig, SyntheticConfig, source_of
from daemon.errors import ConfigError
from daemon.redact import HIDDEN, Secret, Url

MOST_BODY = 64 << 10
_ENVIRONMENT = re.compile(r"\$\{")
_MOST_PIXELS = 4 << 20  # of a drawn picture
_MOST_FPS = 60
_MOST_AT_ONCE = 4 * _MOST_PIXELS  # of all that are drawn: each takes memory, however seldom it is drawn
_MOST_A_SECOND = _MOST_AT_ONCE * _MOST_FPS  # which takes the CPU
_AUTHORITY = re.compile(r"([A-Za-z][\w+.-]*://)(?:\*\*\*@)?([^/?#]*)(.*)", re.DOTALL)


def source_from(
    content: bytes, config: HttpConfig, old: SourceConfig | None = None, id: str | None = None
) -> SourceConfig:
    """A source as the API takes it: JSON with the keys of config.yaml.

    Args:
        old: the source that it takes the place of.
        id: that it must have.

    Raises:
        ConfigError: it is none, or is not allowed here; says why.
    """
    return _checked(_mapping(content), config, old, id)


def patched(content: bytes, config: HttpConfig, old: SourceConfig) -> SourceConfig:
    """A source with some of its keys changed, by RFC 7396: null is the default, and so is what is left out.

    Raises:
        ConfigError: see above.
    """
    changes = _mapping(content)
    if changes.get("type", old.__struct_config__.tag) != old.__struct_config__.tag:
        raise ConfigError("type: cannot be patched: PUT the whole source")
    shown = msgspec.to_builtins(old, enc_hook=str)
    return _checked(_merged(shown, changes), config, old, old.id)


def check_drawn(sources: Sequence[SourceConfig], before: Sequence[SourceConfig]) -> None:
    """Whether sources may be added or changed over the network: what the configuration draws itself may stay.

    Raises:
        ConfigError: they are more than before, and more than this machine should draw for whoever asks.
    """
    for measure, most, unit in (
        (_per_second, _MOST_A_SECOND, "megapixels a second"),
        (_pixels, _MOST_AT_ONCE, "megapixels"),
    ):
        drawn = measure(sources)
        if drawn > most and drawn > measure(before):
            raise ConfigError(
                f"synthetic sources would draw {drawn / 1e6:,.0f} {unit}; over the network "
                f"{most / 1e6:,.0f} are allowed: set http.allow_local"
            )


def _per_second(sources: Sequence[SourceConfig]) -> float:
    return sum(row.width * row.height * row.fps for row in _drawn(sources))


def _pixels(sources: Sequence[SourceConfig]) -> float:
    return sum(row.width * row.height for row in _drawn(sources))


def _drawn(sources: Sequence[SourceConfig]) -> Iterator[SyntheticConfig]:
    return (row for row in sources if isinstance(row, SyntheticConfig) and row.enabled)


def _mapping(content: bytes) -> dict[str, Any]:
    try:
        raw: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"not JSON: {str(error)[:100]}") from error
    if not isinstance(raw, dict):
        raise ConfigError("a source is an object with the keys of config.yaml")
    if _ENVIRONMENT.search(msgspec.json.encode(raw).decode()):
        raise ConfigError(
            "${NAME} is for the configuration file: what comes over the network may not read the environment"
        )
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
    """With the old source's secrets where `***` stands for them.

    Raises:
        ConfigError: it stands where there is none.
    """
    kept = old if isinstance(old, AvConfig) and raw.get("type") == "av" else None
    filled = dict(raw)
    if isinstance(url := raw.get("url"), str) and HIDDEN in url:
        filled["url"] = _same_url(url, kept.url if kept else None)
    same_host = kept is None or _host(str(raw.get("url", ""))) == _host(str(kept.url))
    for key in ("user", "password"):
        if raw.get(key) == HIDDEN:
            filled[key] = _written(key, getattr(kept, key) if kept and same_host else None)
    if isinstance(options := raw.get("options"), dict):
        own = kept.options if kept and same_host else {}
        filled["options"] = {
            key: _written(f"options.{key}", own.get(key)) if value == HIDDEN else value
            for key, value in options.items()
        }
    return filled


def _same_url(url: str, old: Url | None) -> str:
    """The old URL; or another of the same host, with the old credentials."""
    if old is not None and url == str(old):
        return old.written
    wanted, shown, written = (_AUTHORITY.fullmatch(text) for text in (url, str(old), old.written if old else ""))
    if old is None or not (wanted and shown and written) or HIDDEN in wanted[2] + wanted[3]:
        raise ConfigError(f"url: {HIDDEN} stands for what is there now: write the secret, or the URL as GET shows it")
    if (wanted[1], wanted[2]) != (shown[1], shown[2]):
        raise ConfigError(f"url: {HIDDEN} is not sent to another host: write the user name and password")
    credentials, at, _ = old.written.partition("://")[2].rpartition("@")
    return f"{wanted[1]}{credentials}{at}{wanted[2]}{wanted[3]}"


def _host(url: str) -> str:
    found = _AUTHORITY.fullmatch(url)
    return found[1] + found[2] if found else url


def _written(key: str, secret: Secret | None) -> str:
    if secret is None:
        raise ConfigError(f"{key}: {HIDDEN} stands for what is there now, and there is none for this host: write it")
    return secret.written


def _check_remote(source: SourceConfig, config: HttpConfig, old: SourceConfig | None) -> None:
    """What was there may stay; what is new must be allowed."""
    opened = source.opened_here
    if opened is not None and (type(source) is not type(old) or opened != getattr(old, "opened_here", None)):
        kind = source.__struct_config__.tag
        raise ConfigError(f"type: {kind} opens what this machine has, and not over the network: set http.allow_local")
    if isinstance(source, SyntheticConfig) and (source.width * source.height > _MOST_PIXELS or source.fps > _MOST_FPS):
        limits = f"{_MOST_PIXELS / 1e6:.1f} megapixels at {_MOST_FPS} frames/s"
        raise ConfigError(f"width, height, fps: at most {limits} over the network: set http.allow_local")
    if isinstance(source, AvConfig):
        if source.url.scheme not in config.schemes and source.url != getattr(old, "url", None):
            raise ConfigError(
                f"url: only {', '.join(config.schemes)} are allowed here: see http.schemes and allow_local"
            )
        if source.options and source.options != getattr(old, "options", None):
            raise ConfigError("options: FFmpeg's own are not taken over the network: set http.allow_local")
