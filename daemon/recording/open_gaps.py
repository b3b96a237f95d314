"""Why nothing is recorded of a source since its last file. No file of video says that, so it lies in a file of its own
as well: an index that is made anew has it from there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
import structlog

from daemon.recording.causes import Cause
from daemon.recording.store import Store, translated, write_whole

log = structlog.get_logger(__name__)
NAME: Final = "open_gaps.json"
_MAX_BYTES: Final = 64 << 20
_LOST: Final = "why sources were not recorded since their last files is lost with the index"
_GROWN_NS: Final = 60_000_000_000  # gaps that only go on are written again so rarely
Time = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class OpenGap(NamedTuple):
    """A gap since the last file of a source; UTC ns."""

    source: str
    begin: Time
    end: Time
    cause: Cause
    detail: str | None


_encode = msgspec.json.Encoder().encode


class OpenGapsFile:
    """One thread uses it, of the only process that records into the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: Sequence[OpenGap] | None = None

    def save(self, gaps: Sequence[OpenGap], *, exactly: bool = False) -> None:
        """Write the gaps that the index has, if they are other ones than those in the file.

        Args:
            exactly: also if only their ends have come later, by less than a minute.

        Raises:
            StoreFullError: there is no room.
            StoreError: it cannot be written.
        """
        if self._written is not None and (gaps == self._written if exactly else _are_about(gaps, self._written)):
            return
        with translated(self._store.path / NAME), self._store.folder() as folder:
            write_whole(folder, NAME, _encode(gaps) + b"\n", begun=f".{NAME}")  # only one process writes it
        self._written = gaps


def saved_gaps(store: Store) -> list[OpenGap]:
    """Those that were saved last; none if the file is not there. The log says what cannot be read."""
    path = str(store.path / NAME)
    try:
        with store.opened(NAME) as file:
            rows: list[object] = msgspec.json.decode(os.read(file, _MAX_BYTES), type=list)
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        log.warning(_LOST, path=path, reason=str(error))
        return []
    found, problems = list[OpenGap](), list[str]()
    for row in rows:
        try:
            gap = msgspec.convert(row, OpenGap)
        except msgspec.ValidationError as error:
            problems.append(str(error))
            continue
        if gap.begin <= gap.end:
            found.append(gap)
        else:
            problems.append("a gap ends before it begins")
    if problems:
        log.warning(_LOST, path=path, gaps=len(problems), reason=problems[0])
    return found


def _are_about(gaps: Sequence[OpenGap], others: Sequence[OpenGap]) -> bool:
    return len(gaps) == len(others) and all(
        gap._replace(end=0) == other._replace(end=0) and abs(gap.end - other.end) < _GROWN_NS
        for gap, other in zip(gaps, others)
    )
