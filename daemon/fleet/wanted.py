"""The part of the fleet's records that concerns one member: what it is to run, to claim, and to give up."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from daemon.config.load import source_of
from daemon.config.sources import SourceConfig
from daemon.errors import ConfigError
from daemon.fleet.records import FleetView, SourceRecord


class WantedSources:
    """The sources that are wanted on a member and can be used there.

    Attributes:
        usable: configurations of the wanted sources, with secrets filled in.
        refused: wanted sources that cannot be used here, with the reason.
    """

    def __init__(self, member: str) -> None:
        self._member = member
        self._read: dict[str, tuple[SourceRecord, SourceConfig | None]] = {}
        self._refused: dict[str, tuple[SourceRecord, str]] = {}
        self.usable: dict[str, SourceConfig] = {}
        self._view: FleetView | None = None

    @property
    def refused(self) -> dict[str, str]:
        return {id: reason for id, (_, reason) in self._refused.items()}

    def update(self, view: FleetView) -> None:
        """Take new records."""
        self._view = view
        for id, (record, _) in [*self._refused.items()]:
            if view.sources.get(id) != record:  # it may be better now
                del self._refused[id]
        self._read = {id: row for id, row in self._read.items() if view.sources.get(id) == row[0]}
        wanted = [id for id, want in view.wants.items() if want.member == self._member and id in view.sources]
        self.usable = {id: config for id in wanted if (config := self._config(id, view.sources[id])) is not None}

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """These sources cannot be used here as they are."""
        for id, reason in reasons.items():
            if self._view and id in self._view.sources:
                self._refused[id] = self._view.sources[id], reason
            self.usable.pop(id, None)

    def claimable(self, taken: set[str]) -> list[str]:
        """Sources that are usable and not owned by others: those with a high priority first, and otherwise in an order
        of this member's own, so that members connect to different cameras.

        Args:
            taken: sources that are left out.
        """
        view = self._view
        if view is None:
            return []
        free = [id for id in self.usable if id not in taken and self._is_free(view, id)]
        return sorted(free, key=lambda id: (-view.sources[id].priority, self._rank(id)))

    def orphans(self, own: set[str]) -> set[str]:
        """Sources that the records say are this member's, and that it neither runs nor wants."""
        owned = self._view.owned.items() if self._view else ()
        mine = {id for id, row in owned if row.member == self._member}
        return mine - own - self.usable.keys()

    def _is_free(self, view: FleetView, id: str) -> bool:
        owned = view.owned.get(id)
        return owned is None or owned.member == self._member

    def _rank(self, id: str) -> bytes:
        return hashlib.blake2b(f"{self._member} {id}".encode(), digest_size=8).digest()

    def _config(self, id: str, record: SourceRecord) -> SourceConfig | None:
        if id in self._refused:
            return None
        if id not in self._read:
            try:
                self._read[id] = record, config_of(id, record)
            except ConfigError as error:
                self._refused[id] = record, str(error)
                return None
        return self._read[id][1]


def config_of(id: str, record: SourceRecord) -> SourceConfig:
    """The configuration of a source, with the secrets of this process.

    Raises:
        ConfigError: it cannot be used here.
    """
    config = source_of({**record.config, "id": id})
    if config.is_patient:
        raise ConfigError("it plays as fast as possible: recordings are for `lookout batch`")
    return config
