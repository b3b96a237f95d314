"""The manifest of an evidence folder: what is in it, byte by byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from daemon.pipeline.outbox import Served

VERSION: Final = 1
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"
SIGNATURE: Final = f"{SUMS}.sig"
PUBLIC_KEY: Final = "public-key.pem"
README: Final = "README.txt"
VIDEO_FOLDER: Final = "video"
FileKind = Literal["video", "boxes", "facts", "text", "key"]


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the folder.

    Attributes:
        path: within the folder.
        begin, end: UTC ns, of video and boxes.
    """

    path: str
    kind: FileKind
    bytes: int
    sha256: str
    begin: int | None = None
    end: int | None = None


class ChainRow(NamedTuple):
    """A fragment.

    Attributes:
        offset, size: bytes.
        begin, end: UTC ns.
        chain: as the fragment's box has it; empty if the box is damaged.
    """

    offset: int
    size: int
    begin: int
    end: int
    chain: str


class ChainedVideo(msgspec.Struct, frozen=True, kw_only=True):
    """A recording, and its SHA-256 chain.

    Attributes:
        path: within the folder.
        session: of the connection to the camera.
        begin, end: UTC ns.
        begin_boot, boot_id: the same by the clock that nobody sets.
        clock, clock_error: how times came about, and how much they may be off, ns; None if unknown.
        reason: why the file ended; None while it was being written.
        beginning: bytes before the first fragment.
        begun_with: SHA-256 of those, with which the chain begins.
        previous, previous_chain: the source's file before this one in the store, and the end of its chain.
        chain: at the end of this one.
    """

    path: str
    id: str
    session: str
    codec: str
    width: int
    height: int
    begin: int
    end: int
    begin_boot: int
    boot_id: str
    clock: str
    clock_error: int | None
    reason: str | None
    previous: str | None
    previous_chain: str | None
    beginning: int
    begun_with: str
    chain: str
    fragments: list[ChainRow]


class MissingVideo(msgspec.Struct, frozen=True, kw_only=True):
    """A recording that was there, and is not in the folder.

    Attributes:
        begin, end: UTC ns, between which it lay.
        expired: the limits of the store have deleted it.
    """

    id: str
    begin: int
    end: int
    expired: bool


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was not as it was written when the folder was made.

    Attributes:
        begin, end: UTC ns.
    """

    path: str
    begin: int
    end: int
    detail: str


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """The time zone of the machine.

    Attributes:
        offset_s: to be added to UTC at the begin of the time that was asked.
    """

    name: str
    offset_s: int


class MachineClock(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of the machine when the folder was made, as its kernel says.

    Attributes:
        synchronised: to another clock, such as by NTP.
        max_error_ns: that it may be off, by the kernel's own account.
    """

    synchronised: bool
    max_error_ns: int


class UsedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that has seen something in the video.

    Attributes:
        sha256: of its file as it is configured now, if it begins as the digest of the one that was used.
    """

    served: Served
    sha256: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        store: its UUID.
        begin, end: UTC ns, the time that was asked; files go beyond it, because they are kept whole.
        made_at: UTC ns.
        made_by: the user, or the name of the token.
        clock: None where the system does not say.
        signed_by: fingerprint of the public key; None without a signature.
        files: all but this one, SHA256SUMS and its signature.
        missing: recordings of that time that are not here.
    """

    version: int = VERSION
    lookout: str
    versions: Mapping[str, str]
    source: str
    store: str
    begin: int
    end: int
    made_at: int
    made_by: str
    zone: Zone
    clock: MachineClock | None
    signed_by: str | None
    models: list[UsedModel]
    files: list[ListedFile]
    video: list[ChainedVideo]
    missing: list[MissingVideo]
    faults: list[Fault]


def encoded(value: object) -> bytes:
    """JSON as people read it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


decode_manifest = msgspec.json.Decoder(Manifest).decode


def sums_of(rows: Sequence[tuple[str, str]]) -> bytes:
    """A list that `sha256sum -c` reads.

    Args:
        rows: path and SHA-256 of each file.
    """
    return "".join(f"{sha256}  {path}\n" for path, sha256 in sorted(rows)).encode()
