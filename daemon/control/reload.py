"""What a new configuration changes of a running daemon, and what it cannot."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from daemon.config import Config, ModelConfig, SourceConfig
from daemon.errors import ConfigError
from daemon.pipeline.stages import Defaults

_HOT = ("sources", "model")


@dataclass(frozen=True)
class Change:
    """Attributes:
    added: sources that are new, or that were disabled.
    removed: ids.
    changed: sources that are to be connected anew.
    wishes: sources of which only confidence or labels have changed.
    model: the model, or how it is run, is another; also if a source wants weaker boxes than it was opened for.
    """

    added: list[SourceConfig]
    removed: list[str]
    changed: list[SourceConfig]
    wishes: list[SourceConfig]
    model: bool

    @property
    def words(self) -> dict[str, object]:
        """For the log."""
        rows = {
            "added": [source.id for source in self.added],
            "removed": self.removed,
            "changed": [source.id for source in (*self.changed, *self.wishes)],
        }
        return {**{name: ids for name, ids in rows.items() if ids}, **({"model": True} if self.model else {})}


def difference(old: Config, new: Config) -> Change:
    """From one to the other.

    Raises:
        ConfigError: it changes what only a restart can change; names every such key.
    """
    same_tokens = msgspec.structs.replace(
        new.http, token=old.http.token, token_file=old.http.token_file, tokens=old.http.tokens
    )
    compared = msgspec.structs.replace(new, http=same_tokens)
    cold = [
        name for name in old.__struct_fields__ if name not in _HOT and getattr(old, name) != getattr(compared, name)
    ]
    if old.model.backend != new.model.backend:
        cold.append("model.backend")
    if cold:
        raise ConfigError(f"{', '.join(cold)}: cannot change while running: restart, or put it back")
    before = {source.id: source for source in old.active}
    after = {source.id: source for source in new.active}
    both = [source for id, source in after.items() if id in before and source != before[id]]
    wishes = [source for source in both if _same_picture(source, before[source.id])]
    return Change(
        added=[source for id, source in after.items() if id not in before],
        removed=[id for id in before if id not in after],
        changed=[source for source in both if source not in wishes],
        wishes=wishes,
        model=not is_same_model(old.model, new.model) or least_confidence(new) < least_confidence(old),
    )


def is_same_model(one: ModelConfig, other: ModelConfig) -> bool:
    """They differ in nothing but for how long one may take to open."""
    return one == msgspec.structs.replace(other, open_timeout_s=one.open_timeout_s)


def least_confidence(config: Config) -> float:
    """That any source wants, with which the detector is opened."""
    own = (source.confidence for source in config.active if source.confidence is not None)
    return min([config.model.confidence, *own])


def defaults_of(config: Config) -> Defaults:
    """For its sources."""
    return Defaults(config.model.confidence, least_confidence(config), config.model.max_detections)


def _same_picture(one: SourceConfig, other: SourceConfig) -> bool:
    """They differ in nothing but what is wanted of the boxes."""
    names = [name for name in one.__struct_fields__ if name not in ("confidence", "labels")]
    return type(one) is type(other) and all(getattr(one, name) == getattr(other, name) for name in names)
