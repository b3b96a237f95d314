"""The index follows the files: those that it does not know, or not as they are, and those that are gone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from daemon.progress import Tell
from daemon.recording.boxes import BoxError
from daemon.recording.claim_files import stored_claims
from daemon.recording.errors import StoreError
from daemon.recording.index import Index
from daemon.recording.records import FileFacts, Gap
from daemon.recording.scan import is_left, recover, scan
from daemon.recording.store import Store
from daemon.recording.tracks.open_tracks import note_open
from daemon.recording.tracks.track_file import TracksBusyError, recover_tracks

_AT_ONCE = 200  # files
_Row = tuple[FileFacts, Sequence[Gap]]


@dataclass
class Reconciled:
    """An account of it.

    Attributes:
        added, removed: files, of the index.
        recovered: files that were not finished, and have a tail now.
        problems: files that cannot be read, with the reason.
        busy: those whose tracks somebody writes.
    """

    added: int = 0
    removed: int = 0
    recovered: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)


def reconcile(store: Store, index: Index) -> Reconciled:
    """Add files that the index does not know or that were not finished, and drop rows of files that are gone.

    No file is deleted, but for empty ones that nobody writes.

    Raises:
        StoreError: the index cannot be written.
    """
    done, reading = Reconciled(), index.unread
    known = {facts.path: facts for facts in index.files()}
    there = set(store.files())
    unknown = sorted(path for path in there if path not in known or known[path].reason is None)
    rows = _rows(store, unknown, done)
    while some := list(islice(rows, _AT_ONCE)):  # others write, too
        index.add_files(some)
        done.added += sum(row[0].path not in known for row in some)
    for path in sorted(known.keys() - there):
        index.remove_file(known[path].id)
    for claims in stored_claims(store):
        index.restore_claims(claims)
    done.removed = len(known.keys() - there)
    note_open(index, done.busy)
    index.mark_known(reading)
    return done


def rebuild(store: Store, index: Index, tell: Tell | None = None) -> Reconciled:
    """Make the index anew from the files, while a recorder may write: what it finishes meanwhile is in it, too.

    Args:
        tell: called before each file.

    Raises:
        StoreError: the index cannot be written.
    """
    done, reading = Reconciled(), index.unread
    before = len(index.files())
    first = {row[0].path: row for row in _rows(store, store.files(), done, tell)}

    def rows() -> Iterator[_Row]:
        there = list(store.files())
        new = [path for path in there if path not in first or first[path][0].reason is None]
        again = {row[0].path: row for row in _rows(store, new, done)}
        for path in there:
            row = again.get(path) or first.get(path)
            if row is not None:
                done.added += 1
                yield row

    index.replace_files(rows)
    for claims in stored_claims(store):
        index.restore_claims(claims)
    done.removed = max(0, before - done.added)
    note_open(index, done.busy)
    index.mark_known(reading)
    return done


def _rows(
    store: Store, paths: Iterator[str] | Sequence[str], done: Reconciled, tell: Tell | None = None
) -> Iterator[_Row]:
    paths = [*paths]
    for number, path in enumerate(paths):
        if tell is not None:
            tell(number, len(paths))
        try:
            found = scan(store, path)
            if found.tail is None:
                recovered = recover(store, path)
                done.recovered += recovered is not None
                found = recovered or scan(store, path)
            # Boxes may come when a recording is whole already, and its recorder was perhaps killed before their end.
            try:
                recover_tracks(store, path)
            except TracksBusyError:
                done.busy.append(path)
        except FileNotFoundError:
            continue
        except BoxError as error:
            if not _is_removed(store, path):
                done.problems[path] = str(error)
            continue
        except StoreError as error:  # it is read, but cannot be finished now
            try:
                found = scan(store, path)
            except (BoxError, StoreError, FileNotFoundError):
                done.problems[path] = str(error)
                continue
        yield found.facts, found.head.gaps


def _is_removed(store: Store, path: str) -> bool:
    """Remove an empty file: a recorder was killed after it had made it."""
    with suppress(OSError), store.opened(path, os.O_RDWR) as file:
        if is_left(file) and os.fstat(file).st_size == 0:
            *folders, name = path.split("/")
            with store.folder(*folders) as folder:
                os.unlink(name, dir_fd=folder)
            return True
    return False
