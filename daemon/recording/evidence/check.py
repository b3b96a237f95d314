"""Whether an evidence folder is as it was made: by the folder alone, with the public key of somebody at best.

No path comes from the manifest: files are those that lie there, and are looked up in it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from daemon.errors import LookoutError
from daemon.recording.evidence import manifest as names
from daemon.recording.evidence.chain import ChainReader
from daemon.recording.evidence.damage import Damage, damages
from daemon.recording.evidence.manifest import ChainedVideo, ListedFile, Manifest, decode_manifest, sums_of
from daemon.recording.evidence.signing import fingerprint_of, is_signed
from daemon.recording.scan import chunks
from daemon.recording.store import NoFileError, open_file
from daemon.redact import printable

Kind = Literal["changed", "removed", "added", "renamed", "unsigned", "unchecked"]
_MAX_TEXT: Final = 512 << 20  # bytes of a manifest
_DEEPEST: Final = 8  # folders within each other
_LISTS: Final = (names.MANIFEST, names.SUMS, names.SIGNATURE)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something is not as it was made.

    Attributes:
        path: within the folder.
        begin, end: UTC ns, of the video that it concerns; None if it concerns none.
    """

    kind: Kind
    path: str
    begin: int | None = None
    end: int | None = None
    detail: str


@dataclass
class Checked:
    """An account of it.

    Attributes:
        source: None if the manifest cannot be read.
        signed_by: fingerprint of the public key that fits the signature; None if there is none.
        is_known: that is the key which was given.
        sums_digest: SHA-256 of the list of all files.
    """

    source: str | None = None
    files: int = 0
    bytes: int = 0
    signed_by: str | None = None
    is_known: bool = False
    sums_digest: str = ""
    findings: list[Finding] = field(default_factory=list)


class _There(NamedTuple):
    """A file of the folder.

    Attributes:
        sha256: None of what is no file.
    """

    size: int
    sha256: str | None
    chain: ChainReader | None


def check_folder(folder: Path, public_key: bytes | None = None) -> Checked:
    """
    Args:
        public_key: PEM, of the one who is to have signed it.

    Raises:
        LookoutError: the folder, or a file in it, cannot be read.
    """
    done = Checked()
    try:
        texts = {name: _text(folder, name) for name in (*_LISTS, names.PUBLIC_KEY)}
        manifest = _manifest_of(texts[names.MANIFEST], done)
        video = {row.path: row for row in manifest.video} if manifest else {}
        there = dict(_files(folder, video))
    except OSError as error:
        raise LookoutError(f"{folder} cannot be read: {error.strerror or error}") from error
    done.files = len(there)
    done.bytes = sum(row.size for row in there.values())
    sums = texts[names.SUMS]
    done.sums_digest = hashlib.sha256(sums or b"").hexdigest()
    second = _listed(sums)
    listed = {row.path: row for row in manifest.files} if manifest else second
    done.findings += _of_files(listed, there, second, video)
    differing = [*_of_sums(manifest, texts, listed)]
    done.findings += differing
    done.findings += _of_signature(manifest, texts, public_key, done)
    if manifest is not None:
        done.source = manifest.source
    if manifest is not None and not differing:
        done.findings += _of_chains(manifest, there, {finding.path for finding in done.findings})
        done.findings += _of_making(manifest, {finding.path for finding in done.findings})
    done.findings = [
        msgspec.structs.replace(row, path=printable(row.path), detail=printable(row.detail)) for row in done.findings
    ]
    return done


def _text(folder: Path, name: str) -> bytes | None:
    """A small file; None if there is none."""
    with closing(_Folder(folder)) as opened:
        try:
            file = open_file(name, os.O_RDONLY, opened.fd)
        except (FileNotFoundError, NoFileError):
            return None
        try:
            if os.fstat(file).st_size > _MAX_TEXT:
                return None
            return b"".join(chunks(file, 0, _MAX_TEXT))
        finally:
            os.close(file)


class _Folder:
    """A folder of some level, open."""

    def __init__(self, path: Path | str, within: int | None = None) -> None:
        link = os.O_NOFOLLOW if within is not None else 0
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | link, dir_fd=within)

    def close(self) -> None:
        os.close(self.fd)


def _files(folder: Path, video: Mapping[str, ChainedVideo]) -> Iterator[tuple[str, _There]]:
    """All that lies in the folder, by path; folders alone are nothing unless they are empty."""
    with closing(_Folder(folder)) as opened:
        yield from _below(opened, "", video)


