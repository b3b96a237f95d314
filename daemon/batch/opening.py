"""Opens the store of claims that a configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.batch.clips import Clip
from daemon.batch.folder import ResultFolder
from daemon.batch.local_store import LocalClipStore
from daemon.batch.store import ClipStore
from daemon.config import Config
from daemon.errors import ConfigError

_JOURNAL = "journal.jsonl"


def open_store(config: Config, clips: Sequence[Clip], folder: ResultFolder, name: str) -> ClipStore:
    """The claims of a batch.

    Args:
        name: of the batch.

    Raises:
        ConfigError, StoreError: it cannot be opened, or another batch has the name.
    """
    if config.fleet.coordinator is None:
        return LocalClipStore(folder.state_file(_JOURNAL), name, [clip.name for clip in clips])
    raise ConfigError("fleet.coordinator: a batch needs etcd")
