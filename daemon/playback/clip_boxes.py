"""The beginning of a plain MP4 (ISO/IEC 14496-12) around samples that lie in the fragments of recordings.

All tables are known before the first byte is sent: so a clip has its length, begins to play at once, and is written
nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from struct import Struct
from typing import Final

from daemon.recording.boxes import SampleEntry, box, boxes

FTYP: Final = box(b"ftyp", b"isom", b"\0\0\2\0", b"isom", b"iso2", b"mp41")
_WORD, _LONG = Struct(">I"), Struct(">Q")
_BOX_HEAD: Final = 8
# Offsets of 32-bit fields in boxes of version 0.
_TIMESCALE: Final = 20  # of mvhd and mdhd
_DURATION: Final = {b"mvhd": 24, b"mdhd": 24, b"tkhd": 28}
_KEPT: Final = {b"mvhd", b"trak", b"tkhd", b"mdia", b"mdhd", b"hdlr", b"minf", b"vmhd", b"dinf", b"stbl", b"stsd"}
_NESTED: Final = {b"trak", b"mdia", b"minf", b"stbl"}
_MAX_MDAT32: Final = (1 << 32) - 1


@dataclass
class SampleTable:
    """The samples of a clip, in chunks that lie together.

    Attributes:
        chunks: samples and bytes of each.
    """

    samples: list[SampleEntry] = field(default_factory=list)
    chunks: list[tuple[int, int]] = field(default_factory=list)

    def add(self, samples: Sequence[SampleEntry]) -> None:
        """A chunk."""
        self.samples += samples
        self.chunks.append((len(samples), sum(sample.size for sample in samples)))

    def lengthen_last(self, ticks: int) -> None:
        """The last picture is shown longer, or shorter."""
        last = self.samples[-1]
        self.samples[-1] = last._replace(duration=last.duration + ticks)

    @property
    def ticks(self) -> int:
        return sum(sample.duration for sample in self.samples)

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.chunks)


def media_timescale(moov: bytes) -> int:
    """Ticks a second.

    Args:
        moov: the box, as recordings have it.
    """
    return _word(moov, moov.index(b"mdhd") - 4 + _TIMESCALE)


def sample_description(moov: bytes) -> bytes:
    """The part that says codec, size and parameter sets."""
    at = moov.index(b"stsd") - 4
    return moov[at : at + _word(moov, at)]


def beginning(moov: bytes, table: SampleTable) -> bytes:
    """All of a clip before the bytes of its samples.

    Args:
        moov: of the recordings.
    """
    media = table.bytes
    mdat = _BOX_HEAD + media
    head = _WORD.pack(mdat) + b"mdat" if mdat <= _MAX_MDAT32 else _WORD.pack(1) + b"mdat" + _LONG.pack(16 + media)
    first = len(FTYP) + len(_whole(moov, table, 0)) + len(head)
    return FTYP + _whole(moov, table, first) + head


def _whole(moov: bytes, table: SampleTable, first: int) -> bytes:
    """`moov` with all tables.

    Args:
        first: offset of the first sample.
    """
    scale, media_scale = _word(moov, moov.index(b"mvhd") - 4 + _TIMESCALE), media_timescale(moov)
    duration = -(-table.ticks * scale // media_scale)
    content = {
        b"mvhd": duration,
        b"tkhd": duration,
        b"mdhd": table.ticks,
    }
    edit = _full(b"elst", _words([1, duration, max(0, table.samples[0].composition), 1 << 16]))
    added = {b"tkhd": box(b"edts", edit), b"stsd": _tables(table, first)}

    def rebuilt(data: bytes) -> bytes:
        found = []
        for kind, begin, end in boxes(data):
            if kind not in _KEPT:
                continue
            if kind in _NESTED:
                found.append(box(kind, rebuilt(data[begin + _BOX_HEAD : end])))
            elif kind in _DURATION:
                found.append(_with_duration(data[begin:end], kind, content[kind]))
            else:
                found.append(data[begin:end])
            found.append(added.get(kind, b""))
        return b"".join(found)

    return box(b"moov", rebuilt(moov[_BOX_HEAD:]))


def _tables(table: SampleTable, first: int) -> bytes:
    samples = table.samples
    offsets, at = [], first
    for _, size in table.chunks:
        offsets.append(at)
        at += size
    keys = [number for number, sample in enumerate(samples, 1) if sample.key]
    chunks: list[int] = []
    number = 1
    for count, group in groupby(count for count, _ in table.chunks):
        chunks += (number, count, 1)
        number += sum(1 for _ in group)
    parts = [
        _full(b"stts", _runs(sample.duration for sample in samples)),
        _full(b"stsc", _words([len(chunks) // 3, *chunks])),
        _full(b"stsz", _words([0, len(samples), *(sample.size for sample in samples)])),
        _full(b"co64", _words([len(offsets)]) + Struct(f">{len(offsets)}Q").pack(*offsets)),
    ]
    if any(sample.composition for sample in samples):
        composition = _runs(sample.composition & 0xFFFFFFFF for sample in samples)
        parts.insert(1, _full(b"ctts", composition, version=1))
    if len(keys) < len(samples):
        parts.append(_full(b"stss", _words([len(keys), *keys])))
    return b"".join(parts)


def _runs(values: Iterable[int]) -> bytes:
    """How often each value comes, and the value."""
    rows = [(sum(1 for _ in group), value) for value, group in groupby(values)]
    return _words([len(rows), *(number for row in rows for number in row)])


def _words(values: Sequence[int]) -> bytes:
    return Struct(f">{len(values)}I").pack(*values)


def _full(kind: bytes, content: bytes, version: int = 0) -> bytes:
    return box(kind, _WORD.pack(version << 24), content)


def _with_duration(data: bytes, kind: bytes, duration: int) -> bytes:
    """
    Raises:
        ValueError: the box is of another version.
    """
    if data[_BOX_HEAD]:
        raise ValueError(f"{kind!r} is of version {data[_BOX_HEAD]}")
    at = _DURATION[kind]
    return data[:at] + _WORD.pack(duration) + data[at + 4 :]


def _word(data: bytes, at: int) -> int:
    (found,) = _WORD.unpack_from(data, at)
    return int(found)
