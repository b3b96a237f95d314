"""Sources that a store knows and that are not recorded into it: since when, and why."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from daemon.recording.causes import LASTING, Cause
from daemon.recording.source_files import SourceFiles

if TYPE_CHECKING:
    from daemon.recording.open_store import OpenStore


class Absence(msgspec.Struct, frozen=True, array_like=True):
    """The words of a configuration on the sources of a store.

    Attributes:
        at: since when the daemon records, UTC ns.
        recorded: sources that are recorded into the store.
        there: sources of the daemon, recorded or not.
        in_fleet: others may be another member's.
    """

    at: int
    recorded: frozenset[str]
    there: frozenset[str]
    in_fleet: bool

    def why(self, source: str) -> tuple[Cause, str]:
        """The cause, and its detail, that a source is not recorded."""
        if source in self.there:
            return "off", "it was switched off"
        if self.in_fleet:
            return "fenced", "the fleet gave the source to another member, or removed it"
        return "off", "the source was disabled or removed"


def note_absent(to: OpenStore, absence: Absence, recorded: Collection[str], now: int) -> None:
    """Begin a gap for each source that is not recorded and has none that lasts. One that the daemon does not have, and
    of which there are no files, is forgotten.

    Args:
        recorded: sources that are, perhaps by a later configuration.
        now: UTC ns.

    Raises:
        StoreError: the index cannot be read or written.
    """
    for source in to.index.sources():
        if source in absence.recorded or source in recorded:
            continue
        gap, last = to.index.open_gap(source), to.index.newest(source)
        if last is None and source not in absence.there and to.index.is_whole:
            to.put_gaps(source, [])
            continue
        if gap is not None and gap.cause in LASTING and (last is None or gap.end >= last.end):
            continue
        at = max(absence.at, gap.end if gap else 0)
        files = SourceFiles(source, None, "", "")  # it writes none: the last one may lack its end
        files.begin(to, at)
        files.note(at, *absence.why(source))
        files.keep_books(to, max(now, at) + 1)
