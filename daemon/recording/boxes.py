"""Boxes of MP4 (ISO/IEC 14496-12) that recordings are made of, and three of their own, of type `uuid`.

A file is `ftyp`, the head, `moov`, then for each fragment its own box, `moof` and `mdat`, and at last the tail. Players
pass over what they do not know.

Each fragment's box has the SHA-256 chain: over the chain before, all of the box but one byte, `moof` and `mdat`. That
byte says whether an event wants the fragment, which may be known later. The chain begins with the digest of all that
stands before the first fragment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from daemon.recording.records import FileHead, FileTail, FragmentRow

Buffer = bytes | bytearray | memoryview
HEAD: Final = bytes.fromhex("6c6b2d68656164008f1b4a0d5e2c7391")
FRAGMENT: Final = bytes.fromhex("6c6b2d667261670087d24c11a9b35e60")
TAIL: Final = bytes.fromhex("6c6b2d7461696c009c3e47f2d8510a4b")

_BOX = Struct(">I4s")
_UUID = Struct(">I4s16s")
_FIELDS = Struct(">??2xIQqqqqqI32s32s")  # of `FragmentBox`, from its first byte that may change
_SIZE = Struct(">I")
FRAGMENT_BYTES: Final = _UUID.size + _FIELDS.size
_CLAIMED_AT: Final = _UUID.size  # offset of the byte that may change
_CHAIN_BYTES: Final = 32
_TAIL_HEAD: Final = _UUID.size + _CHAIN_BYTES + _SIZE.size
_MAX_TAIL: Final = 16 << 20
_MOOF_BYTES: Final = 88  # without samples
_SAMPLE_FLAGS: Final = {True: 0x02000000, False: 0x01010000}  # depends on others or not, and is a sync sample or not
_TRUN_FLAGS: Final = 0x01000F01  # version 1; data offset; duration, size, flags and composition offset of each sample
_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(FileHead).decode
_decode_tail = msgspec.json.Decoder(FileTail).decode


class BoxError(ValueError):
    """Bytes are not what they should be; the message says how."""


class FragmentBox(NamedTuple):
    """The box before a fragment.

    Attributes:
        claimed: an event wants it.
        key: its first sample is a key picture.
        packets: samples in it.
        number: of its first packet.
        begin, end: UTC ns.
        begin_boot: ns.
        pts, duration: ns, from the first picture shown to the end of the last one.
        media_bytes: of `moof` and `mdat`.
        before, chain: SHA-256, before and with this fragment.
    """

    claimed: bool
    key: bool
    packets: int
    number: int
    begin: int
    begin_boot: int
    end: int
    pts: int
    duration: int
    media_bytes: int
    before: bytes
    chain: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole fragment."""
        return FRAGMENT_BYTES + self.media_bytes

    def row(self, offset: int) -> FragmentRow:
        times = self.begin, self.end, self.pts, self.duration
        return FragmentRow(offset, self.size, *times, self.packets, self.key, self.claimed)


class SampleEntry(NamedTuple):
    """A sample of a `trun`: ticks and bytes."""

    duration: int
    size: int
    key: bool
    composition: int


def box(kind: bytes, *parts: bytes) -> bytes:
    return _BOX.pack(8 + sum(map(len, parts)), kind) + b"".join(parts)


def head_box(head: FileHead) -> bytes:
    return box(b"uuid", HEAD, _encode(head))


def tail_box(tail: FileTail) -> bytes:
    """Its digest, a byte for each fragment that says whether an event wants it, JSON, and its own size at the end."""
    claims = bytes(row.claimed for row in tail.fragments)
    content = _encode(tail)
    size = _TAIL_HEAD + len(claims) + len(content) + _SIZE.size
    counted = _SIZE.pack(len(claims))
    digest = hashlib.sha256(counted + content + _SIZE.pack(size)).digest()
    return box(b"uuid", TAIL, digest, counted, claims, content, _SIZE.pack(size))


