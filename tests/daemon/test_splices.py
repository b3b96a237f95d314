"""Where another codec begins in a stream with start codes: not where bytes only look like it."""

from __future__ import annotations

import pytest

from daemon.sources.bitstream import Bitstream
from daemon.sources.pictures import PictureCounter
from daemon.sources.splices import begins_like, other_codec

START = b"\0\0\1"
H264 = START + b"\x09\x10" + START + b"\x67\x64\x00" + START + b"\x68\xee" + START + b"\x65\x88" + bytes(range(9, 90))
HEVC = START + b"\x46\x01" + START + b"\x40\x01\x0c" + START + b"\x42\x01\x01" + START + b"\x26\x01" + b"\x7f" * 60
MPEG2 = START + b"\xb3\x78" + START + b"\xb5\x14" + START + b"\x00\x00" + START + b"\x01\x12" + START + b"\x02\x12"
MPEG4 = START + b"\xb0\x01" + START + b"\xb5\x89" + START + b"\x20\x00" + START + b"\xb3\x00" + START + b"\xb6\x10"
KEYS = {"h264": H264, "hevc": HEVC, "mpeg2video": MPEG2, "mpeg4": MPEG4}


@pytest.mark.parametrize("codec", KEYS)
@pytest.mark.parametrize("other", KEYS)
def test_a_key_picture_of_another_codec_is_told(codec: str, other: str) -> None:
    """Alone, and behind the last picture of the codec before."""
    expected = None if other == codec else other
    assert other_codec(KEYS[other], codec) == expected
    assert other_codec(KEYS[codec] + KEYS[other], codec) == expected


def test_rows_of_a_large_picture_are_no_parameter_sets() -> None:
    rows = b"".join(START + bytes([row, 0x12 + row % 3, 0x42]) for row in range(1, 72))
    assert other_codec(MPEG2 + rows, "mpeg2video") is None
    assert other_codec(MPEG2 + rows, "mpeg1video") is None


def test_codecs_that_are_not_known_here_are_left_alone() -> None:
    assert other_codec(H264, "vvc") is None
    assert begins_like(H264, "cavs")


@pytest.mark.parametrize(
    ("codec", "units"),
    [
        ("h264", b"\x09\x30"),
        ("h264", b"\x41\x9a"),
        ("hevc", b"\x46\x01"),
        ("hevc", b"\x02\x01"),
        ("mpeg2video", b"\x00\x0f"),
        ("mpeg4", b"\xb6\x50"),
    ],
)
def test_pictures_between_begin_as_their_codec_does(codec: str, units: bytes) -> None:
    assert begins_like(START + units + b"\x80\x80", codec)
    others = {"h264": "hevc", "hevc": "h264", "mpeg2video": "h264", "mpeg4": "mpeg2video"}
    assert not begins_like(START + units + b"\x80\x80", others[codec])


@pytest.mark.parametrize(
    ("codec", "packet", "count"),
    [
        ("h264", START + b"\x06\x05\x04" + START + b"\x41\x9a", 1),
        ("h264", START + b"\x09\xf0" + START + b"\x06\x05\x04" + START + b"\x0b", 0),
        ("h264", START + b"\x00\x12", 1),  # damaged: certainly nothing else
        ("hevc", START + b"\x46\x01" + START + b"\x4e\x01\x05", 0),
        ("hevc", START + b"\x4e\x01\x05" + START + b"\x02\x01", 1),
        ("mpeg2video", START + b"\xb3\x14\x00", 0),
        ("mpeg2video", START + b"\x00\x0f", 1),
        ("vp8", b"\x10\x02\x00", 1),
        ("vp8", b"\x01\x02\x00", 0),
        ("vp9", b"\x82\x49\x83\x42", 1),
        ("vp9", b"\x84\x00\x40", 0),
        ("vp9", b"\x88\x00", 1),
        ("av1", b"\x12\x00", 0),
        ("av1", b"\x12\x00\x0a\x01\x00", 0),
        ("av1", b"\x12\x00\x32\x03abc", 1),
        ("mjpeg", b"\xff\xd8", 1),
    ],
)
def test_pictures_of_a_packet(codec: str, packet: bytes, count: int) -> None:
    assert PictureCounter(codec, b"", Bitstream(codec, b"")).count(memoryview(packet)) == count
