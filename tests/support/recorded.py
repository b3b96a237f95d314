"""Encoded clips as cameras send them, and recordings of them without a recorder."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import av
import msgspec
from av.packet import Packet

from daemon.recording.causes import Cause
from daemon.recording.recording_file import RecordingFile
from daemon.recording.records import FileFacts, FileHead, Gap, Sample, Stream
from daemon.recording.store import Store
from daemon.sources.bitstream import Bitstream
from tests.support.clips import ffmpeg, once

SECOND = 1_000_000_000
BEGIN = 1_800_000_000 * SECOND  # UTC, of a Friday
RATE = 15
_REPEATED = {  # first bytes of parameter sets and delimiters
    "h264": [first for first in range(128) if first & 0x1F in (7, 8, 9)],
    "hevc": [first for first in range(128) if first >> 1 in (32, 33, 34, 35)],
}
_ENCODERS = {
    "h264": ("-c:v", "libx264", "-preset", "ultrafast", "-bf", "0"),
    "h264-b": ("-c:v", "libx264", "-preset", "fast", "-bf", "3"),
    "hevc": ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:bframes=3"),
}


@dataclass(frozen=True)
class Clip:
    """A clip's packets."""

    stream: Stream
    samples: Sequence[Sample]


def _encode(path: Path, kind: str = "", seconds: int = 0) -> None:
    source = f"testsrc2=size=320x180:rate={RATE}:duration={seconds}"
    ffmpeg("-f", "lavfi", "-i", source, *_ENCODERS[kind], "-g", str(RATE), "-pix_fmt", "yuv420p", path)


def encoded(folder: Path, kind: str, *, seconds: int, suffix: str = "mkv") -> Path:
    """A video with a key picture each second; see `clip`."""
    return once(folder, f"{kind}-{seconds}.{suffix}", partial(_encode, kind=kind, seconds=seconds))


def clip(folder: Path, kind: str, *, lengths: bool = False, seconds: int = 3, session: str = "5e55") -> Clip:
    """A key picture each second.

    Args:
        kind: h264, h264-b (with B-frames) or hevc (likewise).
        lengths: NAL units follow lengths, and start codes otherwise.
    """
    with av.open(str(encoded(folder, kind, seconds=seconds, suffix="mp4" if lengths else "ts"))) as container:
        video = container.streams.video[0]
        context, unit = video.codec_context, video.time_base
        assert unit is not None
        packets = [packet for packet in container.demux(video) if packet.size]
        stream = Stream(session, context.name, bytes(context.extradata or b""), unit.as_integer_ratio(), 320, 180, 0)
        samples = []
        for packet in packets:
            assert packet.pts is not None
            assert packet.dts is not None
            pts, dts = (int(time * unit * SECOND) for time in (packet.pts, packet.dts))
            samples.append(Sample(pts, dts, SECOND // RATE, packet.is_keyframe, memoryview(bytes(packet))))
    return Clip(stream, samples)


def head_of(store: Store, stream: Stream, first: Sample, **facts: object) -> FileHead:
    """What a file says that begins with a packet."""
    begin = BEGIN + first.dts
    head = FileHead(
        id=secrets.token_hex(8),
        source="door",
        store=store.uuid,
        instance="test",
        stream=stream,
        base_dts=first.dts,
        first_pts=first.pts,
        first_dts=first.dts,
        begin=begin,
        begin_boot=begin - BEGIN,
        boot_id="b007",
        number=0,
        begins_with_key=first.key,
        since=begin,
        covered_until=begin,
    )
    return msgspec.structs.replace(head, **facts)


def groups(samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    """From a key picture to the next."""
    begins = [number for number, sample in enumerate(samples) if sample.key]
    for begin, end in zip(begins, [*begins[1:], len(samples)]):
        yield list(samples[begin:end])


def later(samples: Sequence[Sample], at: int) -> list[Sample]:
    """With times that are so many ns later."""
    return [msgspec.structs.replace(sample, pts=sample.pts + at, dts=sample.dts + at) for sample in samples]


def begun(store: Store, found: Clip, *, at: int = 0) -> RecordingFile:
    """A file with one fragment, which is being written."""
    samples = later(found.samples, at)
    file = RecordingFile.create(store, head_of(store, found.stream, samples[0]), samples[0].data)
    append(file, next(groups(samples)), 0)
    return file


def append(file: RecordingFile, group: Sequence[Sample], number: int, *, claimed: bool = False) -> None:
    """A fragment, whose pictures came when their times say."""
    begin, end = group[0].dts, group[-1].dts + group[-1].duration
    file.append(group, number=number, begin=BEGIN + begin, begin_boot=begin, end=BEGIN + end, claimed=claimed)


def record(
    store: Store,
    found: Clip,
    *,
    source: str = "door",
    at: int = 0,
    before: FileFacts | None = None,
    claimed: bool = False,
    cause: Cause = "source_down",
) -> FileFacts:
    """A whole clip as one finished file.

    Args:
        at: ns that all its times are later.
        before: the file of the source before it.
        cause: of the gap between them.
    """
    samples = later(found.samples, at)
    begin = BEGIN + samples[0].dts
    linked: dict[str, object] = (
        {"previous": before.id, "previous_chain": before.chain, "since": before.since} if before else {}
    )
    covered = before.end if before else begin
    if abs(covered - begin) < 1000:  # of rounding
        begin = covered
    gaps = [Gap(covered, begin, cause)] if covered < begin else []
    linked |= {"source": source, "begin": begin, "covered_until": covered, "gaps": gaps}
    head = head_of(store, found.stream, samples[0], **linked)
    file = RecordingFile.create(store, head, samples[0].data)
    number = 0
    for group in groups(samples):
        append(file, group, number, claimed=claimed)
        number += len(group)
    facts = file.close("minute", file.fragments[-1].end)
    assert file.trouble is None
    return facts


def units(found: Bitstream, data: bytes | memoryview, *, left_out: Container[int] = ()) -> list[str]:
    """Digests of the NAL units of a packet.

    Args:
        left_out: first bytes of units.
    """
    annex = bytes(found.to_annex_b(bytes(data), key=False)) if found.has_lengths else bytes(data)
    split = (unit.rstrip(b"\0") for unit in annex.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1"))
    return [hashlib.sha256(unit).hexdigest()[:16] for unit in split if unit and unit[0] not in left_out]


def played(path: Path | str) -> list[tuple[int, int, bool, list[str]]]:
    """The packets of a file as FFmpeg reads them: pts, dts (ns), key, digests of their NAL units."""
    rows = []
    for packet, found in _packets(path):
        assert packet.pts is not None
        assert packet.dts is not None
        assert packet.time_base is not None
        times = [round(time * packet.time_base * SECOND) for time in (packet.pts, packet.dts)]
        rows.append((times[0], times[1], packet.is_keyframe, found))
    return rows


def pictures_of(path: Path | str) -> list[tuple[str, ...]]:
    """For each packet of a file digests of its NAL units, without what servers repeat: parameter sets, delimiters."""
    return [tuple(found) for _, found in _packets(path, _REPEATED)]


def _packets(
    path: Path | str, left_out: Mapping[str, Container[int]] = MappingProxyType({})
) -> Iterator[tuple[Packet[Any], list[str]]]:
    with av.open(str(path)) as container:
        video = container.streams.video[0]
        codec = video.codec_context.name
        bits = Bitstream(codec, video.codec_context.extradata)
        for packet in container.demux(video):
            if packet.size:
                yield packet, units(bits, bytes(packet), left_out=left_out.get(codec, ()))
