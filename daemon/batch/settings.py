"""How every clip of a batch is analysed: the daemon's configuration for it, and what results depend on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from daemon.batch.clips import Clip
from daemon.config.events import EventsConfig
from daemon.config.http import HttpConfig
from daemon.config.load import source_of
from daemon.config.model import ModelConfig
from daemon.config.models import choice_of
from daemon.config.publisher import PublisherConfig
from daemon.config.root import BoardConfig, Config, MonitorConfig, check
from daemon.config.section import MAX_MODELS, literal
from daemon.config.sources import AvConfig, ReconnectConfig
from daemon.errors import ConfigError
from daemon.fleet_config import FleetConfig
from daemon.redact import HIDDEN, Secret
from detectors.factory import GPU_BACKENDS, gpus
from detectors.model import digest_of
from detectors.port import is_address

_LONG_S = 3600.0  # the worker decides when a clip is tried again, and how long a disk may take
_GPU_CLIPS, _CPU_CLIPS = 32, 16  # at once, at most
# Keys that results do not depend on, and keys that each clip has itself.
_LEFT_OUT = {
    ModelConfig: ("path", "labels", "backend", "provider", "provider_device", "precision", "builder_level", "cache",
                  "lanes", "open_timeout_s", "transport", "request_timeout_s", "max_batch", "threads"),
    AvConfig: ("id", "url", "model", "pace", "kind", "decode_threads", "open_timeout_s", "read_timeout_s"),
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """How every clip is analysed.

    Attributes:
        config: of the daemon that plays them, without sources; of several models it has those that look at clips.
        settings: what results depend on, as headers show it; keys with defaults are left out.
        at_once: clips that are played at a time.
    """

    config: Config
    settings: dict[str, Any]
    at_once: int

    @property
    def digest(self) -> str:
        return _digest_of(self.settings)

    def batch_id(self, clips: Sequence[Clip]) -> str:
        """The same for the same clips, models and settings."""
        return _digest_of([[clip.name for clip in clips], self.settings])[:16]

    def source(self, id: str, path: Path) -> AvConfig:
        """The source that plays a clip."""
        return _source_of(self.config, id, path)


def recipe_of(config: Config, endpoint: str) -> Recipe:
    """The recipe that a configuration describes; its own sources are ignored.

    Args:
        endpoint: where the daemon publishes meanwhile.

    Raises:
        ConfigError: it cannot be used for a batch.
        DetectorError: the model cannot be read.
    """
    if config.classifiers:
        raise ConfigError(
            "classifiers: how often they look depends on timing, and a batch's results do not: remove them"
        )
    if len(config.models) > MAX_MODELS and "model" not in config.batch.source:
        raise ConfigError(
            f"batch.source.model: name the models that look, {MAX_MODELS} at most{choice_of([*config.models])}"
        )
    inner = msgspec.structs.replace(
        config,
        sources=[],
        admission="off",
        reconnect=ReconnectConfig(initial_s=_LONG_S, max_s=_LONG_S),
        board=BoardConfig(mode="lossless", depth=config.board.depth, max_batch=config.board.max_batch),
        publisher=PublisherConfig(
            endpoint=endpoint, packets="off", masks=config.publisher.masks, max_masks=config.publisher.max_masks
        ),
        monitor=MonitorConfig(interval_s=60, stall_after_s=_LONG_S, stuck_after_s=config.monitor.stuck_after_s),
        events=EventsConfig(journal="off", own_process=False),  # an event comes before the frame that confirms it
        http=HttpConfig(),
        fleet=FleetConfig(),
    )
    sample = _source_of(inner, "clip", Path("/clip"))
    for rule in sample.rules:
        if rule.active is not None:
            raise ConfigError(f"batch.source.rules, {rule.name}: a recording has no time of day: remove `active`")
    try:
        check(msgspec.structs.replace(inner, sources=[sample]))
    except ConfigError as error:
        raise ConfigError(str(error).replace("sources[0]", "batch.source")) from error
    if inner.models:
        looking = {name: inner.models[name] for name in sorted(inner.models_of(sample))}
        inner = msgspec.structs.replace(inner, model=next(iter(looking.values())), models=looking)
    return Recipe(inner, _settings_of(inner, sample), _at_once(inner))


def _source_of(config: Config, id: str, path: Path) -> AvConfig:
    row: dict[str, Any] = {"id": id, "type": "av", "url": literal(os.fspath(path)), "pace": "fast", "kind": "recording"}
    if config.models:
        row["model"] = [*config.models]  # all, unless the batch names its own
    try:
        return cast("AvConfig", source_of({**row, **config.batch.source}))
    except ConfigError as error:
        raise ConfigError(f"batch.source.{error}") from error


def _at_once(config: Config) -> int:
    if config.batch.at_once != "auto":
        return config.batch.at_once
    models = config.models.values() or [config.model]
    if any(model.backend in ("auto", *GPU_BACKENDS) for model in models) and gpus():
        return _GPU_CLIPS
    return min(_CPU_CLIPS, 2 * len(os.sched_getaffinity(0)))


def _settings_of(config: Config, source: AvConfig) -> dict[str, Any]:
    models = {name: _of_model(model, f"models.{name}") for name, model in config.models.items()}
    settings: dict[str, Mapping[str, Any]] = {
        **({"models": models} if models else {"model": _of_model(config.model, "model")}),
        "tracking": _changed(config.tracking),
        "source": _changed(source),
        "masks": _changed(config.publisher, "masks", "max_masks"),
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))  # as a header has them
    return {name: rows for name, rows in plain.items() if rows}


def _of_model(model: ModelConfig, where: str) -> dict[str, Any]:
    has_no_file = is_address(model.path) or model.backend == "fake"
    digest = _sha256(str(model.path).encode()) if has_no_file else digest_of(model.path)
    labels = model.labels if model.labels in (None, "coco") else _sha256(_content_of(Path(str(model.labels)), where))
    return {"digest": digest, **({"labels": labels} if labels else {}), **_changed(model)}


def _content_of(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}.labels: {path} cannot be read: {error.strerror}") from error


def _changed(section: msgspec.Struct, *only: str) -> dict[str, Any]:
    """The keys of a section that differ from their defaults, without secrets."""
    left_out = _LEFT_OUT.get(type(section), ())
    found = {}
    for field in msgspec.structs.fields(section):
        if field.name in left_out or (only and field.name not in only):
            continue
        value = getattr(section, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if value != default:
            found[field.encode_name] = _plain(value)
    return found


def _plain(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        return {**({"type": tag} if tag else {}), **_changed(value)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return msgspec.to_builtins(value, enc_hook=_shown)


def _shown(value: object) -> object:
    return HIDDEN if isinstance(value, Secret) else str(value)


def _digest_of(value: object) -> str:
    return _sha256(msgspec.json.encode(value, order="deterministic"))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
