"""Whether recordings are as they were written: one changed byte, one removed file, one moved fragment is found.

The SHA-256 chain goes through the fragments of a file, and from each file of a source to the next. It shows what was
changed by accident, or by somebody who does not make all of it anew: nothing here is signed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from daemon.progress import Tell
from daemon.recording import deleted
from daemon.recording.boxes import FRAGMENT_BYTES, BoxError, FragmentBox, read_fragment
from daemon.recording.errors import StoreError
from daemon.recording.index import IndexReader
from daemon.recording.locks import Locks
from daemon.recording.records import FileFacts, FileHead
from daemon.recording.scan import Scanned, chain_of_beginning, is_left, is_sound, scan_open
from daemon.recording.store import Store, folder_name
from daemon.recording.tracks.track_file import problem_of
from daemon.recording.tracks.track_records import tracks_path

Kind = Literal["changed", "removed", "reordered", "unfinished", "unreadable"]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something is not as it was written.

    Attributes:
        source: None of what is no recording of a source.
        path: within the store.
        begin, end: UTC ns, of the video that it concerns; None if unknown.
    """

    kind: Kind
    source: str | None
    path: str
    begin: int | None
    end: int | None
    detail: str


@dataclass
class Verification:
    """An account of it."""

    files: int = 0
    fragments: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)


class _Entry(NamedTuple):
    offset: int
    box: FragmentBox
    is_sound: bool


def verify(
    store: Store,
    index: IndexReader | None = None,
    *,
    source: str | None = None,
    begin: int = 0,
    end: int = 1 << 62,
    tell: Tell | None = None,
) -> Verification:
    """Read files of a store, and compare each byte with what they say.

    Args:
        index: knows the newest file of each source, which no other file names.
        begin, end: UTC ns; files with something in between are read.
        tell: called before each file.

    Raises:
        StoreError: the store cannot be read.
    """
    done = Verification()
    there: dict[str, FileFacts] = {}  # by id
    heads: list[FileHead] = []
    paths = [path for path in store.files() if source is None or path.startswith(f"{folder_name(source)}/")]
    for number, path in enumerate(paths):
        if tell is not None:
            tell(number, len(paths))
        try:
            with store.opened(path) as file:
                found = scan_open(path, file)
                facts = there[found.facts.id] = found.facts
                if facts.end > begin and facts.begin < end:
                    done.files += 1
                    done.bytes += os.fstat(file).st_size
                    done.fragments += len(found.fragments)
                    done.problems += [*_of_file(store, found, file), *_of_tracks(store, found)]
                    heads.append(found.head)
        except FileNotFoundError:
            continue  # deleted meanwhile
        except (BoxError, OSError) as error:
            done.problems.append(_problem("unreadable", None, path, None, None, str(error)))
    done.problems += _of_links(heads, there, {problem.path for problem in done.problems})
    gone = _unnamed(heads, there) | ({} if index is None else _unknown(index.files(source, begin, end), there))
    done.problems += _missing(store, gone)
    locks = Locks(store)
    locks.all()
    done.problems += [_problem("unreadable", None, f"locks/{name}", None, None, "it is no lock")
                      for name in locks.damaged]  # fmt: skip
    return done


def _problem(kind: Kind, source: str | None, path: str, begin: int | None, end: int | None, detail: str) -> Problem:
    return Problem(kind=kind, source=source, path=path, begin=begin, end=end, detail=detail)


def _of_file(store: Store, found: Scanned, file: int) -> Iterator[Problem]:
    facts, before = found.facts, chain_of_beginning(file, found.beginning)
    entries = [_Entry(*row) for row in _walk(file, found)]
    if found.tail is None and _is_written(store, facts.path):
        yield from _of_fragments(found, entries, before)
        return
    problems = [*_of_fragments(found, entries, before), *_of_holes(found, entries)]
    yield from problems
    if found.tail is None:
        detail = "it has no whole end: it was not finished, or was changed there"
        yield _problem("unfinished", facts.source, facts.path, facts.end, facts.end, detail)
    elif not problems:
        yield from _of_tail(found, entries, before)


def _of_tracks(store: Store, found: Scanned) -> Iterator[Problem]:
    """Those of the tracks beside a recording that is finished."""
    facts = found.facts
    detail = problem_of(store, facts.path) if found.tail is not None else None
    if detail is not None:
        yield _problem("changed", facts.source, tracks_path(facts.path), facts.begin, facts.end, detail)


def _walk(file: int, found: Scanned) -> Iterator[tuple[int, FragmentBox, bool]]:
    """Fragments that are there; where one is damaged the tail says where the next one is."""
    known = [row.offset for row in found.fragments] if found.tail else []
    at = found.beginning
    while at + FRAGMENT_BYTES <= found.end:
        box = read_fragment(os.pread(file, FRAGMENT_BYTES, at))
        is_whole = box is not None and at + box.size <= found.end
        if box is not None and is_whole:
            sound = is_sound(file, at, box)
            yield at, box, sound
            if sound or not known or at + box.size in known:
                at += box.size
                continue
        following = [offset for offset in known if offset > at]
        if not following:
            return
        at = following[0]


