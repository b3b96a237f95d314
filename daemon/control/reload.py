"""Compares two configurations: what can change in a running daemon, and what cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from daemon.errors import ConfigError
from daemon.pipeline.stages import Defaults

if TYPE_CHECKING:
    from daemon.config.model import ModelConfig
    from daemon.config.root import Config
    from daemon.config.sources import SourceConfig
    from detectors.port import Size

_HOT = ("sources", "model", "models", "tracking", "bridge")
_HOT_KEYS = {
    "log": ("level",),
    "monitor": ("interval_s", "stall_after_s"),
    "record": ("mode", "pre_s", "post_s", "max_clip_s"),
}
# Keys of a source.
_WITHOUT_RECONNECT = (
    "confidence",
    "labels",
    "tracking",
    "rules",
    "roi",
    "tiles",
    "input_size",
    "record",
)  # keys of a source


@dataclass(frozen=True)
class Change:
    """Attributes:
    added: sources that are new, or were disabled.
    removed: ids.
    changed: sources that must reconnect.
    refiltered: sources with new confidence, labels, tracking, rules, roi, tiles, input size or recording only.
    models: names of models that have changed, or whose options have, or of which a source needs a lower threshold or
        another input size.
    settings: other keys, such as `log.level`.
    """

    added: list[SourceConfig]
    removed: list[str]
    changed: list[SourceConfig]
    refiltered: list[SourceConfig]
    models: list[str]
    settings: list[str] = field(default_factory=list)

    @property
    def summary(self) -> dict[str, object]:
        """For the log and the API."""
        rows = {
            "added": [source.id for source in self.added],
            "removed": self.removed,
            "changed": [source.id for source in (*self.changed, *self.refiltered)],
            "settings": self.settings,
        }
        named = [name for name in self.models if name]
        models: dict[str, object] = {"models": named} if named else {"model": True} if self.models else {}
        return {**{name: ids for name, ids in rows.items() if ids}, **models}


def difference(old: Config, new: Config) -> Change:
    """The change from one configuration to another.

    Raises:
        ConfigError: some keys need a restart; names all of them.
    """
    same_tokens = msgspec.structs.replace(
        new.http, token=old.http.token, token_file=old.http.token_file, tokens=old.http.tokens
    )
    hot = {name: {key: getattr(getattr(old, name), key) for key in keys} for name, keys in _HOT_KEYS.items()}
    others = {name: msgspec.structs.replace(getattr(new, name), **keys) for name, keys in hot.items()}
    compared = msgspec.structs.replace(new, http=same_tokens, **others)
    cold = [
        name for name in old.__struct_fields__ if name not in _HOT and getattr(old, name) != getattr(compared, name)
    ]
    if old.model_names != new.model_names:
        cold.append("the names of models")
    else:
        for name in old.model_names:
            own, wanted = old.for_model(name).model, new.for_model(name).model
            changed = [key for key in ("backend", "provider") if getattr(own, key) != getattr(wanted, key)]
            cold += [f"models.{name}.{key}" if name else f"model.{key}" for key in changed]
    if cold:
        raise ConfigError(f"{', '.join(cold)}: cannot change while running: restart, or undo the change")
    before = {source.id: source for source in old.active}
    after = {source.id: source for source in new.active}
    both = [
        source
        for id, source in after.items()
        if id in before and (source != before[id] or new.tracking_of(source) != old.tracking_of(before[id]))
    ]
    refiltered = [source for source in both if _same_picture(source, before[source.id])]
    return Change(
        added=[source for id, source in after.items() if id not in before],
        removed=[id for id in before if id not in after],
        changed=[source for source in both if source not in refiltered],
        refiltered=refiltered,
        models=[name for name in new.model_names if not is_served(old.for_model(name), new.for_model(name))],
        settings=[
            *(
                f"{name}.{key}"
                for name, keys in hot.items()
                for key, value in keys.items()
                if getattr(getattr(new, name), key) != value
            ),
            *(["bridge"] if new.bridge != old.bridge else []),
        ],
    )


def is_served(old: Config, new: Config) -> bool:
    """Whether the model of one configuration serves the sources of another."""
    return is_same_model(old.model, new.model) and suits(old, new)


def is_same_model(one: ModelConfig, other: ModelConfig) -> bool:
    """Whether two models are equal, apart from the time limit for opening."""
    return one == msgspec.structs.replace(other, open_timeout_s=one.open_timeout_s)


def suits(opened_for: Config, new: Config) -> bool:
    """Whether a model that was opened for one configuration serves the sources of another."""
    return least_confidence(opened_for) <= least_confidence(new) and sizes_of(new) <= sizes_of(opened_for)


def sizes_of(config: Config) -> set[Size]:
    """The input sizes of all sources beside the model's own, at which the detector is opened, too."""
    return {size for source in config.active if (size := source.model_size) and size != config.model.input_size}


def least_confidence(config: Config) -> float:
    """The lowest threshold of all sources and trackers, for which the detector is opened. In a fleet, sources that are
    tracked come later."""
    own = [source.confidence for source in config.active if source.confidence is not None]
    floors = [tracking.floor for source in config.active if (tracking := config.tracking_of(source))]
    if config.fleet.coordinator is not None:
        floors.append(config.tracking.floor)
    return min([config.model.confidence, *own, *floors])


def defaults_of(config: Config) -> Defaults:
    """The filter defaults of all sources."""
    return Defaults(config.model.confidence, least_confidence(config), config.model.max_detections)


def _same_picture(one: SourceConfig, other: SourceConfig) -> bool:
    """Whether two sources differ in nothing but what the model sees of their pictures, and the use of its boxes."""
    names = [name for name in one.__struct_fields__ if name not in _WITHOUT_RECONNECT]
    return type(one) is type(other) and all(getattr(one, name) == getattr(other, name) for name in names)
