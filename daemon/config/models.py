"""Several models: which of them look at a source, and the configuration as each of them has it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.config.model import ModelConfig
from daemon.config.sources import SourceConfig, SourceTracking
from daemon.errors import ConfigError

if TYPE_CHECKING:
    from daemon.config.root import Config

SINGLE = ""
"""The name of the model where the configuration has `model`, and not `models`."""


def with_first_model(raw: dict[str, Any]) -> dict[str, Any]:
    """A raw configuration with `models` in the form of `Config`, where `model` is the first of them.

    Raises:
        ConfigError: there is `model` beside `models`, or `models` names none.
    """
    if "models" not in raw:
        return raw
    if "model" in raw:
        raise ConfigError("models: there is `model` as well, which is for one: give it a name among models")
    named = raw["models"]
    if not isinstance(named, dict) or not named or not all(isinstance(name, str) for name in named):
        raise ConfigError("models: must be a mapping of names, such as {people: {path: people.onnx}}")
    return {**raw, "model": next(iter(named.values()))}


def models_of(config: Config, source: SourceConfig) -> tuple[str, ...]:
    """The names of the models that look at a source."""
    names = config.model_names
    if source.model is None:
        return names[:1]
    return (source.model,) if isinstance(source.model, str) else tuple(source.model)


def tracked_by(config: Config, source: SourceConfig) -> str:
    """The name of the model whose boxes are tracked, if any are."""
    own = source.tracking
    named = own.model if isinstance(own, SourceTracking) else None
    return models_of(config, source)[0] if named is None else named


def for_model(config: Config, name: str) -> Config:
    """The configuration as one of several models has it: its own settings and lanes, the sources that it looks at, and
    of those the tracks and rules that mean its labels."""
    model = config.models[name]
    return msgspec.structs.replace(
        config,
        model=model,
        models={},
        lanes=model.lanes or config.lanes,
        sources=[_seen_by(config, source, name) for source in config.sources if name in models_of(config, source)],
        classifiers=[row for row in config.classifiers if row.model == name or len(config.models) == 1],
    )


def _seen_by(config: Config, source: SourceConfig, name: str) -> SourceConfig:
    if tracked_by(config, source) == name:
        return source
    return msgspec.structs.replace(source, tracking=False, rules=[])


def check_models(config: Config) -> None:
    """
    Raises:
        ConfigError: a name means nothing, or is needed and not there.
    """
    _check_names(config.models)
    for index, source in enumerate(config.sources):
        _check_source(config, source, f"sources[{index}].")
    for index, row in enumerate(config.classifiers):
        if row.model is not None or len(config.models) > 1:
            _check_name(config.models, row.model, f"classifiers[{index}].model", "its labels are")
    if len(config.models) > 1 and config.fleet.coordinator is not None:
        raise ConfigError("models: a fleet places sources by the rate of one model: use `model`, or no coordinator")


def _check_names(models: Mapping[str, ModelConfig]) -> None:
    for name in models:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            raise ConfigError(f"models: {name!r} may hold letters, digits, '_', '.' and '-' only, and up to 64")


def _check_source(config: Config, source: SourceConfig, where: str) -> None:
    named = [source.model] if isinstance(source.model, str) else source.model or []
    for name in named:
        _check_name(config.models, name, f"{where}model", "it is for")
    if len(set(named)) < len(named):
        raise ConfigError(f"{where}model: names a model twice")
    if len(config.models) > 1 and not named:
        _check_name(config.models, None, f"{where}model", "it is for")
    tracking = source.tracking if isinstance(source.tracking, SourceTracking) else None
    own = models_of(config, source)
    if tracking and tracking.model is not None and tracking.model not in own:
        raise ConfigError(f"{where}tracking.model: {tracking.model!r} does not look at it{_choice(own)}")
    if len(own) > 1 and config.tracking_of(source) is not None and not (tracking and tracking.model):
        raise ConfigError(f"{where}tracking: say whose boxes are tracked, tracking: {{model: NAME}}{_choice(own)}")


def _check_name(models: Mapping[str, ModelConfig], name: str | None, where: str, what: str) -> None:
    if not models:
        raise ConfigError(f"{where}: there is one model, without a name: leave the key out, or name models in `models`")
    if name is None:
        raise ConfigError(f"{where}: there are several models: name the one that {what}{_choice([*models])}")
    if name not in models:
        raise ConfigError(f"{where}: there is no model {name!r}{_choice([*models])}")


def _choice(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if any(names) else ""
