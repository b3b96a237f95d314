"""The timeline of a source: every instant is in a span, or in a gap that has a cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from daemon.recording.causes import Cause
from daemon.recording.records import FileFacts, Gap


class Span(NamedTuple):
    """Recorded video.

    Attributes:
        begin, end: UTC ns, within those of the file.
    """

    begin: int
    end: int
    file: FileFacts


class Entry(NamedTuple):
    """A file, and the gaps before it that its head tells."""

    file: FileFacts
    gaps: Sequence[Gap]


def timeline(
    entries: Iterable[Entry],
    begin: int,
    end: int,
    *,
    since: int | None = None,
    after: Sequence[Gap] = (),
    untold: Cause = "expired",
) -> list[Span | Gap]:
    """Spans and gaps in order, without a hole and without overlap, from `begin` up to what is known.

    A time between files that no head tells of was recorded. A time that files have twice, because
    the clock was set back, belongs to the one that begins earlier.

    Args:
        entries: all files with something within, and the next one, by their begin.
        since: when the first recording began; None if there is none.
        after: since the last file.
        untold: why what was recorded is in none of them.
    """
    entries = [*entries]
    # Where the clock was set back, a file tells of gaps before others that come before it here.
    steps = any(entry.file.begin < other.file.begin and entry.file.begin_boot > other.file.begin_boot
                and entry.file.boot_id == other.file.boot_id for entry, other in pairwise(entries))  # fmt: skip
    every = [gap for entry in entries for gap in entry.gaps] if steps else []
    found: list[Span | Gap] = []
    first = since if since is not None else (after[0].begin if after else begin)
    at = _before(found, begin, min(first, end))
    for entry in entries:
        file = entry.file
        if file.begin > at:
            hole = min(file.begin, end)
            found += _explained(entry.gaps if not steps else every, at, hole, untold)
            at = hole
        if file.begin >= end:
            break
        if file.end > at:
            until = min(file.end, end)
            found.append(Span(at, until, file))
            at = until
    for gap in after:
        until = min(gap.end, end)
        if until > at:
            found.append(Gap(at, until, gap.cause, gap.detail))
            at = until
    return found


def _before(found: list[Span | Gap], at: int, since: int) -> int:
    """The time before the first recording of the source."""
    if since <= at:
        return at
    found.append(Gap(at, since, "off", "nothing was recorded of it yet"))
    return since


def _explained(gaps: Sequence[Gap], begin: int, end: int, untold: Cause) -> Iterator[Gap]:
    at = begin
    for gap in sorted(gaps):
        first, last = max(gap.begin, at), min(gap.end, end)
        if last <= first:
            continue
        if first > at:
            yield Gap(at, first, untold)
        yield Gap(first, last, gap.cause, gap.detail)
        at = last
    if at < end:
        yield Gap(at, end, untold)
