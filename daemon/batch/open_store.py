"""Opens the store of claims that a configuration asks for."""

from __future__ import annotations

from urllib.parse import urlsplit

from daemon.batch.local_store import LocalClipStore
from daemon.batch.store import ClipStore
from daemon.batch.worker import Job
from daemon.config.root import Config
from daemon.errors import ConfigError

_JOURNAL = "journal.jsonl"


def open_store(config: Config, job: Job, name: str | None) -> ClipStore:
    """The claims of a batch.

    Args:
        name: of the batch; None for one that is made from the clips, the model and the settings.

    Raises:
        ConfigError, StoreError: it cannot be opened, or another batch has the name.
    """
    fleet, digest = config.fleet, job.recipe.batch_id(job.clips)
    if fleet.coordinator is None:
        return LocalClipStore(job.folder.state_file(_JOURNAL), digest, [clip.name for clip in job.clips])
    if urlsplit(fleet.coordinator).scheme == "kubernetes":
        raise ConfigError(f"fleet.coordinator: {fleet.coordinator} cannot share out a batch: give it an etcd://")
    from daemon.batch.etcd_store import BatchKey, EtcdClipStore
    from daemon.fleet.open_coordinator import etcd_settings

    key = BatchKey(fleet.name, name or digest, digest, len(job.clips))
    return EtcdClipStore(etcd_settings(fleet), key, config.batch.lease_s)
