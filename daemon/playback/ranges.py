"""The one range of bytes that a request may ask for (RFC 9110, 14)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException

MAX_BYTES: Final = 16 << 20
_RANGE = re.compile(r"bytes=[ \t]*(?:(\d{1,19})-(\d{0,19})|-(\d{1,19}))[ \t]*", re.ASCII | re.IGNORECASE)


class ByteRange(NamedTuple):
    """
    Attributes:
        begin, end: offsets; the end is not in it.
        is_whole: no range was asked for.
    """

    begin: int
    end: int
    is_whole: bool


def range_of(header: str | None, size: int) -> ByteRange:
    """The bytes to send of a file. A range without an end is as long as may be.

    Raises:
        HTTPException: 416: it cannot be read, is of several parts, lies behind the end, or is too long.
    """
    if header is None:
        if size > MAX_BYTES:
            raise _refusal(f"it is {size} bytes: ask for a Range of at most {MAX_BYTES}", size)
        return ByteRange(0, size, True)
    found = _RANGE.fullmatch(header)
    if found is None:
        raise _refusal("Range is to be one, such as bytes=0-65535", size)
    first, last, suffix = found.groups()
    if suffix is not None:
        begin, end = max(0, size - int(suffix)), size
    else:
        begin = int(first)
        end = min(size, int(last) + 1) if last else min(size, begin + MAX_BYTES)
        if last and int(last) < begin:
            raise _refusal("Range ends before it begins", size)
    if begin >= size or end <= begin:
        raise _refusal(f"Range lies behind the end, which is at {size}", size)
    if end - begin > MAX_BYTES:
        raise _refusal(f"Range is longer than {MAX_BYTES} bytes", size)
    return ByteRange(begin, end, False)


def _refusal(reason: str, size: int) -> HTTPException:
    return HTTPException(416, reason, {"Content-Range": f"bytes */{size}", "Accept-Ranges": "bytes"})
