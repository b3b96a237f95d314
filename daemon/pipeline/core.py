"""The values that every feature of the daemon is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daemon.config.root import Config
    from daemon.lifecycle import Lifecycle
    from daemon.pipeline.ledger import Ledger
    from daemon.pipeline.outbox import Outbox
    from daemon.system.opener import Opener
    from daemon.system.runtime import Runtime


@dataclass(frozen=True)
class Core:
    """Attributes:
    config: as the daemon was started with.
    instance: id of the daemon's run.
    life: takes the parts.
    opener: for what may take long to open.
    """

    config: Config
    instance: str
    ledger: Ledger
    outbox: Outbox
    life: Lifecycle
    opener: Opener
    runtime: Runtime
