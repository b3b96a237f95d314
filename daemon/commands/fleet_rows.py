"""Sources for a fleet, from the command line or from a file: checked here, and opened on another machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from daemon.commands.from_arguments import sources_of
from daemon.config.load import source_as_written
from daemon.config.sources import AvConfig, SourceConfig
from daemon.errors import ConfigError, LookoutError
from daemon.fleet.operations import listed
from daemon.fleet.records import SourceRecord, StreamFormat
from daemon.redact import Secret
from daemon.validation import convert

_KEY = "fleet"


class _FleetKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The mapping `fleet` of a source in a file, for the placer."""

    priority: int | None = None
    affinity: dict[str, str] = {}
    expected: StreamFormat | None = None


@dataclass(frozen=True)
class Placing:
    """Options of the command line for all sources; a source's own mapping `fleet` comes first.

    Attributes:
        id: of the only source.
    """

    priority: int = 0
    affinity: dict[str, str] = field(default_factory=dict)
    id: str | None = None


def rows_of(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of `sources` for URLs, as `lookout run` takes them.

    Raises:
        LookoutError: an argument is not a source.
    """
    rows: list[dict[str, Any]] = yaml.safe_load("\n".join(sources_of(arguments)))["sources"]
    return rows


def labels_of(arguments: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE as a mapping.

    Raises:
        LookoutError: one is not of that form.
    """
    found = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not (key and equals and value):
            raise LookoutError(f"--label {argument!r} is not KEY=VALUE, such as site=north")
        found[key] = value
    return found


def source_records(rows: Sequence[Any], placing: Placing) -> tuple[dict[str, SourceRecord], list[str]]:
    """Records of sources by id, and lines that warn.

    Raises:
        ConfigError: a source cannot be used; names its key.
    """
    if placing.id is not None:
        if len(rows) != 1:
            raise LookoutError(f"--id names one source, and there are {len(rows)}")
        rows = [{**rows[0], "id": placing.id}]
    found: dict[str, SourceRecord] = {}
    plain = []
    for number, row in enumerate(rows):
        where = f"sources[{number}]"
        source, record = _record(row, where, placing)
        if other := next((id for id in found if id.lower() == source.id.lower()), None):
            raise ConfigError(f"{where}.id: {source.id!r} and {other!r} are the same; each source needs its own")
        found[source.id] = record
        if _has_plain_secret(source):
            plain.append(source.id)
    lines = [f"passwords are written to the coordinator as they are: {listed(plain)}; ${{NAME}} keeps them out of it"]
    return found, lines if plain else []


def _record(row: Any, where: str, placing: Placing) -> tuple[SourceConfig, SourceRecord]:
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: must be a mapping: keys with a colon")
    config = {key: value for key, value in row.items() if key != _KEY}
    source = source_as_written(config, where)
    if isinstance(source, AvConfig) and not source.url.scheme and not Path(source.url.reveal()).is_absolute():
        raise ConfigError(f"{where}.url: {source.url} is a relative path: members need an absolute one")
    try:
        keys: _FleetKeys = convert(row.get(_KEY, {}), _FleetKeys, None)
    except ConfigError as error:
        raise ConfigError(f"{where}.{_KEY}.{error}") from error
    return source, SourceRecord(
        config=config,
        affinity={**placing.affinity, **keys.affinity},
        priority=placing.priority if keys.priority is None else keys.priority,
        expected=keys.expected,
    )


def _has_plain_secret(source: SourceConfig) -> bool:
    return isinstance(source, AvConfig) and any("${" not in text for text in _secrets(source))


def _secrets(source: AvConfig) -> Iterator[str]:
    if source.password is not None:
        yield source.password.reveal()
    if source.url.has_credentials:
        yield source.url.reveal()
    yield from (value.reveal() for key, value in source.options.items() if isinstance(value, Secret) and "pass" in key)
