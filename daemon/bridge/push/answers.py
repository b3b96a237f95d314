"""The meaning of an answer's status for a record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timezone
from email.utils import parsedate_to_datetime

import msgspec

from daemon.bridge.port import AwayError, GoneError
from daemon.bridge.push.port import RefusedError
from daemon.redact import printable
from daemon.system.http_client import HttpAnswer

_AGAIN = (408, 425, 429)
_MAX_RETRY_S = 3600.0
_LOGIN_RETRY_S = 60.0
_MAX_SAID = 200


def check_answer(answer: HttpAnswer, who: str, utc_ns: int, *, said: str = "", retry_s: float | None = None) -> None:
    """Return if the record is confirmed.

    Args:
        who: the server, as people are told.
        utc_ns: now, for dates in Retry-After.
        said: the server's own words, bounded and without secrets.
        retry_s: that its content asks for, instead of Retry-After.

    Raises:
        AwayError: it comes again; when, as the server asks, but within an hour.
        GoneError: 410.
        RefusedError: it does not.
    """
    status, words = answer.status, f": {said}" if said else ""
    if 200 <= status < 300:
        return
    if status in _AGAIN or status >= 500 or status < 200:
        wait_s = _bounded(retry_s) if retry_s is not None else retry_after(answer.headers, utc_ns)
        raise AwayError(f"{who} answers {status}{words}", retry_in_s=wait_s)
    if status == 401:
        raise AwayError(f"{who} refuses the login (401){words}", retry_in_s=_LOGIN_RETRY_S)
    if status == 410:
        raise GoneError(f"{who} wants nothing more (410){words}")
    if status < 400:
        raise RefusedError(f"{who} answers {status} and names another address: write the final one, none is followed")
    raise RefusedError(f"{who} refuses it: {status}{words}")


def retry_after(headers: Mapping[str, str], utc_ns: int) -> float | None:
    """Seconds of the header Retry-After, which has seconds or a date; at most an hour, None without it."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return _bounded(float(text[:10]))
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return _bounded(date.timestamp() - utc_ns / 1e9)


def said_in(content: bytes, field: str, *secrets: str) -> str:
    """A text of an answer in JSON, as it may be shown: one line, short, and without secrets; empty if it has none."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    text = found.get(field) if isinstance(found, dict) else None
    if not isinstance(text, str):
        return ""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return printable(text)[:_MAX_SAID]


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), _MAX_RETRY_S)
