"""The times that events want, beside the recordings of their day: an index that is made anew has them from there.

A line each, of JSON: source, event, begin, end and state, as `ClaimedTime` has them. The last line of an event in a
file counts. They go with the last recording of their day.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import structlog

from daemon.clock import utc_text
from daemon.recording.clips import ClaimedTime
from daemon.recording.store import CLAIMS, Store, folder_name, open_file

log = structlog.get_logger(__name__)
_BEFORE_NS: Final = 120_000_000_000  # a recording that was begun so long before may have it
_MAX_BYTES: Final = 64 << 20
_MAX_TIME: Final = 1 << 62
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ClaimedTime).decode


def append_claims(store: Store, claims: Iterable[ClaimedTime]) -> None:
    """Put them beside their recordings; those of a day without one have no place.

    Raises:
        OSError: some could not be written.
    """
    problem: OSError | None = None
    days = defaultdict[tuple[str, str, str], list[bytes]](list)
    for row in claims:
        line = b"\n" + _encode(row)  # the last line of the file may be cut off
        days[folder_name(row.source), _day(row.begin), _day(row.begin - _BEFORE_NS)].append(line)
    for (source, *choice), lines in days.items():
        try:
            _append(store, source, choice, b"".join(lines))
        except OSError as error:
            problem = error
    if problem is not None:
        raise problem


def _append(store: Store, source: str, choice: Iterable[str], lines: bytes) -> None:
    for day in choice:
        try:
            with store.folder(source, day) as folder:
                file = open_file(CLAIMS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, folder)
        except FileNotFoundError:
            continue
        try:
            if os.write(file, lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
        return


def stored_claims(store: Store) -> Iterator[list[ClaimedTime]]:
    """Those of each source and day. The log says what cannot be read."""
    for path in store.days():
        try:
            with store.opened(f"{path}/{CLAIMS}") as file, open(file, "rb", closefd=False) as content:
                content.seek(max(0, os.fstat(file).st_size - _MAX_BYTES))
                lines, problem = content.read(_MAX_BYTES).splitlines(), ""
        except FileNotFoundError:
            continue
        except OSError as error:
            lines, problem = [], error.strerror or str(error)
        found = dict[str, ClaimedTime]()
        for line in lines:
            try:
                if line:
                    row = _checked(_decode(line), path)
                    found[row.event] = row
            except (msgspec.MsgspecError, ValueError) as error:
                problem = str(error)
        if problem:
            log.warning("some times that events want cannot be read", folder=path, reason=problem)
        yield [*found.values()]


def _checked(row: ClaimedTime, path: str) -> ClaimedTime:
    if not abs(row.begin) <= _MAX_TIME or not abs(row.end) <= _MAX_TIME:
        raise ValueError("a time is out of range")
    if folder_name(row.source) != path.split("/", maxsplit=1)[0]:
        raise ValueError("an event is of another source")
    return row


def _day(utc: int) -> str:
    return utc_text(utc)[:10]
