"""Reads configurations: from a file, from text, or one source."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import yaml

from daemon.config.all_mistakes import mistakes_in, mistakes_of_named
from daemon.config.bridge import check_bridge
from daemon.config.http import HttpConfig, check_dashboard
from daemon.config.models import with_first_model
from daemon.config.root import BridgeFile, Config, PageConfig, problems_of
from daemon.config.section import Section, StructT, anchored
from daemon.config.source_checks import check_source
from daemon.config.sources import SourceConfig
from daemon.config.text import UNSET, Loader, check_variables, hook, hook_as_written
from daemon.error_places import keys_written_twice, together
from daemon.errors import ConfigError
from daemon.files import read_text
from daemon.fleet_config import FleetConfig, check_fleet
from daemon.validation import convert, read_yaml

_HAS_EFFECTIVE = os.access in os.supports_effective_ids


class _FleetFile(Section, frozen=True):
    fleet: FleetConfig = FleetConfig()


class _HttpFile(Section, frozen=True):
    http: HttpConfig = HttpConfig()


def load(path: Path, *, may_be_empty: bool = False) -> Config:
    """Read, convert and check a configuration file; relative paths in it are relative to its folder.

    Args:
        may_be_empty: it may have no source.

    Raises:
        ConfigError: with the file, the path of the key, and what to do.
    """
    text = _text_of(path)
    try:
        return anchored(parse(text, may_be_empty=may_be_empty), path.resolve().parent)
    except ConfigError as error:
        raise _of_file(path, error) from error


def load_page(path: Path) -> Config | PageConfig:
    """A configuration file for `lookout dashboard`: a daemon's, or one that has `dashboard` and `log` alone.

    Raises:
        ConfigError: as `load`.
    """
    return _load_part(path, PageConfig, "dashboard", lambda found: check_dashboard(found.dashboard))


def load_bridge(path: Path) -> Config | BridgeFile:
    """A configuration file for `lookout bridge`: a daemon's, or one that has `bridge`, `http` and `log` alone.

    Raises:
        ConfigError: as `load`.
    """
    return _load_part(path, BridgeFile, "bridge", lambda found: check_bridge(found.bridge, found.http))


def _load_part(
    path: Path, kind: type[StructT], section: str, check_found: Callable[[StructT], None]
) -> Config | StructT:
    """A whole configuration, or a file that has the keys of `kind` alone, `section` among them."""
    text = _text_of(path)
    try:
        raw = read_yaml(text, Loader)
        if not (isinstance(raw, dict) and section in raw and set(raw) <= {*kind.__struct_fields__}):
            return load(path)
        check_variables(raw, kind)
        found: StructT = convert(raw, kind, hook)
        check_found(found)
        return anchored(found, path.resolve().parent)
    except ConfigError as error:
        raise error if str(error).startswith(f"{path}: ") else _of_file(path, error) from error


def load_fleet(path: Path) -> FleetConfig:
    """The section `fleet` of a configuration file. The rest is not read, and need not be there.

    Raises:
        ConfigError: as `load`; or the section names no coordinator.
    """
    raw = {key: value for key, value in load_raw(path).items() if key == "fleet"}
    try:
        check_variables(raw, _FleetFile)
        found: FleetConfig = convert(raw, _FleetFile, hook).fleet
        check_fleet(found, has_sources=False)
    except ConfigError as error:
        raise _of_file(path, error) from error
    if found.coordinator is None:
        raise ConfigError(f"{path}: fleet.coordinator is not set: write it, or use --coordinator URL")
    return anchored(found, path.resolve().parent)


def load_http(path: Path) -> HttpConfig:
    """The section `http` of a configuration file. The rest is not read, so it may have mistakes.

    Raises:
        ConfigError: as `load`.
    """
    raw = {key: value for key, value in load_raw(path).items() if key == "http"}
    try:
        check_variables(raw, _HttpFile)
        found: HttpConfig = convert(raw, _HttpFile, hook).http
    except ConfigError as error:
        raise _of_file(path, error) from error
    return anchored(found, path.resolve().parent)


def load_raw(path: Path) -> dict[str, Any]:
    """The keys of a YAML file as they are written: ${NAME} is not replaced, and nothing is checked.

    Raises:
        ConfigError: it cannot be read.
    """
    text = _text_of(path)
    try:
        raw = read_yaml(text, Loader)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: is not a mapping of keys")
    _write_off(raw)
    return raw


def _of_file(path: Path, error: ConfigError) -> ConfigError:
    """With the file's name, and why a variable is missing, where this user may not read the file `environment`."""
    beside = path.parent / "environment"
    is_closed = os.access(beside, os.F_OK) and not os.access(beside, os.R_OK, effective_ids=_HAS_EFFECTIVE)
    hint = f"; this user may not read {beside}: use sudo" if is_closed else ""
    text, *mistakes = (f"{line}{hint}" if UNSET in line else line for line in (str(error), *error.mistakes))
    return ConfigError(f"{path}: {text}", mistakes)


