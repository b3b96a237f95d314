"""Keys of events: the journal, and their pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from daemon.config.section import Section, absolute, anchored
from daemon.errors import ConfigError


class SnapshotsConfig(Section, frozen=True):
    folder: Path
    max_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] = 1024
    max_age_days: Annotated[float, msgspec.Meta(gt=0, le=36_500)] = 7.0
    min_free_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] = 1024


class EventsConfig(Section, frozen=True):
    journal: str = "auto"
    max_rows: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 100_000
    max_age_days: Annotated[float, msgspec.Meta(gt=0, le=36_500)] = 30.0
    counts_interval_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 10.0
    own_process: Literal["auto"] | bool = "auto"
    snapshots: SnapshotsConfig | None = None

    def anchored(self, folder: Path) -> EventsConfig:
        """A copy with absolute paths."""
        journal = self.journal if self.journal in ("auto", "off") else str(absolute(folder, Path(self.journal)))
        return msgspec.structs.replace(anchored(self, folder), journal=journal)


def check_events(events: EventsConfig) -> None:
    if not events.journal:
        raise ConfigError("events.journal: is empty: write auto, off, or the name of a file")
    if events.own_process is True and events.snapshots:
        raise ConfigError(
            "events.own_process: pictures of events are made where the frames are: set it to auto, or leave out "
            "events.snapshots"
        )
