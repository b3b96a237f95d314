"""A store that can be written to now: its folder, its index, and what goes to make room."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from daemon.recording.assembly import Chunk
from daemon.recording.boxes import BoxError
from daemon.recording.causes import Cause
from daemon.recording.errors import StoreError, StoreFullError
from daemon.recording.index import Index
from daemon.recording.open_gaps import OpenGapsFile
from daemon.recording.reconcile import reconcile
from daemon.recording.recording_file import RecordingFile
from daemon.recording.records import FileFacts, FileHead, Gap
from daemon.recording.retention import Retention, Rules
from daemon.recording.scan import claim as claim_in
from daemon.recording.scan import discard_begun, recover, scan
from daemon.recording.store import Store, translated
from daemon.recording.tracks.records import Labels
from daemon.recording.tracks.track_file import Stored, TrackFile

log = structlog.get_logger(__name__)

_UNMARKED = "what an event wants cannot be marked: it may be deleted with what no event wants"
_ROOM_BYTES = 4 << 20  # made at once when there is none
_MAX_TROUBLES = 64


class _Trouble(NamedTuple):
    """A time in which nothing could be written; UTC ns."""

    begin: int
    end: int
    cause: Cause
    detail: str | None


class Troubles:
    """When nothing could be written, and why: what a ring lost meanwhile has that cause."""

    def __init__(self) -> None:
        self._rows: deque[_Trouble] = deque(maxlen=_MAX_TROUBLES)

    def add(self, begin: int, end: int, cause: Cause, detail: str | None = None) -> None:
        """One that goes on may be added again and again."""
        if self._rows and (self._rows[-1].begin, self._rows[-1].cause) == (begin, cause):
            self._rows.pop()
        self._rows.append(_Trouble(begin, end, cause, detail))

    def at(self, utc: int) -> tuple[Cause, str | None] | None:
        for row in reversed(self._rows):
            if row.begin <= utc <= row.end:
                return row.cause, row.detail
        return None


class OpenStore:
    """One thread uses it.

    Raises:
        StoreError: it cannot be used now.
    """

    def __init__(self, store: Store, rules: Rules, troubles: Troubles) -> None:
        self.store, self._troubles = store, troubles
        store.claim()
        self.index = Index(store)
        self._open_gaps, self._is_refused = OpenGapsFile(store), False
        self._follower: threading.Thread | None = None  # reads the files for an index that lacks a reading
        self._read: str | None = None  # the last reading that was done
        self._failed: str | None = None  # the last one that failed
        self.follow_index()
        self.retention = Retention(store, self.index, rules)

    @property
    def uuid(self) -> str:
        return self.store.uuid

    def follow_index(self) -> None:
        """The index may have been lost, or replaced, meanwhile: it is made anew beside recording. The next call tries
        again if that fails."""
        self.index.sizes()
        wanted = self.index.unread
        if wanted not in (None, self._read) and (self._follower is None or not self._follower.is_alive()):
            self._follower = threading.Thread(target=self._read_files, args=(wanted,), name="reconcile", daemon=True)
            self._follower.start()

    def _read_files(self, wanted: str | None) -> None:
        """With descriptors of its own: the others may be closed meanwhile."""
        try:
            own = Store.open(self.store.path, uuid=self.uuid, makes=False)
            with closing(own), closing(Index(own)) as index:
                done = reconcile(own, index)
        except (StoreError, OSError) as error:
            if self._failed != wanted:
                log.warning("the index of a store is not whole", store=str(self.store.path), reason=str(error))
            self._failed = wanted
            return
        self._read = wanted
        log.info("an index was made from files", store=str(self.store.path), files=done.added, unread=done.problems)

    def last(self, source: str) -> FileFacts | None:
        """The last file of a source, which gets its end if its recorder was killed; None if it has none.

        Raises:
            StoreError: it cannot be read or written.
        """
        known = self.index.newest(source)
        with translated(self.store.path):
            there = self._newest(source, known)
        paths = [known.path] if known and known.reason is None else []
        if there is not None and (known is None or known.path != there):
            paths.append(there)
        for path in paths:
            with suppress(BoxError, FileNotFoundError):
                found = recover(self.store, path)
                if found is not None:
                    self.index.add_file(found.facts, found.head.gaps)
                else:  # whoever reads the files for the index gives it its end now, or a process hangs in it
                    found = scan(self.store, path)
                known = found.facts if known is None or found.facts.end >= known.end else known
        return known

    def _newest(self, source: str, known: FileFacts | None) -> str | None:
        """The last file of a source by name; what a recorder that was killed had only begun goes."""
        while True:
            path = self.store.newest_file(source)
            if path is None or (known and known.path == path) or not discard_begun(self.store, path):
                return path

    def create(self, head: FileHead, first: memoryview) -> RecordingFile:
        """See `RecordingFile.create`; makes room."""
        try:
            return RecordingFile.create(self.store, head, first)
        except StoreFullError:
            self.make_room(head.source)
            return RecordingFile.create(self.store, head, first)

    def append(self, file: RecordingFile, chunk: Chunk, *, claimed: bool) -> None:
        """Append a chunk, and make room for it as long as something may go.

        Raises:
            StoreError: it is not written.
        """
        size = sum(len(sample.data) for sample in chunk.samples)
        while True:
            try:
                file.append(
                    chunk.samples, number=chunk.number, begin=chunk.begin, begin_boot=chunk.begin_boot, end=chunk.end,
                    claimed=claimed,
                )  # fmt: skip
                return
            except StoreFullError:
                self.make_room(file.head.source, max(size, _ROOM_BYTES))

    def append_tracks(self, file: TrackFile, source: str, items: Sequence[Stored], labels: Labels) -> None:
        """Append analysed pictures beside a recording, and make room for them as long as something may go.

        Raises:
            StoreError: they are not written.
        """
        while True:
            try:
                file.append(items, labels)
                return
            except StoreFullError:
                self.make_room(source)

    def claim(self, source: str, begin: int, end: int, but: str | None) -> None:
        """Mark what an event wants in files that are written no more. One that refuses keeps no other waiting.

        Args:
            begin, end: UTC ns.
            but: a path that is left out.

        Raises:
            StoreError: the index cannot be written, or the disk is full.
        """
        for facts in self.index.files(source, begin, end):
            if facts.path == but:
                continue
            try:
                found = claim_in(self.store, facts.path, begin, end)
            except StoreFullError:
                raise
            except StoreError as error:
                log.warning(_UNMARKED, recording=facts.path, reason=str(error))
                continue
            except (BoxError, FileNotFoundError):
                continue
            if found.facts != facts:  # perhaps marked by a process that was killed, or while the index was locked
                self.index.add_file(found.facts, found.head.gaps)

    def trouble_at(self, utc: int) -> tuple[Cause, str | None] | None:
        """Why nothing could be written then."""
        return self._troubles.at(utc)

    def written_by(self, facts: FileFacts, instance: str) -> int:
        """The number after the last packet that a run of the daemon has written into a file; 0 for another's."""
        try:
            found = scan(self.store, facts.path)
        except (BoxError, FileNotFoundError):
            return 0
        return found.head.number + facts.packets if found.head.instance == instance else 0

    def put_gaps(self, source: str, gaps: Sequence[Gap]) -> None:
        """The gap that goes on."""
        self.index.put_open_gaps(source, gaps)

    def save_gaps(self, *, exactly: bool = False) -> None:
        """Those that go on, for an index that is lost; see `OpenGapsFile.save`. A store that refuses is asked again."""
        try:
            self._open_gaps.save(self.index.open_gaps_of_all(), exactly=exactly)
        except StoreError as error:
            if not self._is_refused:
                log.warning("the gaps that go on are in the index alone", reason=str(error))
            self._is_refused = True
        else:
            self._is_refused = False

    def close(self) -> None:
        self.index.close()
        self.store.close()

    def make_room(self, source: str, size: int = _ROOM_BYTES) -> None:
        """Delete what may go.

        Raises:
            StoreFullError: nothing more may go.
        """
        if not self.retention.make_room(size, source, is_full=True):
            raise StoreFullError(f"{self.store.path}: no room, and nothing that may be deleted")


def open_store(path: str, rules: Rules, troubles: Troubles, *, must_be_mount: bool, uuid: str | None) -> OpenStore:
    """
    Raises:
        StoreError: it cannot be used now.
    """
    store = Store.open(Path(path), must_be_mount=must_be_mount, uuid=uuid)
    try:
        return OpenStore(store, rules, troubles)
    except BaseException:
        store.close()
        raise
