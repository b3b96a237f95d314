"""Files of recordings: every packet once, playable at any moment, whole after any end."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path

import av
import msgspec
import pytest

from daemon.recording.boxes import BoxError
from daemon.recording.errors import StoreError
from daemon.recording.recording_file import RecordingFile
from daemon.recording.records import Sample
from daemon.recording.samples import Sampling
from daemon.recording.scan import claim, recover, scan
from daemon.recording.store import Store
from daemon.sources.bitstream import Bitstream
from tests.support.recorded import BEGIN, SECOND, Clip, append, clip, groups, head_of, later, played, record, units

Row = tuple[int, int, bool, list[str]]  # pts, dts, key, NAL units
KINDS = [(kind, lengths) for kind in ("h264", "h264-b", "hevc") for lengths in (False, True)]


def _expected(found: Clip, samples: Sequence[Sample]) -> list[Row]:
    bits, base = Bitstream(found.stream.codec, found.stream.extradata), found.samples[0].dts
    return [(row.pts - base, row.dts - base, row.key, units(bits, row.data)) for row in samples]


def _close(
    rows: Sequence[tuple[int, int, bool, list[str]]], others: Sequence[tuple[int, int, bool, list[str]]]
) -> bool:
    """The same, but for a nanosecond of rounding."""
    return [row[2:] for row in rows] == [row[2:] for row in others] and all(
        abs(a - b) <= 1 for row, other in zip(rows, others) for a, b in zip(row[:2], other[:2])
    )


@pytest.mark.parametrize(("kind", "lengths"), KINDS)
def test_every_packet_is_in_the_file_once_at_any_moment(store: Store, clips: Path, kind: str, *, lengths: bool) -> None:
    """FFmpeg reads all that was appended, after each fragment, with the times and NAL units of the camera."""
    found = clip(clips, kind, lengths=lengths)
    file = RecordingFile.create(store, head_of(store, found.stream, found.samples[0]), found.samples[0].data)
    done: list[Sample] = []
    for group in groups(found.samples):
        append(file, group, len(done))
        done += group
        assert _close(played(store.path / file.path), _expected(found, done))
        assert scan(store, file.path).facts == file.facts
    facts = file.close("minute", file.fragments[-1].end)
    assert scan(store, file.path).facts == facts
    assert (facts.packets, facts.fragments, facts.reason) == (len(found.samples), 3, "minute")
    assert _close(played(store.path / file.path), _expected(found, found.samples))
    with av.open(str(store.path / file.path)) as container:
        assert sum(1 for _ in container.decode(video=0)) == len(found.samples)


def _begun(store: Store, found: Clip) -> RecordingFile:
    file = RecordingFile.create(store, head_of(store, found.stream, found.samples[0]), found.samples[0].data)
    for number, group in enumerate(list(groups(found.samples))[:2]):
        append(file, group, number * 15)
    return file


def test_a_file_is_whole_after_a_kill_at_any_byte(store: Store, clips: Path) -> None:
    """It is cut after its last whole fragment, and gets its tail; so does one whose end never reached the disk."""
    file = _begun(store, clip(clips, "h264"))
    path, before = store.path / file.path, file.facts
    assert recover(store, file.path) is None  # it is being written
    file.detach()
    first, second = file.fragments
    whole = path.read_bytes()
    for end in (second.offset + 3, second.offset + 200, len(whole) - 1, len(whole)):
        path.write_bytes(whole[:end])
        ragged = scan(store, file.path)
        assert ragged.facts.fragments == (2 if end == len(whole) else 1)
        found = recover(store, file.path)
        assert found is not None
        assert found.facts.reason == "killed"
        assert found.fragments == file.fragments[: found.facts.fragments]
        last = found.facts
        assert recover(store, file.path) == found == scan(store, file.path)
        assert len(played(path)) == found.facts.packets
    assert last.chain == before.chain
    path.write_bytes(whole[: second.offset + 400] + bytes(second.size - 400))  # a power cut
    found = recover(store, file.path)
    assert found is not None
    assert found.fragments == [first]


def test_a_full_disk_costs_no_fragment(store: Store, clips: Path) -> None:
    """The file is cut at its last whole fragment, and takes the same fragment again when there is room."""
    found = clip(clips, "h264")
    file = _begun(store, found)
    third = list(groups(found.samples))[2]
    limits, before = resource.getrlimit(resource.RLIMIT_FSIZE), file.facts
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.size + 1000, limits[1]))
    try:
        with pytest.raises(StoreError):
            append(file, third, 30)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.facts == before
    assert os.stat(store.path / file.path).st_size == file.size
    append(file, third, 30)
    assert file.close("minute", file.fragments[-1].end).packets == 45
    assert len(played(store.path / file.path)) == 45


def test_an_event_wants_what_is_written_already(store: Store, clips: Path) -> None:
    found = clip(clips, "h264")
    file = _begun(store, found)
    first, second = file.fragments
    assert file.claim(second.begin, second.end)
    assert not file.claim(second.begin, second.end)
    assert [row.claimed for row in scan(store, file.path).fragments] == [False, True]
    facts = file.close("minute", second.end)
    assert scan(store, file.path).facts == facts
    again = claim(store, file.path, first.begin, first.begin + 1)
    assert [row.claimed for row in again.fragments] == [True, True]
    assert claim(store, file.path, first.begin, first.end).facts == scan(store, file.path).facts == facts


def test_a_file_without_a_fragment_is_not_left(store: Store, clips: Path) -> None:
    found = clip(clips, "h264")
    file = RecordingFile.create(store, head_of(store, found.stream, found.samples[0]), found.samples[0].data)
    assert file.close("stopped", BEGIN).fragments == 0
    assert list(store.files()) == []


def test_what_is_no_recording_is_said(store: Store, clips: Path) -> None:
    facts = record(store, clip(clips, "h264"))
    path = store.path / facts.path
    for content in (b"", b"\0" * 40, path.read_bytes()[:100], b"hello, this is a text", path.read_bytes()[28:]):
        path.write_bytes(content)
        with pytest.raises(BoxError, match="no recording"):
            scan(store, facts.path)


@pytest.mark.parametrize("unit", [(1, 15), (1001, 30_000), (1, 1000), (1, 1_000_000), (1, 44_100), (0, 1)])
def test_times_are_those_of_the_stream_whatever_its_unit(store: Store, clips: Path, unit: tuple[int, int]) -> None:
    """To a unit, or a tick of 1/90,000 s, because the beginning is rounded too; also hours after it."""
    made = clip(clips, "h264-b", lengths=True)
    stream = msgspec.structs.replace(made.stream, time_base=unit)
    samples, base = later(made.samples, 9 * 3600 * SECOND), made.samples[0].dts
    file = RecordingFile.create(store, head_of(store, stream, samples[0], base_dts=base), samples[0].data)
    append(file, samples, 0)
    most = max(SECOND * unit[0] / unit[1] if unit[0] else 0, SECOND / 90_000) + 1
    for row, sample in zip(played(store.path / file.path), samples):
        assert abs(row[0] - (sample.pts - base)) <= most
        assert abs(row[1] - (sample.dts - base)) <= most


@pytest.mark.parametrize("turns", range(4))
def test_a_turned_picture_is_shown_upright(store: Store, clips: Path, turns: int) -> None:
    made = clip(clips, "h264")
    stream = msgspec.structs.replace(made.stream, turns=turns)
    facts = record(store, Clip(stream, made.samples))
    with av.open(str(store.path / facts.path)) as container:
        assert -next(container.decode(video=0)).rotation % 360 == turns * 90


def test_video_that_cannot_be_recorded_is_said(store: Store, clips: Path) -> None:
    made = clip(clips, "h264")
    for codec, data in (("vp9", made.samples[0].data), ("h264", memoryview(b"no video at all"))):
        stream = msgspec.structs.replace(made.stream, codec=codec, extradata=b"")
        with pytest.raises(StoreError, match="cannot be recorded") as caught:
            RecordingFile.create(store, head_of(store, stream, made.samples[0]), data)
        assert caught.value.cause == "codec"
    assert list(store.files()) == []


# Annex B of H.264 and H.265: units follow 0 0 1, at any place; zeros before that belong to no unit.
@pytest.mark.parametrize(
    ("packets", "units"),
    [
        ([b"\0\0\0\1\x09\x10\0\0\1\x41abc"], [[b"\x09\x10", b"\x41abc"]]),
        ([b"\0\0\1\x41a\0\0\1\x41bc\0\0\1\x41d"], [[b"\x41a", b"\x41bc", b"\x41d"]]),
        ([b"\0\0\0\1\x41ab\0\0\0\0", b"\0\0\1\x41c"], [[b"\x41ab"], [b"\x41c"]]),
        ([b"\0\0\1\x41\0\0\3\1\0\0\3"], [[b"\x41\0\0\3\1\0\0\3"]]),  # as encoders keep codes out of units
        ([b"\0\0\1\x41a\0\0", b"\1\0\0\1\x41b"], [[b"\x41a"], [b"\1", b"\x41b"]]),  # no code goes on in another packet
        ([bytes(90_000) + b"\0\0\1\x41a", b"", bytes(7)], [[b"\x41a"], [], []]),
    ],
)
def test_units_of_a_stream_with_start_codes_follow_their_lengths(
    packets: list[bytes], units: list[list[bytes]]
) -> None:
    parts, sizes = Sampling("h264", b"\0\0\0\1\x67").convert([memoryview(packet) for packet in packets])
    samples = [b"".join(len(unit).to_bytes(4, "big") + unit for unit in own) for own in units]
    assert b"".join(parts) == b"".join(samples)
    assert sizes == [*map(len, samples)]
