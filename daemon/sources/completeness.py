"""Whether a recording is cut short. FFmpeg does not report it, and the length in a header is a claim.

A file's structure tells (`structure.py`): the end of a part is missing, or nothing is. Where it does not, the length
counts that the header states of the video. That of the whole file, which may be the length of the sound, counts if no
stream reaches it.
"""

from __future__ import annotations

import re

import av.error
from av.container import InputContainer
from av.stream import Discard
from av.video.stream import VideoStream

from daemon.sources.timeline import nanoseconds

# Formats with a length in their header.
_STATING = {"asf", "avi", "dhav", "flv", "ivf", "matroska", "mov", "mxf", "nut", "ogg", "rm", "wtv"}
_TOLERANCE_NS, _TOLERANCE = 1_000_000_000, 20  # or one part of so many, of the stated length
_MAX_PACKETS = 200_000  # of all streams that are read to reach the stated end
_MICROSECOND = 1000  # ns
_DURATION = re.compile(r"(\d+):(\d+):(\d+)\.(\d{1,9})")  # of a Matroska track


def tolerance(stated: int) -> int:
    """How much shorter than a stated length a recording may be, ns."""
    return max(_TOLERANCE_NS, stated // _TOLERANCE)


def stated_length(container: InputContainer) -> int:
    """The length of a recording by its header, of all its streams, ns; 0 if unknown."""
    return (container.duration or 0) * _MICROSECOND


def shortfall(
    container: InputContainer, stream: VideoStream, whole: bool | None, played: int, period: int, step: int
) -> int | None:
    """The stated length of a recording that is cut short, ns; 0 if it states none. None if it is whole.

    Args:
        whole: whether the structure of its file is, None if that does not tell.
        played: from the first picture to the end of the last, ns.
        period: of a picture by the rate, ns.
        step: between the last two pictures, ns.
    """
    formats = set(container.format.name.split(","))
    own = _own_length(stream, formats)
    stated = own or (stated_length(container) if formats & _STATING else 0)
    missing = stated - played
    if whole is False and "avi" in formats:  # FFmpeg corrects what such a file states
        return 0
    if whole is False:
        is_short = 2 * (missing + period) >= 3 * step  # a picture is missing: times may be rounded
        return None if own and not is_short else stated if is_short else 0
    if whole or missing <= tolerance(stated) or (not own and _reaches(container, stated)):
        return None
    return stated


def _own_length(stream: VideoStream, formats: set[str]) -> int:
    """Length of the video by the header, ns; 0 if it does not state it."""
    if formats & {"mov", "avi"} and stream.duration is not None and stream.time_base is not None:
        return nanoseconds(stream.duration, stream.time_base)
    if "matroska" in formats and (found := _DURATION.fullmatch(stream.metadata.get("DURATION", ""))):
        hours, minutes, seconds = (int(group) for group in found.groups()[:3])
        return (hours * 3600 + minutes * 60 + seconds) * 1_000_000_000 + int(found[4].ljust(9, "0"))
    return 0


def _reaches(container: InputContainer, stated: int) -> bool:
    """Whether a stream of the container reaches the stated length, ns."""
    wanted = (container.start_time or 0) * _MICROSECOND + stated - tolerance(stated)
    for stream in container.streams:
        stream.discard = Discard.default
    try:
        container.seek(wanted // _MICROSECOND)
        for _, packet in zip(range(_MAX_PACKETS), container.demux()):
            if packet.pts is not None and packet.time_base is not None:
                end = packet.pts + (packet.duration or 0)
                if nanoseconds(end, packet.time_base) >= wanted:
                    return True
    except (av.error.FFmpegError, OSError, IndexError):
        pass
    return False
