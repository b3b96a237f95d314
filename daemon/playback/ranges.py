"""The one range of bytes that a request may ask for (RFC 9110, 14)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from daemon.http.operation import Parameter

MAX_BYTES: Final = 16 << 20
HEADERS: Final = tuple(Parameter(name, {"type": "string"}, "header") for name in ("Range", "If-Range", "If-None-Match"))
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

    def headers(self, size: int) -> dict[str, str]:
        """Those of an answer with these bytes of so many."""
        told = {"Accept-Ranges": "bytes"}
        return told if self.is_whole else {**told, "Content-Range": f"bytes {self.begin}-{self.end - 1}/{size}"}


def asked_range(request: Request, tag: str) -> str | None:
    """The range that a request has, unless its client has the beginning of another version.

    Raises:
        HTTPException: 416: there are two.
    """
    headers = request.headers
    given = headers.getlist("range")
    if len(given) > 1:
        raise HTTPException(416, "there are two headers Range")
    return given[0] if given and headers.get("if-range", tag) == tag else None


def range_of(header: str | None, size: int, most: int = MAX_BYTES) -> ByteRange:
    """The bytes to send of a file. A range without an end is as long as may be.

    Args:
        most: bytes of one answer.

    Raises:
        HTTPException: 416: it cannot be read, is of several parts, lies behind the end, or is too long.
    """
    if header is None:
        if size > most:
            raise _refusal(f"it is {size} bytes: ask for a Range of at most {most}", size)
        return ByteRange(0, size, True)
    found = _RANGE.fullmatch(header)
    if found is None:
        raise _refusal("Range is to be one, such as bytes=0-65535", size)
    first, last, suffix = found.groups()
    if suffix is not None:
        begin, end = max(0, size - int(suffix)), size
    else:
        begin = int(first)
        end = min(size, int(last) + 1) if last else min(size, begin + most)
        if last and int(last) < begin:
            raise _refusal("Range ends before it begins", size)
    if begin >= size or end <= begin:
        raise _refusal(f"Range lies behind the end, which is at {size}", size)
    if end - begin > most:
        raise _refusal(f"Range is longer than {most} bytes", size)
    return ByteRange(begin, end, False)


def _refusal(reason: str, size: int) -> HTTPException:
    return HTTPException(416, reason, {"Content-Range": f"bytes */{size}", "Accept-Ranges": "bytes"})
