"""The configuration of `lookout batch`: how the clips of an archive are played. docs/batch.md explains it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from daemon.errors import ConfigError

# Keys that each clip has itself, and keys that would make a difference from one run to the next.
_NOT_FOR_CLIPS = ("id", "type", "url", "user", "password", "pace", "loop", "kind", "transport", "enabled")


class BatchConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section `batch`."""

    at_once: Literal["auto"] | Annotated[int, msgspec.Meta(ge=1, le=256)] = "auto"
    """clips that one process plays at a time; auto: by cores, or 32 with a GPU"""
    lease_s: Annotated[float, msgspec.Meta(ge=2, le=3600)] = 15.0
    """with a coordinator: a process that is silent for so long has lost its clips to others"""
    source: dict[str, Any] = {}
    """keys of a source, for every clip, such as {tracking: true, labels: [person]}"""


def check_batch(batch: BatchConfig) -> None:
    """Check what types cannot express.

    Raises:
        ConfigError: names the key.
    """
    for key in batch.source:
        if key in _NOT_FOR_CLIPS:
            raise ConfigError(f"batch.source.{key}: a clip has its own; leave it out")
