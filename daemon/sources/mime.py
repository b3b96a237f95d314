"""The MIME type of video, by which a player says whether it can play it."""

from __future__ import annotations


def mime_of(segment: bytes) -> str:
    """The MIME type of an MP4's beginning, with its codec (RFC 6381; ISO/IEC 14496-15, annex E).

    Raises:
        ValueError: it has neither H.264 nor HEVC.
    """
    at = segment.find(b"avcC")
    if at >= 0:
        return f'video/mp4; codecs="avc1.{segment[at + 5 : at + 8].hex()}"'
    at = segment.find(b"hvcC")
    if at < 0:
        raise ValueError("no configuration of a codec was written")
    record = segment[at + 4 : at + 18]
    space, tier, profile = record[1] >> 6, record[1] >> 5 & 1, record[1] & 31
    compatible = int(f"{int.from_bytes(record[2:6], 'big'):032b}"[::-1], 2)
    constraints = "".join(f".{byte:X}" for byte in record[6:12].rstrip(b"\0"))
    prefix = ("", "A", "B", "C")[space]
    return f'video/mp4; codecs="hvc1.{prefix}{profile}.{compatible:X}.{"LH"[tier]}{record[12]}{constraints}"'
