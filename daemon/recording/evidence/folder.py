"""An evidence folder on disk: it is there whole, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from daemon.errors import LookoutError
from daemon.progress import Tell
from daemon.recording.evidence.content import Evidence, EvidenceOrder, Member
from daemon.recording.evidence.manifest import Fault, MissingVideo
from daemon.recording.index import IndexReader
from daemon.recording.records import Gap
from daemon.recording.store import Store

_FOLDER_MODE, _FILE_MODE = 0o750, 0o640
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PART: Final = ".part"  # behind the name, until it is whole


class ExportedEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """An account of it.

    Attributes:
        bytes: of all files.
        sums_digest: SHA-256 of the list of all files.
        signed_by: fingerprint of the public key; None without a signature.
        gaps: of the time that was asked.
        missing, faults: see `Evidence`.
    """

    source: str
    files: int
    bytes: int
    sums_digest: str
    signed_by: str | None
    gaps: list[Gap]
    missing: list[MissingVideo]
    faults: list[Fault]


def write_folder(
    store: Store, index: IndexReader, order: EvidenceOrder, out: Path, tell: Tell | None = None
) -> ExportedEvidence:
    """Write the evidence of a time to a folder that is not there yet.

    Args:
        tell: called after each file, with megabytes of about so many.

    Raises:
        LookoutError: nothing is recorded, the folder is there, somebody else makes it, or it cannot be written. No
            folder of its name is there then.
    """
    evidence = Evidence(store, index, order)
    files = size = 0
    try:
        with _part(out) as part:
            expected = sum(index.file_sizes(order.source, order.begin, order.end).values())
            _check_room(part, expected)
            for member in evidence.members():
                _write(part, member)
                files, size = files + 1, size + member.size
                if tell is not None:
                    tell(size / 1e6, max(size, expected) / 1e6)
            _sync_folders(part)
            _check_free(out)
            part.rename(out)
            _sync(out.parent)
    except OSError as error:
        raise LookoutError(f"{out} cannot be written: {error.strerror or error}") from error
    return ExportedEvidence(
        source=order.source, files=files, bytes=size, sums_digest=evidence.sums_digest,
        signed_by=order.key.fingerprint if order.key else None, gaps=evidence.gaps, missing=evidence.missing,
        faults=evidence.faults,
    )  # fmt: skip


@contextmanager
def _part(out: Path) -> Iterator[Path]:
    """A folder beside the one that it becomes; it is gone if it does not."""
    part = out.with_name(out.name + PART)
    _check_free(out)
    try:
        part.mkdir(_FOLDER_MODE)
    except FileExistsError as error:
        raise LookoutError(
            f"{part}: is there: another export writes it now, or was killed: then remove it, or name another folder"
        ) from error
    try:
        yield part
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(part)
        raise


def _check_free(out: Path) -> None:
    if os.path.lexists(out):
        raise LookoutError(f"{out}: is there already: name a folder that is not")


def _check_room(part: Path, size: int) -> None:
    found = os.statvfs(part)
    free = found.f_bavail * found.f_frsize
    if free < size:
        raise OSError(errno.ENOSPC, f"it needs {size / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free")


def _write(part: Path, member: Member) -> None:
    path = part
    for folder in PurePosixPath(member.path).parts[:-1]:
        path = path / folder
        path.mkdir(_FOLDER_MODE, exist_ok=True)
    path = path / PurePosixPath(member.path).name
    file = os.open(path, _NEW, _FILE_MODE)
    try:
        for data in member.content:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _sync_folders(part: Path) -> None:
    for folder, _, _ in os.walk(part, topdown=False):
        _sync(Path(folder))


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system that knows no folders
            os.fsync(file)
    finally:
        os.close(file)
