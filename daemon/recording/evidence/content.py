"""The content of an evidence folder, one file after the other: what lies in the store, and what explains it.

Recordings are taken whole, byte for byte: then each is the same file as in the store, with the same SHA-256, and its
chain and its end can be checked by what stands in it. A time that was asked may so have a minute more at each end.
A file that is being written is taken up to its last whole fragment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from daemon import __version__
from daemon.clock import utc_text, zone_at
from daemon.errors import LookoutError
from daemon.pipeline.outbox import Served
from daemon.recording import deleted
from daemon.recording.boxes import BoxError
from daemon.recording.errors import StoreError
from daemon.recording.evidence import manifest as names
from daemon.recording.evidence.background import Background, machine_clock, told_events, versions
from daemon.recording.evidence.chain import ChainReader
from daemon.recording.evidence.manifest import (
    ChainedVideo,
    ChainRow,
    Fault,
    FileKind,
    ListedFile,
    Manifest,
    MissingVideo,
    UsedModel,
    Zone,
    encoded,
    sums_of,
)
from daemon.recording.evidence.readme import readme
from daemon.recording.evidence.signing import SigningKey
from daemon.recording.index import IndexReader
from daemon.recording.locks import Locks
from daemon.recording.records import FileFacts, Gap
from daemon.recording.scan import Scanned, chunks, scan_open
from daemon.recording.store import Store, store_error, translated
from daemon.recording.timeline import Span
from daemon.recording.tracks.track_records import TracksError, served_in, tracks_path
from daemon.redact import scrub

_UNREADABLE: Final = "it cannot be read as a recording"


class Member(NamedTuple):
    """A file of the folder. All of its content is to be taken before the next file is asked for."""

    path: str
    size: int
    content: Iterator[bytes]


@dataclass(frozen=True)
class EvidenceOrder:
    """
    Attributes:
        begin, end: UTC ns.
        made_at: UTC ns.
        made_by: the user, or the name of the token.
        key: that signs; None for none.
    """

    source: str
    begin: int
    end: int
    made_at: int
    made_by: str
    background: Background
    key: SigningKey | None = None


class Evidence:
    """One thread at a time uses it.

    Attributes:
        gaps: of the time that was asked, once all members were taken.
        faults: what was not as it was written, likewise.
        missing: recordings of that time that are not there any more, likewise.
        sums_digest: SHA-256 of the list of all files, likewise.
    """

    def __init__(self, store: Store, index: IndexReader, order: EvidenceOrder) -> None:
        self._store, self._index, self._order = store, index, order
        self._files: list[ListedFile] = []
        self._video: list[ChainedVideo] = []
        self._models: list[Served] = []
        self._gone: list[FileFacts] = []  # the index has them, and the store has not
        self.faults: list[Fault] = []
        self.missing: list[MissingVideo] = []
        self.gaps: list[Gap] = []
        self.sums_digest = ""

    def wanted(self) -> list[FileFacts]:
        """Recordings with something of the time.

        Raises:
            StoreError: the index cannot be read, or does not know all files yet: some of that time might be left out.
        """
        if not self._index.is_whole:
            raise StoreError(
                f"{self._store.path}: its index is being made from the files: ask again later, or make it by"
                " `lookout recordings rebuild`"
            )
        return self._index.files_with_open(self._order.source, self._order.begin, self._order.end)

    def members(self) -> Iterator[Member]:
        """
        Raises:
            LookoutError: nothing is recorded, or something cannot be read.
        """
        for facts in self.wanted():
            yield from self._recording(facts)
        if not any(row.kind == "video" for row in self._files):
            told = [_told(row) for row in self._timeline() if isinstance(row, Gap)]
            told += [f"the recording {facts.path} is not there any more" for facts in self._gone]
            causes = "; ".join(told)
            raise LookoutError(
                f"{self._order.source}: nothing is recorded of that time" + (f": {causes}" if causes else "")
            )
        self._find_missing()
        yield from self._facts()
        yield from self._ending()

    # --- what lies in the store ------------------------------------------------------------------------------------

    def _recording(self, facts: FileFacts) -> Iterator[Member]:
        order, path = self._order, f"{names.VIDEO_FOLDER}/{facts.path}"
        try:
            with self._store.opened(facts.path) as file:
                size = os.fstat(file).st_size
                try:
                    found: Scanned | None = scan_open(facts.path, file)
                except BoxError as error:
                    found = None
                    self._blame(path, facts.begin, facts.end, f"{_UNREADABLE}: {error}")
                if found is not None and found.tail is None:
                    size = found.end
                    if not _has_some(found, order.begin, order.end):
                        return
                rows = [(row.offset, row.size) for row in found.fragments] if found else []
                chain = ChainReader(found.beginning if found else 0, rows)
                end = found.facts.end if found else facts.end
                content = _content(facts.path, file, size)
                yield self._member(path, "video", size, content, (facts.begin, end), chain.add)
        except FileNotFoundError:
            self._gone.append(facts)
            return
        except OSError as error:
            raise store_error(facts.path, error) from error
        if found is not None:
            self._note_chain(path, found, chain)
        yield from self._boxes(tracks_path(facts.path), facts.begin, end)

    def _boxes(self, path: str, begin: int, end: int) -> Iterator[Member]:
        there = f"{names.VIDEO_FOLDER}/{path}"
        try:
            with self._store.opened(path) as file:
                try:
                    models, size = served_in(file)
                except TracksError as error:
                    models, size = [], os.fstat(file).st_size
                    self._blame(there, begin, end, str(error))
                self._models += [row for row in models if row not in self._models]
                if size:
                    yield self._member(there, "boxes", size, _content(path, file, size), (begin, end))
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(path, error) from error

    def _note_chain(self, path: str, found: Scanned, chain: ChainReader) -> None:
        facts, head, links = found.facts, found.head, chain.links
        before, begun_with = chain.beginning, (chain.beginning or b"").hex()
        for row, link in zip(found.fragments, links):
            if not link.is_sound:
                self._blame(path, row.begin, row.end, f"the fragment at byte {row.offset} is not as it was written")
            elif link.box is not None and before is not None and link.box.before != before:
                self._blame(path, row.begin, row.end, f"the fragment at byte {row.offset} does not go on from the one"
                                                      " before")  # fmt: skip
            before = link.box.chain if link.box else None
        if found.tail is not None and before is not None and found.tail.chain != before.hex():
            self._blame(path, facts.begin, facts.end, "its fragments are not those that its end tells of")
        rows = [
            ChainRow(row.offset, row.size, row.begin, row.end, link.box.chain.hex() if link.box else "")
            for row, link in zip(found.fragments, links)
        ]
        self._video.append(
            ChainedVideo(
                path=path, id=head.id, session=head.session, codec=facts.codec, width=facts.width, height=facts.height,
                begin=facts.begin, end=facts.end, begin_boot=facts.begin_boot, boot_id=facts.boot_id, clock=head.clock,
                clock_error=head.clock_error, reason=facts.reason, previous=head.previous,
                previous_chain=head.previous_chain, beginning=found.beginning, begun_with=begun_with,
                chain=facts.chain, fragments=rows,
            )
        )  # fmt: skip

    def _find_missing(self) -> None:
        """Recordings that others name as the one before, or the index, and those that are not as they were then."""
        here = {row.id: row for row in self._video}
        noted: set[str] = set()
        with suppress(OSError):
            noted = deleted.noted(self._store, self._order.source)
        for earlier, row in zip(self._video, self._video[1:]):
            before = here.get(row.previous or "")
            if before is not None:
                if before.chain != row.previous_chain and before.reason is not None:
                    detail = f"it is not as it was when {row.path} was begun"
                    self._blame(before.path, before.begin, before.end, detail)
            elif row.previous is not None:
                begin, end = earlier.end, max(earlier.end, row.begin)
                expired = row.previous in noted
                self.missing.append(MissingVideo(id=row.previous, begin=begin, end=end, expired=expired))
        told = {row.id for row in self.missing}
        self.missing += [
            MissingVideo(id=row.id, begin=row.begin, end=row.end, expired=row.id in noted)
            for row in self._gone
            if row.id not in told
        ]
        self.missing.sort(key=lambda row: row.begin)

    def _blame(self, path: str, begin: int, end: int, detail: str) -> None:
        self.faults.append(Fault(path=path, begin=begin, end=end, detail=detail))

    # --- what explains it ------------------------------------------------------------------------------------------

    def _timeline(self) -> list[Span | Gap]:
        return self._index.timeline(self._order.source, self._order.begin, self._order.end)

    def _facts(self) -> Iterator[Member]:
        order, background = self._order, self._order.background
        rows = self._timeline()
        self.gaps = [row for row in rows if isinstance(row, Gap)]
        yield self._small("timeline.json", encoded({"begin": order.begin, "end": order.end, "rows": self._rows(rows)}))
        locks = [row for row in Locks(self._store).all(order.source) if row.begin < order.end and row.end > order.begin]
        yield self._small("locks.json", encoded(locks))
        yield self._small("events.json", encoded(self._events()))
        yield self._small("settings.json", encoded({"settings": background.settings, "reason": background.reason}))

    def _rows(self, rows: list[Span | Gap]) -> list[dict[str, Any]]:
        """A recording that the index knows and that is not there is no video."""
        missing, found = {row.id: row for row in self.missing}, list[dict[str, Any]]()
        for row in rows:
            told: dict[str, Any] = {"begin": row.begin, "end": row.end}
            if isinstance(row, Gap):
                told |= {"cause": row.cause, "detail": scrub(row.detail) if row.detail else None}
            elif row.file.id in missing:
                cause = "expired" if missing[row.file.id].expired else "missing"
                told |= {"cause": cause, "detail": f"the recording {row.file.path} is not there any more"}
            else:
                told["file"] = row.file.id
            found.append(told)
        return found

    def _events(self) -> Any:
        order, background = self._order, self._order.background
        if background.events is not None:
            return background.events
        return told_events(background.journal, order.source, order.begin, order.end)

    def _ending(self) -> Iterator[Member]:
        order, key = self._order, self._order.key
        if key is not None:
            yield self._small(names.PUBLIC_KEY, key.public_pem, "key")
        background = order.background
        told = readme(
            self._manifest(), has_events=background.journal is not None, has_settings=background.settings is not None
        )
        yield self._small(names.README, told, "text")
        content = encoded(self._manifest())
        yield Member(names.MANIFEST, len(content), iter((content,)))
        rows = [(row.path, row.sha256) for row in self._files]
        sums = sums_of([*rows, (names.MANIFEST, hashlib.sha256(content).hexdigest())])
        self.sums_digest = hashlib.sha256(sums).hexdigest()
        yield Member(names.SUMS, len(sums), iter((sums,)))
        if key is not None:
            signature = key.sign(sums)
            yield Member(names.SIGNATURE, len(signature), iter((signature,)))

    def _manifest(self) -> Manifest:
        order = self._order
        digests, (zone, offset_s) = order.background.digests, zone_at(order.begin)
        return Manifest(
            lookout=__version__, versions=versions(), source=order.source, store=self._store.uuid, begin=order.begin,
            end=order.end, made_at=order.made_at, made_by=order.made_by, zone=Zone(name=zone, offset_s=offset_s),
            clock=machine_clock(), signed_by=order.key.fingerprint if order.key else None,
            models=[UsedModel(served=row, sha256=_whole(row.model.digest, digests)) for row in self._models],
            files=self._files, video=self._video, missing=self.missing, faults=self.faults,
        )  # fmt: skip

    # ---------------------------------------------------------------------------------------------------------------

    def _small(self, path: str, content: bytes, kind: FileKind = "facts") -> Member:
        return self._member(path, kind, len(content), iter((content,)))

    def _member(
        self,
        path: str,
        kind: FileKind,
        size: int,
        content: Iterator[bytes],
        times: tuple[int, int] | None = None,
        also: Callable[[bytes], None] | None = None,
    ) -> Member:
        return Member(path, size, self._hashed(partial(self._list, path, kind, size, times), size, content, also))

    def _hashed(
        self,
        done: Callable[[str], None],
        size: int,
        content: Iterator[bytes],
        also: Callable[[bytes], None] | None,
    ) -> Iterator[bytes]:
        digest, taken = hashlib.sha256(), 0
        for data in content:
            digest.update(data)
            if also is not None:
                also(data)
            taken += len(data)
            yield data
        if taken != size:
            raise StoreError("a recording has become shorter while it was read")
        done(digest.hexdigest())

    def _list(self, path: str, kind: FileKind, size: int, times: tuple[int, int] | None, sha256: str) -> None:
        begin, end = times or (None, None)
        self._files.append(ListedFile(path=path, kind=kind, bytes=size, sha256=sha256, begin=begin, end=end))


def _content(path: str, file: int, size: int) -> Iterator[bytes]:
    """
    Raises:
        StoreError: it cannot be read; who takes it may have trouble of his own with a disk.
    """
    with translated(path):
        yield from chunks(file, 0, size)


def _has_some(found: Scanned, begin: int, end: int) -> bool:
    return any(row.begin < end and row.end > begin for row in found.fragments)


def _told(gap: Gap) -> str:
    return f"{gap.cause} from {utc_text(gap.begin)}" + (f" ({scrub(gap.detail)})" if gap.detail else "")


def _whole(digest: str, known: Any) -> str | None:
    return next((row for row in known if digest and row.startswith(digest)), None)