def _below(folder: _Folder, path: str, video: Mapping[str, ChainedVideo]) -> Iterator[tuple[str, _There]]:
    found = sorted(os.listdir(folder.fd)) if path.count("/") < _DEEPEST else []
    if not found and path:
        yield path.rstrip("/"), _There(0, None, None)
    for name in found:
        mode = os.stat(name, dir_fd=folder.fd, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            with closing(_Folder(name, folder.fd)) as inner:
                yield from _below(inner, f"{path}{name}/", video)
        elif stat.S_ISREG(mode):
            yield f"{path}{name}", _read(folder, name, video.get(path + name))
        else:
            yield f"{path}{name}", _There(0, None, None)


def _read(folder: _Folder, name: str, video: ChainedVideo | None) -> _There:
    file = open_file(name, os.O_RDONLY, folder.fd)
    try:
        size, digest = 0, hashlib.sha256()
        chain = ChainReader(video.beginning, [(row.offset, row.size) for row in video.fragments]) if video else None
        for data in chunks(file, 0, os.fstat(file).st_size):
            digest.update(data)
            size += len(data)
            if chain is not None:
                chain.add(data)
        return _There(size, digest.hexdigest(), chain)
    finally:
        os.close(file)


# --- lists -----------------------------------------------------------------------------------------------------------


def _manifest_of(content: bytes | None, done: Checked) -> Manifest | None:
    if content is None:
        done.findings.append(Finding(kind="removed", path=names.MANIFEST, detail="it is not there"))
        return None
    try:
        found = decode_manifest(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        detail = f"it cannot be read: {error}"
        done.findings.append(Finding(kind="changed", path=names.MANIFEST, detail=detail))
        return None
    if found.version != names.VERSION:
        raise LookoutError(f"the folder is of version {found.version}; this Lookout knows {names.VERSION}")
    return found


def _listed(sums: bytes | None) -> dict[str, ListedFile]:
    """By SHA256SUMS alone."""
    rows = (line.split("  ", 1) for line in (sums or b"").decode(errors="replace").splitlines() if "  " in line)
    return {path: ListedFile(path=path, kind="facts", bytes=-1, sha256=sha256)
            for sha256, path in rows if path not in _LISTS}  # fmt: skip


def _of_sums(
    manifest: Manifest | None, texts: Mapping[str, bytes | None], listed: Mapping[str, ListedFile]
) -> Iterator[Finding]:
    """Whether the two lists say the same."""
    sums, content = texts[names.SUMS], texts[names.MANIFEST]
    if sums is None:
        yield Finding(kind="removed", path=names.SUMS, detail="it is not there")
        return
    if content is None:
        return
    rows = [(row.path, row.sha256) for row in listed.values()]
    if sums == sums_of([*rows, (names.MANIFEST, hashlib.sha256(content).hexdigest())]):
        return
    told = next((row.split("  ")[0] for row in sums.decode(errors="replace").splitlines()
                 if row.endswith(f"  {names.MANIFEST}")), "")  # fmt: skip
    if manifest is not None and told == hashlib.sha256(content).hexdigest():
        yield Finding(kind="changed", path=names.SUMS, detail="it does not say what manifest.json says")
        return
    detail = "one of them was changed: they do not fit each other"
    yield Finding(kind="changed", path=f"{names.MANIFEST} or {names.SUMS}", detail=detail)


def _of_signature(
    manifest: Manifest | None, texts: Mapping[str, bytes | None], public_key: bytes | None, done: Checked
) -> Iterator[Finding]:
    sums, signature, own = texts[names.SUMS], texts[names.SIGNATURE], texts[names.PUBLIC_KEY]
    if signature is None:
        if manifest is not None and manifest.signed_by is not None:
            yield Finding(kind="removed", path=names.SIGNATURE, detail="the signature is not there")
        elif public_key is not None:
            yield Finding(kind="unsigned", path=names.SIGNATURE, detail="the folder is not signed")
        return
    if manifest is not None and manifest.signed_by is None:
        yield Finding(kind="added", path=names.SIGNATURE, detail="the folder was made without a signature")
        return
    key = public_key or own
    if key is None or sums is None:
        return  # which is told of already
    try:
        if not is_signed(key, sums, signature):
            whose = "that was given" if public_key else "in the folder"
            detail = f"it, or {names.SUMS}, was changed, or was not signed by the key {whose}"
            yield Finding(kind="changed", path=names.SIGNATURE, detail=detail)
            return
        done.signed_by, done.is_known = fingerprint_of(key), public_key is not None
    except ValueError as error:
        yield Finding(kind="changed", path=names.PUBLIC_KEY, detail=str(error))
    except LookoutError as error:
        yield Finding(kind="unchecked", path=names.SIGNATURE, detail=str(error))


# --- files -----------------------------------------------------------------------------------------------------------


def _of_files(
    listed: Mapping[str, ListedFile],
    there: Mapping[str, _There],
    second: Mapping[str, ListedFile],
    video: Mapping[str, ChainedVideo],
) -> Iterator[Finding]:
    """
    Args:
        second: another list. Where it says what a file is, the first one was changed, and not the file.
    """
    gone = {path: row for path, row in listed.items() if path not in there}
    new = {path: row for path, row in there.items() if path not in listed and path not in _LISTS}
    paths = {row.sha256: path for path, row in listed.items()}
    for path, row in gone.items():
        other = next((name for name, found in new.items() if found.sha256 == row.sha256), None)
        if other is not None:
            del new[other]
            yield Finding(kind="renamed", path=path, begin=row.begin, end=row.end, detail=f"it is {other} now")
        else:
            yield Finding(kind="removed", path=path, begin=row.begin, end=row.end, detail="it is not there")
    for path, found in new.items():
        detail = "it does not belong to the folder" if found.sha256 else "it is no file, and does not belong here"
        yield Finding(kind="added", path=path, detail=detail)
    for path, row in listed.items():
        now = there.get(path)
        if now is None or now.sha256 == row.sha256 or (path in second and second[path].sha256 == now.sha256):
            continue
        if now.sha256 is None:
            yield Finding(kind="changed", path=path, begin=row.begin, end=row.end, detail="it is no file any more")
        elif now.sha256 in paths:
            detail = f"it has the content of {paths[now.sha256]}"
            yield Finding(kind="changed", path=path, begin=row.begin, end=row.end, detail=detail)
        else:
            for damage in _damages(row, now, video.get(path)):
                yield Finding(kind="changed", path=path, begin=damage.begin, end=damage.end, detail=damage.detail)


def _damages(row: ListedFile, now: _There, video: ChainedVideo | None) -> Sequence[Damage]:
    """The faults of a file, and in which time of the video they lie."""
    length = f"it has {now.size} bytes, and had {row.bytes}" if row.bytes >= 0 and now.size != row.bytes else ""
    found = damages(video, now.chain, now.size) if video is not None and now.chain is not None else []
    if not found:
        return [Damage(row.begin, row.end, length or "it is not as it was made")]
    return [damage._replace(detail=f"{damage.detail}; {length}" if length else damage.detail) for damage in found]


def _of_chains(manifest: Manifest, there: Mapping[str, _There], known: set[str]) -> Iterator[Finding]:
    """Chains of recordings whose bytes are those that the manifest lists: it may have been made anew with them."""
    for video in manifest.video:
        found = there.get(video.path)
        if video.path in known or found is None or found.chain is None or _has_fault(manifest, video.path):
            continue
        for damage in damages(video, found.chain, found.size):
            yield Finding(kind="changed", path=video.path, begin=damage.begin, end=damage.end, detail=damage.detail)
    here = {video.id: video for video in manifest.video}
    for video in manifest.video:
        before = here.get(video.previous or "")
        if before is None or before.reason is None or before.chain == video.previous_chain:
            continue
        if not _has_fault(manifest, before.path):
            detail = f"it is not as it was when {video.path} was begun"
            yield Finding(kind="changed", path=before.path, begin=before.begin, end=before.end, detail=detail)


def _has_fault(manifest: Manifest, path: str) -> bool:
    return any(fault.path == path for fault in manifest.faults)


def _of_making(manifest: Manifest, known: set[str]) -> Iterator[Finding]:
    """Faults that were there when the folder was made."""
    for fault in manifest.faults:
        if fault.path not in known:
            detail = f"{fault.detail}; so it was when the folder was made"
            yield Finding(kind="changed", path=fault.path, begin=fault.begin, end=fault.end, detail=detail)
    for missing in manifest.missing:
        if not missing.expired:
            detail = f"the recording {missing.id} was not there when the folder was made"
            yield Finding(kind="removed", path=names.VIDEO_FOLDER, begin=missing.begin, end=missing.end, detail=detail)
