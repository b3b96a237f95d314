"""Several models in a configuration file: their names, and the form of `Config` where `model` is the first of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from daemon.config.model import ModelConfig
from daemon.errors import ConfigError

SINGLE = ""
"""The name of the model where the configuration has `model`, and not `models`."""


def with_first_model(raw: dict[str, Any]) -> dict[str, Any]:
    """A raw configuration with `models` in the form of `Config`.

    Raises:
        ConfigError: there is `model` beside `models`, or neither.
    """
    named = raw.get("models", {})
    if named == {} and ("model" in raw or "models" not in raw):
        return raw
    if "model" in raw:
        raise ConfigError("models: there is `model` as well, which is for one: give it a name among models")
    if not isinstance(named, dict) or not named or not all(isinstance(name, str) for name in named):
        raise ConfigError("models: must be a mapping of names, such as {people: {path: people.onnx}}")
    return {**raw, "model": next(iter(named.values()))}


def is_name(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name))


def check_model_names(models: Mapping[str, ModelConfig]) -> None:
    for name in models:
        if not is_name(name):
            raise ConfigError(f"models: {name!r} may hold letters, digits, '_', '.' and '-' only, and up to 64")


def check_model_name(models: Mapping[str, ModelConfig], name: str | None, where: str, what: str) -> None:
    if not models:
        raise ConfigError(f"{where}: there is one model, without a name: leave the key out, or name models in `models`")
    if name is None:
        raise ConfigError(f"{where}: there are several models: name the one that {what}{choice_of([*models])}")
    if name not in models:
        raise ConfigError(f"{where}: there is no model {name!r}{choice_of([*models])}")


def choice_of(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if any(names) else ""