def fragment_box(found: FragmentBox, media: Iterable[Buffer]) -> bytes:
    """The box of a fragment, with its chain in place of that of `found`.

    Args:
        media: the bytes of `moof` and `mdat`.
    """
    fields = _FIELDS.pack(*found[:-1], bytes(_CHAIN_BYTES))
    chain = hashlib.sha256(fields[1:-_CHAIN_BYTES])
    for part in media:
        chain.update(part)
    return _UUID.pack(FRAGMENT_BYTES, b"uuid", FRAGMENT) + fields[:-_CHAIN_BYTES] + chain.digest()


def chain_of(box_bytes: Buffer, media: Iterable[Buffer]) -> bytes:
    """The chain that a fragment's box should have."""
    chain = hashlib.sha256(chained(box_bytes))
    for part in media:
        chain.update(part)
    return chain.digest()


def chained(box_bytes: Buffer) -> memoryview:
    """The bytes of a fragment's box that its chain goes over, before those of `moof` and `mdat`."""
    return memoryview(box_bytes)[_CLAIMED_AT + 1 : FRAGMENT_BYTES - _CHAIN_BYTES]


def claimed_at(fragment: int) -> int:
    """Offset in a file of the byte that says whether an event wants the fragment that begins at an offset."""
    return fragment + _CLAIMED_AT


def movie_fragment(
    sequence: int,
    decode_time: int,
    durations: Sequence[int],
    sizes: Sequence[int],
    keys: Sequence[bool],
    compositions: Sequence[int],
) -> bytes:
    """`moof`, and the beginning of the `mdat` that follows it; see `SampleEntry`.

    Args:
        decode_time: of the first sample, ticks.

    Raises:
        BoxError: a time does not fit.
    """
    count = len(sizes)
    if min(compositions) < -(1 << 31) or max(compositions) >= 1 << 31:
        raise BoxError("a picture is shown too long after, or before, it is decoded")
    values = [0] * (4 * count)
    values[::4], values[1::4] = durations, sizes
    values[2::4] = [_SAMPLE_FLAGS[key] for key in keys]
    values[3::4] = [composition & 0xFFFFFFFF for composition in compositions]
    size, media = _MOOF_BYTES + 16 * count, 8 + sum(sizes)
    try:
        rows = Struct(f">{4 * count}I").pack(*values)
        return b"".join((
            _MOOF.pack(
                size, b"moof", 16, b"mfhd", 0, sequence, size - 24, b"traf", 16, b"tfhd", 0x020000, 1,
                20, b"tfdt", 0x01000000, decode_time, 20 + 16 * count, b"trun", _TRUN_FLAGS, count, size + 8,
            ),
            rows,
            _BOX.pack(media, b"mdat"),
        ))  # fmt: skip
    except Exception as error:
        raise BoxError(f"a time or a size that a fragment cannot hold: {error}") from error


_MOOF = Struct(">I4s I4sII I4s I4sII I4sIQ I4sIIi")


class MovieFragment(NamedTuple):
    """A `moof` that `movie_fragment` made.

    Attributes:
        decode_time: of the first sample, ticks.
        bytes: of the `moof` and the beginning of `mdat`: samples follow.
    """

    decode_time: int
    samples: list[SampleEntry]
    bytes: int


def read_movie_fragment(media: bytes) -> MovieFragment:
    """
    Args:
        media: a fragment from its `moof` on.

    Raises:
        BoxError: it is none of ours, or damaged.
    """
    if len(media) < _MOOF.size:
        raise BoxError("a fragment is shorter than its own description")
    found = _MOOF.unpack_from(media)
    size, kind, decode_time, run, count = found[0], found[1], found[15], found[17], found[19]
    if kind != b"moof" or run != b"trun" or size != _MOOF_BYTES + 16 * count or size + 8 > len(media):
        raise BoxError("the boxes of a fragment are not where they should be")
    values = Struct(f">{4 * count}I").unpack_from(media, _MOOF.size)
    rows = zip(values[::4], values[1::4], values[2::4], values[3::4])
    samples = [SampleEntry(duration, bytes_, flags == _SAMPLE_FLAGS[True], (offset ^ 1 << 31) - (1 << 31))
               for duration, bytes_, flags, offset in rows]  # fmt: skip
    media_bytes, kind = _BOX.unpack_from(media, size)
    if kind != b"mdat" or media_bytes != 8 + sum(sample.size for sample in samples):
        raise BoxError("the samples of a fragment are not as many bytes as it says")
    return MovieFragment(decode_time, samples, size + 8)


