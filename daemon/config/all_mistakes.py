"""All mistakes of a configuration that cannot be converted, so that its author mends them at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast, get_type_hints

from daemon.config.model import ModelConfig
from daemon.config.models import with_first_model
from daemon.config.recording import StoreConfig
from daemon.config.root import Config, problems_of, problems_of_ids, problems_of_sections
from daemon.config.source_checks import problems_of_source
from daemon.config.sources import SourceConfig
from daemon.config.text import hook, problems_of_variables
from daemon.errors import ConfigError
from daemon.validation import UNKNOWN_NAME, convert, is_meant, mistakes_of, unknown_keys

_OF_SOURCES = {"model", "models", "record", "tracking", "fleet"}  # sections that sources refer to
_TOLD_BY_NAME = f"record.stores{UNKNOWN_NAME}"


def mistakes_in(raw: Mapping[str, Any]) -> Iterator[str]:
    """A line for each mistake of each section and of each source, each with the path of its key; some come twice."""
    unknown = [*unknown_keys(raw, Config)]
    yield from unknown
    yield from _missing(raw, unknown)
    sections, bad = {}, set[str]()
    for name, told, found in _sections(raw):
        yield from told
        if told:
            bad.add(name)
        elif found is not None:
            sections[name] = found
    yield from problems_of_sections(sections)
    rows = raw.get("sources")
    rows = rows if isinstance(rows, list) else []
    yield from problems_of_ids([row.get("id") if isinstance(row, dict) else None for row in rows])
    good: dict[str, object] = {}
    for index, row in enumerate(rows):
        told = _of_source(row, f"sources[{index}]")
        yield from told
        if not told:
            good[f"sources[{index}]"] = row
    if not bad & _OF_SOURCES:
        yield from _between({name: raw[name] for name in Config.__struct_fields__ if name in raw.keys() - bad}, good)


def _missing(raw: Mapping[str, Any], unknown: list[str]) -> Iterator[str]:
    """Keys that every configuration has, unless one that is unknown stands for it; and sources that are no list."""
    for name, is_there in (("model", "model" in raw or "models" in raw), ("sources", "sources" in raw)):
        if not is_there and not any(is_meant(name, mistake) for mistake in unknown):
            yield f"missing key `{name}`"
    if "sources" in raw and not isinstance(raw["sources"], list):
        yield from mistakes_of(raw["sources"], list[object], hook, "sources")[0]


def mistakes_of_named(raw: Mapping[str, Any]) -> Iterator[str]:
    """The mistakes of each of several models, and of each store."""
    record = raw.get("record")
    stores = record.get("stores") if isinstance(record, dict) else None
    for where, named, kind in (("models", raw.get("models"), ModelConfig), ("record.stores", stores, StoreConfig)):
        for name, row in named.items() if isinstance(named, dict) else ():
            yield from mistakes_of(row, kind, hook, f"{where}.{name}")[0]


def _sections(raw: Mapping[str, Any]) -> Iterator[tuple[str, list[str], Any]]:
    """Each section but the sources: its name, its mistakes, and its value where it has none."""
    kinds = get_type_hints(Config, include_extras=True)
    named = [*mistakes_of_named(raw)]
    try:
        with_first_model(dict(raw))
    except ConfigError as error:
        named.append(str(error))
    yield "models", named, None
    for name in [name for name in kinds if name in raw and name not in ("sources", "models")]:
        told = [*problems_of_variables({name: raw[name]}, Config)]
        mistakes, found = mistakes_of(raw[name], kinds[name], hook, name)
        told += [mistake for mistake in mistakes if not mistake.startswith(_TOLD_BY_NAME)]
        yield name, told, None if told or mistakes else found


def _of_source(row: object, where: str) -> list[str]:
    """The mistakes of a source. Those beyond its types are looked for where it has no other ones than unknown keys."""
    told = [*problems_of_variables(row, cast(type, SourceConfig), f"{where}.")]
    mistakes, found = mistakes_of(row, SourceConfig, hook, where)
    return told + mistakes + ([] if found is None else [*problems_of_source(found, f"{where}.")])


def _between(raw: Mapping[str, Any], sources: Mapping[str, object]) -> Iterator[str]:
    """Places where sources that have no mistake themselves do not fit the sections."""
    try:
        found: Config = convert(with_first_model({**raw, "sources": [*sources.values()]}), Config, hook)
    except ConfigError:
        return  # the model is missing
    for problem in problems_of(found, may_be_empty=True, places=[*sources]):
        if problem.startswith("sources["):
            yield problem