def _text_of(path: Path) -> str:
    try:
        return read_text(path)
    except FileNotFoundError as error:
        raise ConfigError(
            f"config {path} does not exist: pass one with -c, or copy the config.yaml that explains every key"
        ) from error
    except OSError as error:
        raise ConfigError(f"config {path} cannot be read: {error.strerror}") from error


def parse(text: str, *, may_be_empty: bool = False) -> Config:
    """A configuration from YAML text; see `load`."""
    raw, twice = _read(text)
    if not isinstance(raw, dict):
        raise ConfigError("is not a mapping of keys: it needs at least `model` and `sources`")
    _write_off(raw)
    try:
        for mistake in twice:
            raise ConfigError(mistake)
        check_variables(raw, Config)
        whole = with_first_model(raw)
        for mistake in mistakes_of_named(raw):
            raise ConfigError(mistake)
        found: Config = convert(whole, Config, hook)
    except ConfigError as error:
        raise together([str(error), *twice, *mistakes_in(raw)], text, Loader) from error
    if mistakes := [*problems_of(found, may_be_empty=may_be_empty)]:
        raise together(mistakes, text, Loader)
    return found


def _read(text: str) -> tuple[object, list[str]]:
    """The values of YAML text, and a line for each key that is written twice; the last one counts then.

    Raises:
        ConfigError: it is not YAML.
    """
    try:
        return read_yaml(text, Loader), []
    except ConfigError as error:
        twice = keys_written_twice(text, yaml.SafeLoader)
        if not twice:
            raise
        try:
            return read_yaml(text, yaml.SafeLoader), twice
        except ConfigError:
            raise error from None


def _write_off(raw: dict[str, Any]) -> None:
    """Put `off` where YAML 1.1 has made a false of it."""
    sources = raw.get("sources")
    rows = [row for row in sources if isinstance(row, dict)] if isinstance(sources, list) else []
    for holder, key in (
        (raw, "admission"), (raw.get("gpu"), "mps"), (raw.get("events"), "journal"), (raw.get("publisher"), "masks"),
        (raw.get("publisher"), "packets"), (raw.get("record"), "mode"), *((row, "record") for row in rows),
        *((row.get("record"), "mode") for row in rows),
    ):  # fmt: skip
        if isinstance(holder, dict) and holder.get(key) is False:
            holder[key] = "off"


def source_of(raw: object) -> SourceConfig:
    """One source from a mapping, as it stands in `sources`.

    Raises:
        ConfigError: with the key.
    """
    found: SourceConfig = convert(raw, SourceConfig, hook)
    check_source(found, "")
    return found


def source_as_written(raw: object, where: str) -> SourceConfig:
    """As `source_of`, for another machine: ${NAME} is not replaced.

    Args:
        where: the path of the source, for messages.

    Raises:
        ConfigError: with the key.
    """
    try:
        check_variables(raw, cast(type, SourceConfig))
        found: SourceConfig = convert(raw, SourceConfig, hook_as_written)
        check_source(found, "")
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from error
    return found