def boxes(data: Buffer, offset: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """Type, offset and end of each whole box in `data`; those that are not whole end it."""
    view = memoryview(data)
    while offset + 8 <= len(view):
        size, kind = _BOX.unpack_from(view, offset)
        if size < 8 or offset + size > len(view):
            return
        yield kind, offset, offset + size
        offset += size


def read_head(data: Buffer) -> tuple[FileHead, int] | None:
    """The head of a file, and the offset of the first fragment; None if more bytes are needed.

    Args:
        data: the beginning of a file.

    Raises:
        BoxError: it is no recording.
    """
    head: FileHead | None = None
    if len(memoryview(data)) >= 8 and bytes(memoryview(data)[4:8]) != b"ftyp":
        raise BoxError("it is no recording: it does not begin as an MP4 file")
    for kind, begin, end in boxes(data):
        if kind == b"uuid" and memoryview(data)[begin + 8 : begin + 24] == HEAD:
            try:
                head = _decode_head(memoryview(data)[begin + 24 : end])
            except (msgspec.MsgspecError, UnicodeError) as error:
                raise BoxError(f"its head is damaged: {error}") from error
        elif kind == b"moov":
            if head is None:
                raise BoxError("it is no recording of Lookout's: it has no head")
            return head, end
        elif kind != b"ftyp":
            raise BoxError(f"it is no recording: a box {kind!r} stands before the first fragment")
    return None


def read_fragment(data: Buffer) -> FragmentBox | None:
    """The box of a fragment; None if the bytes are none."""
    view = memoryview(data)
    if len(view) < FRAGMENT_BYTES or _UUID.unpack_from(view) != (FRAGMENT_BYTES, b"uuid", FRAGMENT):
        return None
    if max(view[_CLAIMED_AT : _CLAIMED_AT + 2]) > 1:
        return None
    return FragmentBox._make(_FIELDS.unpack_from(view, _UUID.size))


def tail_size(end: Buffer) -> int | None:
    """How many bytes a tail has that ends with these bytes; None if they end none."""
    (size,) = _SIZE.unpack(memoryview(end)[-_SIZE.size :])
    return size if _TAIL_HEAD + _SIZE.size <= size <= _MAX_TAIL else None


def read_tail(data: Buffer) -> FileTail | None:
    """A tail, with claims as they are now; None if the bytes are none, or damaged."""
    view = memoryview(data)
    if len(view) < _TAIL_HEAD + _SIZE.size or _UUID.unpack_from(view) != (len(view), b"uuid", TAIL):
        return None
    counted = view[_TAIL_HEAD - _SIZE.size : _TAIL_HEAD]
    (count,) = _SIZE.unpack(counted)
    claims, rest = view[_TAIL_HEAD : _TAIL_HEAD + count], view[_TAIL_HEAD + count :]
    digest = hashlib.sha256(counted)
    digest.update(rest)
    if digest.digest() != view[_UUID.size : _UUID.size + _CHAIN_BYTES] or (count and max(claims) > 1):
        return None
    tail = _decode_tail(rest[: -_SIZE.size])
    rows = [row._replace(claimed=bool(claim)) for row, claim in zip(tail.fragments, claims)]
    return msgspec.structs.replace(tail, fragments=rows) if len(rows) == count else None


def tail_claims_at(tail: int) -> int:
    """Offset in a file of the bytes of claims, for a tail that begins at an offset."""
    return tail + _TAIL_HEAD
