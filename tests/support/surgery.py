"""Recordings made byte by byte, as recorders and transmitters make them and ffmpeg does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from struct import pack, unpack

TS_PACKET = 188
_START = b"\0\0\1"


# --- H.264 and HEVC with start codes ---------------------------------------------------------------------------------


def units(data: bytes) -> list[bytes]:
    """The NAL units of a stream with start codes."""
    starts = [match.end() for match in re.finditer(_START, data)]
    return [data[a:b].rstrip(b"\0") for a, b in zip(starts, [start - 3 for start in starts[1:]] + [len(data)])]


def access_units(data: bytes) -> list[list[bytes]]:
    """The units of each picture of H.264, without the delimiters that it must have."""
    pictures: list[list[bytes]] = [[]]
    for unit in units(data):
        if kind_of(unit) != 9:
            pictures[-1].append(unit)
        elif any(map(is_picture, pictures[-1])):
            pictures.append([])
    return pictures


def lengthed_units(data: bytes) -> list[bytes]:
    """The NAL units of a packet in which each follows its length of four bytes."""
    found, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def kind_of(unit: bytes, *, hevc: bool = False) -> int:
    return unit[0] >> 1 & 0x3F if hevc else unit[0] & 0x1F


def is_picture(unit: bytes, *, hevc: bool = False) -> bool:
    return kind_of(unit, hevc=hevc) < 32 if hevc else 1 <= kind_of(unit) <= 5


def is_key(unit: bytes, *, hevc: bool = False) -> bool:
    return 16 <= kind_of(unit, hevc=True) <= 21 if hevc else kind_of(unit) == 5


# --- FLV (Adobe Flash Video File Format 10.1, and enhanced RTMP) -----------------------------------------------------

FLV_HEADER = b"FLV\1\1\0\0\0\x09\0\0\0\0"


def flv_tag(time_ms: int, body: bytes, kind: int = 9) -> bytes:
    """A tag, of video by default, and its size behind it."""
    time = (time_ms & 0xFFFFFF).to_bytes(3, "big") + bytes([time_ms >> 24 & 0xFF])
    tag = bytes([kind]) + len(body).to_bytes(3, "big") + time + b"\0\0\0" + body
    return tag + pack(">I", len(tag))


def avc_configuration(found: Sequence[bytes]) -> bytes:
    """avcC (ISO/IEC 14496-15) of the first parameter sets among NAL units."""
    sps = next(unit for unit in found if kind_of(unit) == 7)
    pps = next(unit for unit in found if kind_of(unit) == 8)
    sets = pack(">H", len(sps)) + sps + b"\1" + pack(">H", len(pps)) + pps
    return bytes([1, *sps[1:4], 0xFF, 0xE1]) + sets


def flv_of_units(data: bytes, fps: int, *, begin_ms: int = 0) -> bytes:
    """The tags of H.264 with each unit in a tag of its own: SEI, delimiters and parameter sets, too."""
    found, number = units(data), 0
    tags = [flv_tag(begin_ms, b"\x17\0\0\0\0" + avc_configuration(found))]
    for unit in found:
        kind = 0x17 if is_key(unit) else 0x27
        tags.append(flv_tag(begin_ms + number * 1000 // fps, bytes([kind, 1, 0, 0, 0]) + pack(">I", len(unit)) + unit))
        number += is_picture(unit)
    return b"".join(tags)


def flv_later(data: bytes, begin_ms: int) -> list[bytes]:
    """The tags of video of an FLV file, later by a time."""
    tags, at = [], len(FLV_HEADER)
    while at + 11 <= len(data):
        length = int.from_bytes(data[at + 1 : at + 4], "big")
        time = int.from_bytes(data[at + 7 : at + 8] + data[at + 4 : at + 7], "big")
        if data[at] == 9:
            tags.append(flv_tag(begin_ms + time, data[at + 11 : at + 11 + length]))
        at += 15 + length
    return tags


def hevc_configuration(found: Sequence[bytes]) -> bytes:
    """hvcC (ISO/IEC 14496-15) of the first parameter sets among NAL units."""
    sets = [next(unit for unit in found if kind_of(unit, hevc=True) == kind) for kind in (32, 33, 34)]
    profile = sets[1].replace(b"\0\0\3", b"\0\0")[3:15]
    arrays = b"".join(bytes([0x80 | 32 + n]) + pack(">HH", 1, len(unit)) + unit for n, unit in enumerate(sets))
    return b"\1" + profile + b"\xf0\0\xfc\xfd\xf8\xf8\0\0\x0f\3" + arrays


def flv_of_hevc_units(data: bytes, fps: int) -> bytes:
    """The same of HEVC, in enhanced tags."""
    found, number = units(data), 0
    tags = [flv_tag(0, b"\x90hvc1" + hevc_configuration(found))]
    for unit in found:
        kind = b"\x93hvc1" if is_key(unit, hevc=True) else b"\xa3hvc1"
        tags.append(flv_tag(number * 1000 // fps, kind + pack(">I", len(unit)) + unit))
        number += is_picture(unit, hevc=True)
    return b"".join(tags)


# --- AVI -------------------------------------------------------------------------------------------------------------


def avi(chunks: Sequence[bytes], fourcc: bytes, size: tuple[int, int], fps: int, *, index: bool = True) -> bytes:
    """A RIFF file of video chunks, which may be empty."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return name + pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    def listed(name: bytes, *parts: bytes) -> bytes:
        return chunk(b"LIST", name + b"".join(parts))

    count, (width, height) = len(chunks), size
    main = pack("<14I", 1_000_000 // fps, 0, 0, 0x10 if index else 0, count, 0, 1, 0, width, height, 0, 0, 0, 0)
    stream = b"vids" + fourcc + pack("<10I4H", 0, 0, 0, 1, fps, 0, count, 0, 0xFFFFFFFF, 0, 0, 0, width, height)
    form = pack("<IIIHH4sIIIII", 40, width, height, 1, 24, fourcc, width * height * 3, 0, 0, 0, 0)
    header = listed(b"hdrl", chunk(b"avih", main), listed(b"strl", chunk(b"strh", stream), chunk(b"strf", form)))
    movie = listed(b"movi", *(chunk(b"00dc", data) for data in chunks))
    entries, at = [], 4
    for number, data in enumerate(chunks):
        entries.append(b"00dc" + pack("<III", 0x10 if number == 0 else 0, at, len(data)))
        at += 8 + len(data) + len(data) % 2
    return chunk(b"RIFF", b"AVI " + header + movie + (chunk(b"idx1", b"".join(entries)) if index else b""))


EMPTY_VOP = b"\0\0\1\xb6\x50\x00\x7f"


def packed(packets: Sequence[bytes]) -> list[bytes]:
    """MPEG-4 pictures as DivX packs them: a P and the B picture behind it in one packet, then an empty picture."""
    found: list[bytes] = []
    for packet in packets:
        coding = packet[packet.find(b"\0\0\1\xb6") + 4] >> 6
        if coding == 2:  # a B picture
            found[-1] += packet
            found.append(EMPTY_VOP)
        else:
            found.append(packet)
    return found


# --- MPEG transport streams ------------------------------------------------------------------------------------------


def ts_packets(data: bytes) -> list[bytes]:
    return [data[at : at + TS_PACKET] for at in range(0, len(data), TS_PACKET)]


def pid_of(packet: bytes) -> int:
    return int.from_bytes(packet[1:3], "big") & 0x1FFF


def crc32(data: bytes) -> bytes:
    """ISO/IEC 13818-1, annex A."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ 0x04C11DB7) & 0xFFFFFFFF if crc & 0x80000000 else crc << 1
    return crc.to_bytes(4, "big")


def with_version(data: bytes, version: int, pmt_pid: int = 0x1000) -> bytes:
    """Another version of the table of a program (PMT), as a multiplexer gives that changes it."""

    def changed(packet: bytes) -> bytes:
        if pid_of(packet) != pmt_pid or not packet[1] & 0x40:
            return packet
        begin = 5 + (1 + packet[4] if packet[3] & 0x20 else 0)
        begin += packet[begin - 1]
        end = begin + 3 + (int.from_bytes(packet[begin + 1 : begin + 3], "big") & 0xFFF) - 4
        table = bytearray(packet[begin:end])
        table[5] = table[5] & 0xC1 | version << 1
        return packet[:begin] + bytes(table) + crc32(bytes(table)) + packet[end + 4 :]

    return b"".join(map(changed, ts_packets(data)))


def without(data: bytes, lose: Callable[[int, bytes], bool], pid: int = 0x100) -> bytes:
    """A transport stream that has lost packets of a stream.

    Args:
        lose: whether a packet that begins no picture is lost, by its number and content.
    """
    kept, number = [], 0
    for packet in ts_packets(data):
        if pid_of(packet) == pid and not packet[1] & 0x40:
            number += 1
            if lose(number, packet):
                continue
        kept.append(packet)
    return b"".join(kept)


def m2ts(data: bytes) -> bytes:
    """With the four bytes before each packet that Blu-ray and AVCHD have."""
    return b"".join(pack(">I", number * 100 & 0x3FFFFFFF) + packet for number, packet in enumerate(ts_packets(data)))


# --- Dahua -----------------------------------------------------------------------------------------------------------


def dav(data: bytes, size: tuple[int, int], fps: int) -> bytes:
    """H.264 with delimiters in DHAV frames, as Dahua's recorders export it."""
    written, when = b"", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    for number, found in enumerate(access_units(data)):
        body = b"".join(b"\0\0\0\1" + unit for unit in found)
        key = any(map(is_key, found))
        second = when.second + number // fps
        date = second % 60 | (when.minute + second // 60) << 6 | when.hour << 12 | when.day << 17 | when.month << 22
        date |= (when.year - 2000) << 26
        extra = bytes([0x81, 0, 8, fps]) + bytes([0x82, 0, 0, 0]) + pack("<HH", *size) if key else b""
        length = 24 + len(extra) + len(body) + 8
        facts = number, length, date, number * 1000 // fps % 65536, len(extra), 0
        head = b"DHAV" + bytes([0xFD if key else 0xFC, 0, 0, 0]) + pack("<IIIHBB", *facts)
        written += head[:-1] + bytes([sum(head[:-1]) & 0xFF]) + extra + body + b"dhav" + pack("<I", length)
    return written


# --- MP4 -------------------------------------------------------------------------------------------------------------


def boxes(data: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Names and whole contents of boxes (ISO/IEC 14496-12)."""
    at = 0
    while at < len(data):
        length, name = unpack(">I4s", data[at : at + 8])
        yield name, data[at : at + length]
        at += length


def with_cover_first(data: bytes) -> bytes:
    """The cover of an MP4 before its video, as taggers write it: `udta` in front of `trak`."""
    order = {b"mvhd": 0, b"udta": 1}
    whole = b""
    for name, box in boxes(data):
        if name == b"moov":
            inner = sorted(boxes(box[8:]), key=lambda one: order.get(one[0], 2))
            whole += box[:8] + b"".join(content for _, content in inner)
        else:
            whole += box
    return whole


# --- Matroska --------------------------------------------------------------------------------------------------------


def with_duration(data: bytes, factor: float) -> bytes:
    """A header that states a length that many times as long (RFC 9559: Duration, a double)."""
    at = data.index(b"\x44\x89\x88") + 3
    (length,) = unpack(">d", data[at : at + 8])
    return data[:at] + pack(">d", factor * length) + data[at + 8 :]


def with_times(data: bytes, change: Callable[[int, int], int]) -> bytes:
    """Other times of pictures, of a file with one track.

    Args:
        change: gets the number of a block and its time, ms, and returns another.
    """
    changed, number, cluster = bytearray(data), 0, 0
    for name, at, end in _elements(data, 0, len(data)):
        if name == _CLUSTER_TIME:
            cluster = int.from_bytes(data[at:end], "big")
        elif name == _SIMPLE_BLOCK:
            time = cluster + int.from_bytes(data[at + 1 : at + 3], "big", signed=True)
            changed[at + 1 : at + 3] = (change(number, time) - cluster).to_bytes(2, "big", signed=True)
            number += 1
    return bytes(changed)


_SEGMENT, _CLUSTER, _CLUSTER_TIME, _SIMPLE_BLOCK = 0x18538067, 0x1F43B675, 0xE7, 0xA3


def _elements(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Names of elements (RFC 8794), and where their content begins and ends; segments and clusters are entered."""
    while at < end:
        width = 9 - data[at].bit_length()
        name = int.from_bytes(data[at : at + width], "big")
        at += width
        width = 9 - data[at].bit_length()
        length = int.from_bytes(data[at : at + width], "big") & (1 << 7 * width) - 1
        at += width
        if name in (_SEGMENT, _CLUSTER):
            yield from _elements(data, at, min(end, at + length))
        else:
            yield name, at, at + length
        at += length
