"""An evidence folder as a tar, made while it is sent: nothing is written anywhere."""

from __future__ import annotations

import tarfile
from collections.abc import Generator
from typing import Final

from daemon.recording.evidence.content import Evidence, Member

_BLOCK: Final = 512
_END: Final = bytes(2 * _BLOCK)


def tar_of(evidence: Evidence, name: str, made_at: int) -> Generator[bytes, None, None]:
    """The bytes of the tar, some at a time.

    Args:
        name: of the folder in it.
        made_at: UTC ns.

    Raises:
        LookoutError: as `Evidence.members`.
    """
    for member in evidence.members():
        yield _header(member, name, made_at)
        yield from member.content
        yield bytes(-member.size % _BLOCK)
    yield _END


def _header(member: Member, name: str, made_at: int) -> bytes:
    found = tarfile.TarInfo(f"{name}/{member.path}")
    found.size, found.mtime, found.mode = member.size, made_at // 1_000_000_000, 0o640
    return found.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
