"""The files of one source in one store, and the timeline that they make with the gaps between them."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from daemon.recording.assembly import Chunk
from daemon.recording.causes import LASTING, Cause
from daemon.recording.errors import StoreError
from daemon.recording.gap_log import GapLog, Note
from daemon.recording.recording_file import RecordingFile
from daemon.recording.records import FileFacts, FileHead, Gap

if TYPE_CHECKING:
    from daemon.recording.open_store import OpenStore

_MINUTE_NS = 60_000_000_000
_MAX_KEYLESS_NS = 2 * _MINUTE_NS
_MAX_FILE_BYTES = 1 << 30
_SAME_NS = 1_000_000_000  # a shorter step to another stream is no gap


class Covered(msgspec.Struct):
    """How far the timeline of a source has come; it lies in the ring.

    Attributes:
        until: UTC ns, the end of what is recorded.
        base_dts: of the session.
        notes: why nothing was recorded since.
        recorded_ns, gap_ns: of the timeline, since the daemon began.
    """

    until: int = 0
    base_dts: int | None = None
    session: str | None = None
    notes: list[Note] = []
    recorded_ns: int = 0
    gap_ns: dict[str, int] = {}


class SourceFiles:
    """One thread uses it.

    Args:
        covered: by an earlier process; None at the beginning.
        instance: id of the daemon's run, and of the ring.
        boot_id: of the machine's.

    Attributes:
        is_new: `begin` was never called, by any process.
    """

    def __init__(self, source: str, covered: Covered | None, instance: str, boot_id: str) -> None:
        self.source = source
        self._instance, self._boot_id = instance, boot_id
        self.is_new = covered is None
        self._covered = covered or Covered()
        self._log = GapLog(self._covered.notes)
        self._gap_ns = Counter[str](self._covered.gap_ns)
        self._since = 0
        self._last: FileFacts | None = None
        self._file: RecordingFile | None = None
        self._waits_since: int | None = None
        self._untold: dict[str, tuple[FileFacts, list[Gap]]] = {}  # files as the index does not have them yet, by id

    def begin(self, to: OpenStore, now: int) -> int:
        """The store is open, perhaps again.

        Returns:
            The number of the first packet that is in no file yet.
        """
        last, going = to.last(self.source), to.index.open_gaps(self.source)
        self._last = last
        self._since = last.since if last else (going[0].begin if going else now)
        if self.is_new:
            self.is_new = False
            until = self._covered.until = last.end if last else self._since
            for gap in going:
                if gap.end > until:
                    self._log.note(max(gap.begin, until), gap.cause, gap.detail)
            for cause in LASTING:
                if not going and last is not None and last.reason == cause:  # the index was lost
                    self._log.note(until, cause)
            known = max(until, going[-1].end if going else 0)
            lasts = bool(self._log.notes) and self._log.notes[-1].cause in LASTING
            if known < now and not lasts:
                self._log.note(known, "daemon_down")
            self._log.note(self._decided(now), "source_down", "it has not connected yet")
            return 0
        written = to.written_by(last, self._instance) if last is not None else 0
        if last is not None and written:
            self._covered.until = max(self._covered.until, last.end)
        return written

    @property
    def covered(self) -> Covered:
        """For the next process."""
        found = self._covered
        found.notes, found.gap_ns = self._log.notes, dict(self._gap_ns)
        return found

    @property
    def path(self) -> str | None:
        """Of the open file."""
        return self._file.path if self._file else None

    @property
    def head(self) -> FileHead | None:
        """Likewise."""
        return self._file.head if self._file else None

    def utc_of(self, session: str, pts: int) -> int | None:
        """When a picture of the open file was seen, UTC ns; None if it is of none."""
        if self._file is None or self._file.head.session != session or not self._file.fragments:
            return None
        row = self._file.fragments[-1]
        return row.begin + pts - row.pts

    def note(self, at: int, cause: Cause, detail: str | None = None) -> None:
        """Nothing is recorded from then on; UTC ns."""
        self._log.note(max(at, self._covered.until), cause, detail)

    def note_waiting(self, since: int | None) -> None:
        """Video since then, UTC ns, is neither written nor released; None if none waits."""
        self._waits_since = since

    def set_clock(self, at: int, detail: str | None) -> None:
        """The time of day was set: what follows begins then, UTC ns. A time that comes twice has no gap."""
        covered = self._covered
        if at < covered.until:
            covered.until, self._log = at, GapLog()
        else:
            self._log.note(covered.until, "clock", detail)
        covered.base_dts = None

    def write(self, to: OpenStore, chunk: Chunk, *, claimed: bool) -> bool:
        """Write a chunk; False if it can never be written.

        Raises:
            StoreError: it cannot be written now.
        """
        if self._file is not None and _ends_before(self._file, chunk):
            self.close(to, "minute", chunk.begin)
        try:
            if self._file is None:
                self._file = to.create(self._head(to, chunk), chunk.samples[0].data)
            to.append(self._file, chunk, claimed=claimed)
        except StoreError as error:
            if self._file is not None:
                self.close(to, "store")
            if error.cause != "codec":
                raise
            self.note(chunk.begin, "codec", str(error))
            return False
        if len(self._file.fragments) == 1:
            for gap in self._file.head.gaps:
                self._gap_ns[gap.cause] += gap.end - gap.begin
            self._untold[self._file.head.id] = self._file.facts, self._file.head.gaps
            with suppress(StoreError):  # the chunk is written; `keep_books` tells the index again
                self._tell(to)
                to.put_gaps(self.source, [])
        covered = self._covered
        covered.recorded_ns += max(0, chunk.end - max(chunk.begin, covered.until))
        covered.until = chunk.end
        self._log.clear(chunk.end - chunk.samples[-1].duration)  # the camera may be told of as down before its end
        return True

    def claim(self, begin: int, end: int) -> None:
        """An event wants what lies between; UTC ns."""
        if self._file is not None:
            self._file.claim(begin, end)

    def close(self, to: OpenStore, reason: str, end: int | None = None) -> None:
        """Close the open file, if there is one.

        Args:
            end: UTC ns; None for the end of what is recorded.

        Raises:
            StoreError: its end could not be written; it is closed.
        """
        file, self._file = self._file, None
        if file is None:
            return
        facts = file.close(reason, self._covered.until if end is None else end)
        if facts.fragments:
            self._last = facts
            self._untold[facts.id] = facts, file.head.gaps
            with suppress(StoreError):  # likewise
                self._tell(to)
        if file.trouble is not None and reason != "store":
            raise file.trouble

    def detach(self) -> None:
        """Let go of the open file as it is."""
        if self._file is not None:
            self._file.detach()
            self._file = None

    def begin_timeline(self) -> None:
        """The session's times begin anew."""
        self._covered.base_dts = None

    def keep_books(self, to: OpenStore, now: int) -> None:
        """The index knows how far it is, and why nothing is recorded now, also if all processes end at once."""
        keep_books(to, [self], now)

    def untold(self) -> dict[str, tuple[FileFacts, list[Gap]]]:
        """Files that the index does not know as they are, by id; whoever tells it clears this."""
        if self._file is not None and self._file.fragments:
            self._untold[self._file.head.id] = self._file.facts, self._file.head.gaps
        return self._untold

    def open_gaps(self, now: int) -> list[Gap]:
        """Those since the last file, up to what is decided."""
        if self._file is not None or not self._covered.until:
            return []
        return self._log.gaps(self._covered.until, self._decided(now))

    def figures(self, now: int) -> tuple[int, dict[str, int]]:
        """Ns recorded, and ns of gaps by cause."""
        gap_ns = Counter(self._gap_ns)
        for gap in self.open_gaps(now):
            gap_ns[gap.cause] += gap.end - gap.begin
        return self._covered.recorded_ns, dict(gap_ns)

    def gap_at(self, now: int) -> Gap | None:
        """The gap that goes on; None where video comes that may still be written."""
        gaps = [] if self._file is not None else self._log.gaps(self._covered.until, now)
        if not gaps or not self._covered.until:
            return None
        waits = self._waits_since is not None and gaps[-1].begin <= self._waits_since
        return None if waits and gaps[-1].cause != "no_event" else gaps[-1]

    def _decided(self, now: int) -> int:
        """Up to when it is known what is written, UTC ns."""
        return now if self._waits_since is None else min(now, self._waits_since)

    def _tell(self, to: OpenStore) -> None:
        """Tell the index what it does not know.

        Raises:
            StoreError: it cannot be written now.
        """
        if self._untold:
            to.index.add_files(self._untold.values())
            self._untold.clear()

    def _head(self, to: OpenStore, chunk: Chunk) -> FileHead:
        covered, until, begin = self._covered, self._covered.until, chunk.begin
        if begin < until or (begin - until <= _SAME_NS and not self._log.notes):
            until = begin = min(begin, until) if begin > until else begin
        last, first = self._last, chunk.samples[0]
        self._since = min(self._since or begin, begin)
        if covered.base_dts is None or covered.session != chunk.stream.session:
            covered.base_dts, covered.session = first.dts, chunk.stream.session
        return FileHead(
            id=secrets.token_hex(8),
            source=self.source,
            store=to.uuid,
            instance=self._instance,
            stream=chunk.stream,
            base_dts=covered.base_dts,
            first_pts=first.pts,
            first_dts=first.dts,
            begin=begin,
            begin_boot=chunk.begin_boot,
            boot_id=self._boot_id,
            number=chunk.number,
            begins_with_key=chunk.key,
            previous=last.id if last else None,
            previous_chain=last.chain if last else None,
            since=self._since,
            covered_until=until,
            gaps=self._log.gaps(until, begin),
        )


def keep_books(to: OpenStore, sources: Iterable[SourceFiles], now: int) -> None:
    """`SourceFiles.keep_books` of several sources, in one transaction.

    Raises:
        StoreError: the index cannot be written now.
    """
    sources = [*sources]
    untold = [files.untold() for files in sources]
    if any(untold):
        to.index.add_files(row for rows in untold for row in rows.values())
        for rows in untold:
            rows.clear()
    for files in sources:
        to.put_gaps(files.source, files.open_gaps(now))


def _ends_before(file: RecordingFile, chunk: Chunk) -> bool:
    begun = file.head.begin
    if file.head.stream != chunk.stream:
        return True
    is_due = chunk.begin // _MINUTE_NS != begun // _MINUTE_NS or file.size > _MAX_FILE_BYTES
    return is_due and (chunk.key or chunk.begin - begun > _MAX_KEYLESS_NS)
