"""Keys of events: the journal, and their pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from daemon.config.section import Section, absolute, anchored
from daemon.errors import ConfigError


class SnapshotsConfig(Section, frozen=True):
    folder: Path
    """made if it is not there"""
    max_mib: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] = 1024
    """of pictures; the oldest go"""
    max_age_days: Annotated[float, msgspec.Meta(gt=0, le=36_500)] = 7.0
    """older pictures go"""
    min_free_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] = 1024
    """of the disk; the oldest pictures go"""


class EventsConfig(Section, frozen=True):
    journal: str = "auto"
    """a file that keeps events and totals over restarts; auto: events.sqlite in $STATE_DIRECTORY, which systemd sets,
    else none; off: none"""
    max_rows: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 100_000
    """events in it; the oldest go"""
    max_age_days: Annotated[float, msgspec.Meta(gt=0, le=36_500)] = 30.0
    """older events go"""
    counts_interval_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 10.0
    """of the messages on counts/; after a change one comes within about a second"""
    own_process: Literal["auto"] | bool = "auto"
    """rules are evaluated in a process of their own, so that lanes keep their time for many sources: auto: with several
    capture processes, and without snapshots; or true, false"""
    snapshots: SnapshotsConfig | None = None
    """pictures of events: {folder: /var/lib/lookout/snapshots}, with max_mib: 1024, max_age_days: 7 and min_free_mib:
    1024 (of the disk); the oldest go"""

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