def _of_fragments(found: Scanned, entries: list[_Entry], before: bytes) -> Iterator[Problem]:
    """Fragments that were changed, and those that do not follow the one before."""
    facts, chains = found.facts, {entry.box.chain for entry in entries} | {before}
    moved: list[FragmentBox] = []
    for number, entry in enumerate(entries):
        box = entry.box
        last = entries[number - 1].box if number else None
        expected = last.chain if last else before
        is_next = not number or entries[number - 1].offset + entries[number - 1].box.size == entry.offset
        if not entry.is_sound:
            detail = f"the fragment at byte {entry.offset} is not as it was written"
            yield _problem("changed", facts.source, facts.path, *_times(found, entry), detail)
        elif box.before != expected and is_next and (not number or entries[number - 1].is_sound):
            if box.before in chains:
                moved.append(box)
                continue
            begin = last.end if last else facts.begin
            kind: Kind = "removed" if last else "changed"
            detail = f"what stood before the fragment at byte {entry.offset} is not there" if last else (
                "its beginning is not as it was written")  # fmt: skip
            yield _problem(kind, facts.source, facts.path, begin, max(begin, box.begin), detail)
    if moved:
        begin, end = min(box.begin for box in moved), max(box.end for box in moved)
        yield _problem("reordered", facts.source, facts.path, begin, end, "fragments are not in their order")


def _times(found: Scanned, entry: _Entry) -> tuple[int, int]:
    """By the tail, if there is one: a fragment that was changed may say anything."""
    row = next((row for row in found.fragments if row.offset == entry.offset), None)
    return (row.begin, row.end) if row and found.tail else (entry.box.begin, entry.box.end)


def _of_holes(found: Scanned, entries: list[_Entry]) -> Iterator[Problem]:
    """Fragments that the tail has, and whose own boxes cannot be read."""
    if found.tail is None:
        return
    facts, there = found.facts, [(entry.offset, entry.offset + entry.box.size) for entry in entries]
    for row in found.fragments:
        if not any(begin <= row.offset < end for begin, end in there):
            kind: Kind = "removed" if row.offset >= found.end else "changed"
            detail = f"the fragment at byte {row.offset} is not {'there' if kind == 'removed' else 'as it was written'}"
            yield _problem(kind, facts.source, facts.path, row.begin, row.end, detail)


def _of_tail(found: Scanned, entries: list[_Entry], before: bytes) -> Iterator[Problem]:
    """The tail of a file whose fragments are sound."""
    facts, tail = found.facts, found.tail
    rows = [entry.box.row(entry.offset)._replace(claimed=False) for entry in entries]
    chain = entries[-1].box.chain if entries else before
    if tail is None or (rows == [row._replace(claimed=False) for row in tail.fragments] and tail.chain == chain.hex()):
        return
    last = entries[-1].box.end if entries else facts.begin
    if len(rows) < len(tail.fragments):
        yield _problem("removed", facts.source, facts.path, last, max(last, tail.end), "fragments at its end are gone")
    else:
        detail = "its fragments are not those that its end tells of"
        yield _problem("changed", facts.source, facts.path, facts.begin, facts.end, detail)


def _of_links(heads: Iterable[FileHead], there: Mapping[str, FileFacts], known: Collection[str]) -> Iterator[Problem]:
    """Files that others name as the one before, and that are not as they were then."""
    for head in heads:
        before = there.get(head.previous or "")
        if before is None or before.chain == head.previous_chain or before.path in known or before.reason is None:
            continue
        detail = f"it is not as it was when {there[head.id].path} was begun"
        yield _problem("changed", head.source, before.path, before.begin, before.end, detail)


def _unnamed(heads: Iterable[FileHead], there: Mapping[str, FileFacts]) -> dict[str, Problem]:
    """Files that others name, and that are not there, by id."""
    ends: dict[str, list[int]] = {}
    for facts in there.values():
        ends.setdefault(facts.source, []).append(facts.end)
    found: dict[str, Problem] = {}
    for head in heads:
        if head.previous is not None and head.previous not in there:
            begin = max((end for end in ends[head.source] if end <= head.covered_until), default=head.since)
            path, until = there[head.id].path, head.covered_until
            detail = f"the file before it, {head.previous}, is not there"
            found[head.previous] = _problem("removed", head.source, path, min(begin, until), until, detail)
    return found


def _unknown(files: Iterable[FileFacts], there: Mapping[str, FileFacts]) -> dict[str, Problem]:
    """Files of the index that are not there, by id."""
    detail = "it is not there"
    return {facts.id: _problem("removed", facts.source, facts.path, facts.begin, facts.end, detail)
            for facts in files if facts.id not in there}  # fmt: skip


def _missing(store: Store, gone: Mapping[str, Problem]) -> Iterator[Problem]:
    """Those files that no limit of the store has deleted."""
    noted: dict[str, set[str]] = {}
    for id, problem in gone.items():
        source = problem.source or ""
        if source not in noted:
            try:
                noted[source] = deleted.noted(store, source)
            except OSError as error:
                raise StoreError(f"{store.path}/{folder_name(source)}: {error.strerror}") from error
        if id not in noted[source]:
            yield problem


def _is_written(store: Store, path: str) -> bool:
    with store.opened(path, os.O_RDWR) as file:
        return not is_left(file)
